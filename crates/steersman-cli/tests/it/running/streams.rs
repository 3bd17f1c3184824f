//! Lists and streams of later events with curl and the client certificate, and what other users may not read.

use serde_json::Value;

use crate::support::curl::{As, Curl};
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use crate::support::root;

#[test]
fn watch_from_list_streams_what_another_client_does() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let Some(curl) = Curl::new(&kubectl) else { return };
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");

    let path = "/apis/samplecrd.k8s.io/v1/namespaces/default/networks";
    let list = curl.json(path);
    assert_eq!((&list["kind"], &list["items"]), (&"NetworkList".into(), &serde_json::json!([])));
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();

    let mut stream = curl.stream(&format!("{path}?watch=true&resourceVersion={version}"));
    kubectl.ok("apply -f manifests/example-network.yaml");
    kubectl.ok("label network example-network colour=green");
    kubectl.ok("delete network example-network");

    let mut version = version.parse::<u64>().unwrap();
    for (kind, colour) in [("ADDED", Value::Null), ("MODIFIED", "green".into()), ("DELETED", "green".into())] {
        let line = stream.line().unwrap_or_else(|| panic!("the stream ended before {kind}"));
        let event: Value = serde_json::from_str(&line).unwrap();
        let metadata = &event["object"]["metadata"];
        assert_eq!((&event["type"], &metadata["name"]), (&kind.into(), &"example-network".into()));
        assert_eq!(metadata["labels"]["colour"], colour, "{kind}");
        let this = metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        assert!(version < this, "{kind}: {this} follows {version}");
        version = this;
    }
}

#[test]
fn list_at_an_old_version_is_as_it_was() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--history", "1h", "--controllers=-*"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("create configmap first");
    let version = kubectl.json("get configmap first")["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    kubectl.ok("create configmap second");
    kubectl.ok("delete configmap first");
    let path = "/api/v1/namespaces/default/configmaps";
    let list = kubectl.ok(&format!("get --raw {path}?resourceVersionMatch=Exact&resourceVersion={version}"));
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!((names, &list["metadata"]["resourceVersion"]), (vec![&"first".into()], &version.into()));
    plane.stop();
}

#[test]
fn watch_ends_after_its_timeout() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let Some(curl) = Curl::new(&kubectl) else { return };
    let mut stream = curl.stream("/api/v1/namespaces?watch=true&timeoutSeconds=1");
    let mut seen = Vec::new();
    while let Some(line) = stream.line() {
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["type"], "ADDED");
        seen.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    assert!(stream.end().status.success());
}

#[test]
fn only_known_and_allowed_users_are_let_in() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let tokens = root().join("tests/walks/tokens.csv");
    let plane = Plane::server(home.path(), &["--token-auth-file", &tokens.to_string_lossy()]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let Some(curl) = Curl::new(&kubectl) else { return };
    for (who, expected) in [
        (As::Admin, 200),
        (As::Token("admin-token"), 200),
        (As::Token("alice-token"), 403),
        (As::Token("no-such-token"), 401),
        (As::Nobody, 401),
    ] {
        let (status, body) = curl.get(who, "/api/v1/secrets");
        assert_eq!(status, expected, "{who:?}: {body}");
    }
}

#[test]
fn health_endpoints_answer() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(kubectl.ok(&format!("get --raw {path}")), "ok", "{path}");
    }
    let verbose = kubectl.ok("get --raw /readyz?verbose");
    assert!(verbose.contains("[+]") && verbose.ends_with("readyz check passed"), "{verbose}");
}
