//! The tour of the source document with the stock kubectl: define, apply, get, wait, edit, delete.
//!
//! The same steps with the definition as printed in the document and with the full one, on the simulated cloud and on a
//! real Neutron.

use serde_json::Value;

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::neutron::Neutron;
use crate::support::plane::Plane;

/// The definition of a Network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Definition {
    /// v1beta1, no schema, no status subresource.
    AsPrinted,
    /// v1, schema, status subresource, printer columns.
    Full,
}

impl Definition {
    fn manifest(self) -> &'static str {
        match self {
            Definition::AsPrinted => "manifests/crd/network.yaml",
            Definition::Full => "manifests/crd/network-v1.yaml",
        }
    }
}

const EXAMPLE: &str = "manifests/example-network.yaml";
const EXAMPLE_NAME: &str = "network.samplecrd.k8s.io/example-network";

#[test]
fn tour_with_definition_as_printed_on_simulated_cloud() {
    tour(Definition::AsPrinted, None);
}

#[test]
fn tour_with_full_definition_on_simulated_cloud() {
    tour(Definition::Full, None);
}

#[test]
fn tour_with_definition_as_printed_on_real_neutron() {
    if let Some(neutron) = Neutron::shared() {
        tour(Definition::AsPrinted, Some(&neutron));
    }
}

#[test]
fn tour_with_full_definition_on_real_neutron() {
    if let Some(neutron) = Neutron::shared() {
        tour(Definition::Full, Some(&neutron));
    }
}

fn tour(definition: Definition, neutron: Option<&Neutron>) {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let flags = neutron.map(Neutron::flags);
    let plane = Plane::up(home.path(), flags.as_ref().map_or(&[][..], |flags| &flags[..]));
    let kubectl = Kubectl::new(program, &plane.kubeconfig());

    define(&kubectl, definition);
    let status = apply_example(&kubectl);
    show(&kubectl, definition);
    check_cloud(neutron, &status, "192.168.0.1");

    // After the edit the cloud is updated, on the same network.
    assert_eq!(
        kubectl.edit("network example-network", "gateway: 192.168.0.1$", "gateway: 192.168.0.254"),
        format!("{EXAMPLE_NAME} edited")
    );
    check_change(&kubectl, definition, neutron, &status, "192.168.0.254");
    // Applied again, the network returns to its manifest, and then is unchanged.
    assert_eq!(kubectl.ok(&format!("apply -f {EXAMPLE}")), format!("{EXAMPLE_NAME} configured"));
    check_change(&kubectl, definition, neutron, &status, "192.168.0.1");
    assert_eq!(kubectl.ok(&format!("apply -f {EXAMPLE}")), format!("{EXAMPLE_NAME} unchanged"));
    let refused = kubectl.fails(&format!("create -f {EXAMPLE}"));
    assert!(refused.contains("(AlreadyExists)"), "{refused}");

    delete_example(&kubectl, neutron, &status);

    // The definition is deleted and created again, while the controller keeps running.
    kubectl.ok("delete crd networks.samplecrd.k8s.io");
    let gone = kubectl.fails("get networks");
    // kubectl prints the second one while it has the kind in its cache.
    let words = ["the server doesn't have a resource type", "the server could not find the requested resource"];
    assert!(words.iter().any(|word| gone.contains(word)), "{gone}");
    define(&kubectl, definition);
    let status = apply_example(&kubectl);
    check_cloud(neutron, &status, "192.168.0.1");
    delete_example(&kubectl, neutron, &status);

    plane.stop();
}

fn define(kubectl: &Kubectl, definition: Definition) {
    assert_eq!(
        kubectl.ok(&format!("apply -f {}", definition.manifest())),
        "customresourcedefinition.apiextensions.k8s.io/networks.samplecrd.k8s.io created"
    );
    let listed = kubectl.ok("get crd");
    assert!(listed.contains("networks.samplecrd.k8s.io"), "{listed}");
}

/// Applies the example, waits until it is ready, and returns its status.
fn apply_example(kubectl: &Kubectl) -> Value {
    assert_eq!(kubectl.ok(&format!("apply -f {EXAMPLE}")), format!("{EXAMPLE_NAME} created"));
    assert_eq!(
        kubectl.ok("wait --for=condition=Ready network/example-network --timeout=60s"),
        format!("{EXAMPLE_NAME} condition met")
    );
    let network = kubectl.json("get network example-network");
    assert_eq!(network["spec"]["cidr"], "192.168.0.0/16");
    let status = &network["status"];
    assert!(status["networkID"].is_string() && status["subnetID"].is_string(), "{status:#}");
    status.clone()
}

/// Checks the output of `get` and `describe`.
fn show(kubectl: &Kubectl, definition: Definition) {
    let table = kubectl.ok("get network");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let (header, row) = (&rows[0], &rows[1]);
    match definition {
        Definition::AsPrinted => {
            assert_eq!(header, &["NAME", "AGE"]);
            assert_eq!(row[0], "example-network");
        }
        Definition::Full => {
            assert_eq!(header, &["NAME", "CIDR", "GATEWAY", "READY", "AGE"]);
            assert_eq!(row[..4], ["example-network", "192.168.0.0/16", "192.168.0.1", "True"]);
            assert_eq!(kubectl.ok("get net --no-headers -o name"), EXAMPLE_NAME);
            let wide = kubectl.ok("get net -o wide");
            assert!(wide.contains("NETWORK ID") && wide.contains("REASON"), "{wide}");
            let explained = kubectl.ok("explain network.spec");
            assert!(explained.contains("cidr\t<string> -required-"), "{explained}");
        }
    }
    // An Event is written concurrently with the work, not before it.
    let described = eventually("an Event in kubectl describe", || {
        let described = kubectl.ok("describe network example-network");
        let events = described.split("Events:").nth(1).unwrap_or_default();
        (events.contains("Normal") && events.contains("Reason")).then_some(described)
    });
    // Independent of the columns' padding.
    let lines: Vec<String> =
        described.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in
        ["Name: example-network", "Cidr: 192.168.0.0/16", "Gateway: 192.168.0.1", "Type: Ready", "Status: True"]
    {
        assert!(lines.iter().any(|line| line == expected), "no {expected:?} in\n{described}");
    }
    // The capitals of an initialism depend on the version of kubectl.
    assert!(lines.iter().any(|line| line.to_lowercase().starts_with("network id: ")), "{described}");
}

/// Checks the network of `status` in the cloud.
fn check_cloud(neutron: Option<&Neutron>, status: &Value, gateway: &str) {
    let Some(neutron) = neutron else {
        assert!(status["backend"].as_str().unwrap().starts_with("simulated"), "{status:#}");
        return;
    };
    let (network_id, subnet_id) = (status["networkID"].as_str().unwrap(), status["subnetID"].as_str().unwrap());
    let network = neutron.network(network_id).expect("Neutron has the network");
    assert_eq!(network["subnets"], serde_json::json!([subnet_id]));
    let subnet = neutron.subnet(subnet_id).expect("Neutron has the subnet");
    assert_eq!((&subnet["cidr"], &subnet["gateway_ip"]), (&"192.168.0.0/16".into(), &gateway.into()));
}

/// Waits until the cloud has the new gateway, on the same network and subnet as before.
fn check_change(kubectl: &Kubectl, definition: Definition, neutron: Option<&Neutron>, status: &Value, gateway: &str) {
    eventually("the new gateway in the cloud and in the status", || {
        let network = kubectl.json("get network example-network");
        let is_observed = match definition {
            // Without a status subresource every write of the status increases the generation.
            Definition::AsPrinted => true,
            Definition::Full => network["status"]["observedGeneration"] == network["metadata"]["generation"],
        };
        let is_real = neutron.is_none_or(|neutron| {
            let subnet = neutron.subnet(status["subnetID"].as_str().unwrap());
            subnet.is_some_and(|subnet| subnet["gateway_ip"] == gateway)
        });
        (network["spec"]["gateway"] == gateway && is_observed && is_real).then_some(())
    });
    kubectl.ok("wait --for=condition=Ready network/example-network --timeout=60s");
    let now = &kubectl.json("get network example-network")["status"];
    assert_eq!((&now["networkID"], &now["subnetID"]), (&status["networkID"], &status["subnetID"]));
}

fn delete_example(kubectl: &Kubectl, neutron: Option<&Neutron>, status: &Value) {
    let deleted = kubectl.ok(&format!("delete -f {EXAMPLE}"));
    assert!(deleted.starts_with("network.samplecrd.k8s.io \"example-network\" deleted"), "{deleted}");
    let gone = kubectl.fails("get network example-network");
    assert!(gone.contains("(NotFound)"), "{gone}");
    if let Some(neutron) = neutron {
        // The finalizer has held the object until they were deleted.
        assert_eq!(neutron.network(status["networkID"].as_str().unwrap()), None);
        assert_eq!(neutron.subnet(status["subnetID"].as_str().unwrap()), None);
    }
}
