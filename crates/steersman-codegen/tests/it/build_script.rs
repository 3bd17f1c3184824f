//! Types that a build script generates, and checked-in types.

use serde_json::json;
use steersman_codegen::{Builder, Error};

use crate::project::{Kind, Project};

fn manifests(name: &str) -> String {
    format!("{}/../../manifests/crd/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn types_of_a_build_script_are_included() {
    let build_dependencies =
        format!("[build-dependencies]\nsteersman-codegen = {{ path = {:?} }}", env!("CARGO_MANIFEST_DIR"));
    let project = Project::new("codegen-build-script", &format!("k8s-openapi = \"0.29\"\n\n{build_dependencies}"));
    let script = format!(
        "fn main() -> Result<(), steersman_codegen::Error> {{\n    \
             steersman_codegen::Builder::new().manifest({:?}).compile()\n}}\n",
        manifests("network-v1.yaml")
    );
    std::fs::write(project.directory().join("build.rs"), script).unwrap();
    let include = "include!(concat!(env!(\"OUT_DIR\"), \"/apis.rs\"));\n";
    let program = "codegen-included";
    std::fs::create_dir_all(project.sources(program)).unwrap();
    std::fs::write(project.sources(program).join("apis.rs"), include).unwrap();
    project.write_main(
        program,
        &[Kind {
            api_version: "samplecrd.k8s.io/v1".to_owned(),
            kind: "Network".to_owned(),
            path: "apis::samplecrd_k8s_io::v1::Network".to_owned(),
        }],
    );
    let (is_success, messages) = project.build(&[program]);
    assert!(is_success, "{messages}");
    let network = json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a"},
        "spec": {"cidr": "192.168.0.0/16", "gateway": "192.168.0.1"}});
    let without_cidr = json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "a"},
        "spec": {"gateway": "192.168.0.1"}});
    let answers = project.run(program, &[&network, &without_cidr]);
    assert_eq!(answers[0]["object"], network);
    assert!(answers[1]["error"].as_str().unwrap().contains("missing field `cidr`"), "{:?}", answers[1]);
}

#[test]
fn checked_in_types_are_stale_after_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("network.yaml");
    let text = std::fs::read_to_string(manifests("network-v1.yaml")).unwrap();
    std::fs::write(&manifest, &text).unwrap();
    let builder = Builder::new().manifest(&manifest).module("types");
    let sources = directory.path().join("src");
    assert_eq!(builder.write_to(&sources).unwrap().len(), 4);
    builder.check(&sources, "make types").unwrap();
    assert!(builder.write_to(&sources).unwrap().is_empty(), "nothing has changed");

    std::fs::write(&manifest, text.replace("gateway", "router")).unwrap();
    let error = builder.check(&sources, "make types").unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 generated file is out of date: types/samplecrd_k8s_io/v1/network.rs differs; run `make types`"
    );
    std::fs::write(&manifest, text.replace("name: v1\n", "name: v2\n")).unwrap();
    let error = builder.check(&sources, "make types").unwrap_err().to_string();
    assert!(error.contains("types/samplecrd_k8s_io/v1/network.rs is no longer generated"), "{error}");
}

#[test]
fn errors_say_what_to_do() {
    let error = Builder::new().generate().unwrap_err();
    assert_eq!(error.to_string(), "nothing to generate from: name a manifest");
    let error = Builder::new().manifest("nowhere.yaml").generate().unwrap_err();
    assert_eq!(error.to_string(), "cannot read nowhere.yaml: give the path of a manifest");
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.yaml"), "kind: Namespace\n").unwrap();
    let error = Builder::new().manifest(directory.path()).generate().unwrap_err();
    assert!(matches!(&error, Error::Read(_)), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("has no CustomResourceDefinition; of its 1 files that end in .yaml, .yml or .json none does"),
        "{error}"
    );
}
