//! A controller for Networks with generated clients, informers and listers: the counterpart, line for line, of what the
//! documentation of custom controllers builds in Go with `generate-groups.sh`.
//!
//! `client.rs` and what is below it is generated; `cargo xtask codegen` has the command, and CI checks that it is up to date.

#![expect(dead_code, unreachable_pub, reason = "the modules are as in a library, which others use more of")]

mod api;
#[rustfmt::skip]
mod client;
mod controller;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use parking_lot::Mutex;
use steersman::InformerFactory;
use steersman_testkit::ControlPlane;

use crate::api::{Network, NetworkSpec};
use crate::client::{Clientset, Informers};
use crate::controller::Controller;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plane = ControlPlane::start().await;
    plane.apply(include_str!("crd.yaml")).await;
    let neutron = Arc::new(Mutex::new(Vec::new()));

    // In a cluster: `steersman::client(&ClientOptions::default().kubeconfig(kubeconfig).master(master))`.
    let client = plane.client();
    let factory = InformerFactory::new(client.clone()).resync(Duration::from_secs(30));
    let controller = Controller::new(&factory.samplecrd_v1().networks(), Arc::clone(&neutron));
    let running = factory.start();
    controller.run(2, use_the_client(&client, &neutron)).await?;
    running.shutdown().await;

    plane.stop().await;
    Ok(())
}

/// What somebody does with the clientset, and what the controller makes of it.
async fn use_the_client(client: &kube::Client, neutron: &Mutex<Vec<String>>) {
    let networks = client.samplecrd_v1().networks("default");
    let spec = NetworkSpec { cidr: "192.168.0.0/16".to_owned(), gateway: "192.168.0.1".to_owned() };
    let mut network = networks.create(&Network::new("example-network", spec)).await.expect("the network is created");
    until(neutron, "process default/example-network 192.168.0.0/16").await;

    network.spec.cidr = "10.0.0.0/8".to_owned();
    networks.update(&network).await.expect("the network is updated");
    until(neutron, "process default/example-network 10.0.0.0/8").await;
    let listed = networks.list(&ListParams::default()).await.expect("networks are listed");
    assert_eq!(listed.items.len(), 1);

    networks.delete("example-network", &DeleteParams::default()).await.expect("the network is deleted");
    until(neutron, "delete default/example-network").await;
    println!("{}", neutron.lock().join("\n"));
}

/// Waits until the controller has done something last.
async fn until(neutron: &Mutex<Vec<String>>, last: &str) {
    let done = async {
        while neutron.lock().last().is_none_or(|done| done != last) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), done)
        .await
        .unwrap_or_else(|_| panic!("{last}: {:?}", neutron.lock()));
}

#[test]
fn networks_are_processed_and_deleted() {
    main().unwrap();
}

#[test]
fn the_definition_is_that_of_the_type() {
    use kube::CustomResourceExt as _;
    use steersman_codegen::output::{Files, is_to_update};

    let mut files = Files::default().below("generated");
    files.insert("crd.yaml", steersman_codegen::manifest::definition(&Network::crd()).unwrap());
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/samplecrd");
    if is_to_update("UPDATE_MANIFESTS") {
        files.write(&directory).unwrap();
    } else {
        files.verify(&directory, "UPDATE_MANIFESTS=1 cargo test -p steersman-testkit").unwrap();
    }
}
