//! What is generated for small definitions, as text.

use expect_test::expect_file;

use crate::crd;
use crate::types::{Options, generate};

const NETWORK_V1: &str = include_str!("../../../../manifests/crd/network-v1.yaml");

#[test]
fn the_networks_of_this_project() {
    let definitions = crd::read("network-v1.yaml", NETWORK_V1).unwrap();
    let files = generate(&definitions, &Options::default()).unwrap();
    let names: Vec<_> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    assert_eq!(
        names,
        ["apis/samplecrd_k8s_io/v1/network.rs", "apis/samplecrd_k8s_io/v1.rs", "apis/samplecrd_k8s_io.rs", "apis.rs"]
    );
    let text = files.text("apis/samplecrd_k8s_io/v1/network.rs").unwrap();
    expect_file!["../../testdata/network.rs"].assert_eq(text);
}
