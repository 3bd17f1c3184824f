//! The Network controller at its boundary: started early, alone, with bad input, with a cloud that becomes unavailable.

use std::io::{Read, Write};

use serde_json::Value;

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::neutron::Neutron;
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;

fn network(name: &str, cidr: &str, gateway: &str) -> String {
    format!(
        "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: {name}\nspec:\n  cidr: {cidr:?}\n  gateway: {gateway:?}\n"
    )
}

/// The condition of `kind` of a network, once it is for the current generation.
fn condition(kubectl: &Kubectl, name: &str, kind: &str) -> Value {
    eventually(&format!("condition {kind} of network {name}"), || {
        let network = kubectl.json(&format!("get network {name}"));
        let is_observed = network["status"]["observedGeneration"] == network["metadata"]["generation"];
        let conditions = network["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|condition| condition["type"] == kind)?;
        is_observed.then(|| found.clone())
    })
}

#[test]
fn bad_input_ends_in_condition_and_event_and_heals() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut plane = Plane::up(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");

    for (name, cidr, gateway, word) in [
        ("no-cidr", "not-a-cidr", "192.168.0.1", "not-a-cidr"),
        ("far-gateway", "192.168.0.0/16", "10.0.0.1", "10.0.0.1"),
    ] {
        kubectl.apply(&network(name, cidr, gateway));
        let ready = condition(&kubectl, name, "Ready");
        assert_eq!(ready["status"], "False", "{ready:#}");
        assert!(ready["message"].as_str().unwrap().contains(word), "{ready:#}");
        eventually("a warning as Event", || {
            let described = kubectl.ok(&format!("describe network {name}"));
            described.split("Events:").nth(1)?.contains("Warning").then_some(())
        });
        kubectl.apply(&network(name, "192.168.0.0/16", "192.168.0.1"));
        kubectl.ok(&format!("wait --for=condition=Ready network/{name} --timeout=60s"));
    }
    assert!(plane.process.runs());
    kubectl.ok("delete networks --all");
    plane.stop();
}

#[test]
fn cloud_that_is_away_is_a_condition_until_it_is_back() {
    let (Some(program), Some(neutron)) = (kubectl::program(), Neutron::shared()) else { return };
    let home = tempfile::tempdir().unwrap();
    // A port that does not answer: nothing listens there after the listener is dropped.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flags = ["--neutron-url", &format!("http://{nowhere}"), "--neutron-auth", "none"];
    let plane = Plane::up(home.path(), &flags);
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.apply(&network("patient", "10.9.0.0/24", "10.9.0.1"));
    let ready = condition(&kubectl, "patient", "Ready");
    assert_ne!(ready["status"], "True", "{ready:#}");
    plane.stop();

    let plane = Plane::up(home.path(), &neutron.flags());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("wait --for=condition=Ready network/patient --timeout=60s");
    let status = &kubectl.json("get network patient")["status"];
    assert!(neutron.network(status["networkID"].as_str().unwrap()).is_some());
    kubectl.ok("delete network patient");
    plane.stop();
}

#[test]
fn deleting_the_definition_removes_its_networks_from_neutron() {
    let (Some(program), Some(neutron)) = (kubectl::program(), Neutron::shared()) else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::up(home.path(), &neutron.flags());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.apply(&network("doomed", "10.8.0.0/24", "10.8.0.1"));
    kubectl.ok("wait --for=condition=Ready network/doomed --timeout=60s");
    let id = kubectl.json("get network doomed")["status"]["networkID"].take();
    kubectl.ok("delete -f manifests/crd/network-v1.yaml --timeout=100s");
    eventually("the network gone from Neutron", || neutron.network(id.as_str().unwrap()).is_none().then_some(()));
    plane.stop();
}

#[test]
fn controller_runs_alone_against_a_server_that_gets_its_definition_later() {
    let (Some(program), Some(neutron)) = (kubectl::program(), Neutron::shared()) else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let mut command = steersman(home.path());
    command.arg("network").arg("--kubeconfig").arg(plane.kubeconfig()).args(neutron.flags());
    let mut controller = Process::start(&mut command);

    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.apply(&network("afar", "10.7.0.0/24", "10.7.0.1"));
    kubectl.ok("wait --for=condition=Ready network/afar --timeout=60s");
    let status = &kubectl.json("get network afar")["status"];
    assert!(neutron.subnet(status["subnetID"].as_str().unwrap()).is_some());
    kubectl.ok("delete network afar");

    assert!(controller.runs());
    controller.signal("TERM");
    let ended = controller.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    plane.stop();
}

#[test]
fn a_controller_alone_serves_its_metrics_and_health_until_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let mut command = steersman(home.path());
    command.arg("network").arg("--kubeconfig").arg(plane.kubeconfig());
    command.args(["--neutron-url", "http://127.0.0.1:9", "--neutron-auth", "none", "--metrics-address", "127.0.0.1:0"]);
    let mut controller = Process::start(&mut command);
    let line = controller.line().unwrap();
    let address = line.strip_prefix("metrics and health: http://").unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").ends_with("\r\n\r\nok"));
    let reconciles = "\ncontroller_runtime_reconcile_total{controller=\"network-controller\",result=\"success\"} 0\n";
    assert!(get("/metrics").contains(reconciles));
    // The definition of Networks does not exist yet, so the first requests fail, and are counted.
    let host = plane.listen();
    let not_found = format!("\nrest_client_requests_total{{code=\"404\",method=\"GET\",host=\"{host}\"}} ");
    eventually("a request is counted", || get("/metrics").contains(&not_found).then_some(()));
    assert!(get("/readyz").contains("[-]informer-sync failed"));

    let refused = run(
        home.path(),
        ["network", "--master", "http://127.0.0.1:9", "--neutron-url", "http://127.0.0.1:9", "--neutron-auth", "none"]
            .into_iter()
            .chain(["--metrics-address", &address]),
    );
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(refused.stderr.contains(&address) && refused.stderr.contains("--metrics-address"), "{refused:#?}");

    controller.signal("TERM");
    let ended = controller.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    plane.stop();
}

#[test]
fn second_signal_ends_a_controller_that_waits_for_its_cloud() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.apply(&network("stuck", "10.6.0.0/24", "10.6.0.1"));

    // A cloud that accepts a request and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut command = steersman(home.path());
    command.arg("network").arg("--kubeconfig").arg(plane.kubeconfig());
    let controller = Process::start(command.args(["--neutron-url", &url, "--neutron-auth", "none"]));
    let _request = silent.accept().unwrap();
    // Two signals of the same kind could arrive as one.
    controller.signal("INT");
    controller.signal("TERM");
    let ended = controller.end();
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert!(ended.stderr.contains("second signal"), "{ended:#?}");
    plane.stop();
}

#[test]
fn the_kustomization_makes_a_deployment_that_the_program_understands() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -k manifests/network-operator");
    let deployment = kubectl.json("-n network-operator get deployment network-controller");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&deployment["spec"]["replicas"], &container["image"]), (&2.into(), &"steersman:0.1.0".into()));
    for object in ["service network-controller-metrics", "pdb network-controller", "role network-controller"] {
        kubectl.ok(&format!("-n network-operator get {object}"));
    }

    // The arguments are complete except for the address of the cluster, which a pod would have.
    let clouds =
        "clouds: {openstack: {auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: p, project_name: p}}}";
    std::fs::write(home.path().join("clouds.yaml"), clouds).unwrap();
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let refused = run(home.path(), arguments.into_iter().chain(["--kubeconfig".to_owned(), "nowhere".to_owned()]));
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(refused.stderr.contains("nowhere"), "{refused:#?}");
    plane.stop();
}
