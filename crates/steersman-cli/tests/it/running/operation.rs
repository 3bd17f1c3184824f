//! The operation of a control plane: kubeconfig, access log, metrics, the loops of a server alone.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::curl::{As, Curl};
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;
use crate::support::{eventually, root};

/// The answer to `GET path` over plain HTTP.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_without_tls_is_told_so() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let answer = get(plane.listen(), "/readyz");
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"), "{answer}");
    // A silent client holds up no other.
    let _silent = TcpStream::connect(plane.listen()).unwrap();
    assert!(get(plane.listen(), "/version").contains("HTTPS server"));
    plane.stop();
}

#[test]
fn kubeconfig_is_yaml_also_in_place_of_one_in_json() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("kubeconfig"), "{\"kind\": \"Config\"}\n").unwrap();
    let plane = Plane::server(home.path(), &[]);
    let text = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    assert!(text.starts_with("apiVersion: v1\nkind: Config\nclusters:\n- name: steersman\n"), "{text}");
    // Merged in the usual way: both in $KUBECONFIG.
    let other = home.path().join("other");
    let contexts = "apiVersion: v1\nkind: Config\ncontexts:\n- name: other\n  context: {cluster: other, user: other}\n";
    std::fs::write(&other, contexts).unwrap();
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let mut merged = kubectl.command("config get-contexts -o name");
    let both = std::env::join_paths([plane.kubeconfig(), other]).unwrap();
    assert_eq!(Process::start(merged.env("KUBECONFIG", both)).end().stdout, "other\nsteersman");
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    plane.stop();
}

#[test]
fn a_namespace_ends_with_the_server_alone_unless_its_loop_is_left_out() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--controllers=-namespace"]);
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.ok("create namespace doomed");
    kubectl.ok("create configmap content --namespace doomed");
    kubectl.ok("delete namespace doomed --wait=false");
    assert_eq!(kubectl.json("get namespace doomed")["status"]["phase"], "Terminating");
    assert!(!runs(&plane, "namespace") && runs(&plane, "service-cidr"), "{}", plane.ready);
    plane.stop();

    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    assert!(runs(&plane, "namespace") && !runs(&plane, "network"), "{}", plane.ready);
    kubectl.ok("wait --for=delete namespace/doomed --timeout=60s");
    plane.stop();
}

/// Whether a control plane reported at its start that it runs a controller.
fn runs(plane: &Plane, controller: &str) -> bool {
    plane.ready["controllers"].as_array().unwrap().iter().any(|name| name == controller)
}

#[test]
fn controllers_of_a_control_plane_serve_their_metrics_and_health() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::up(home.path(), &["--metrics-address", "127.0.0.1:0"]);
    let address = plane.ready["metricsAddress"].as_str().unwrap().to_owned();
    assert!(get(&address, "/healthz").ends_with("\r\n\r\nok"));
    eventually("the namespace loop is ready", || {
        get(&address, "/readyz/namespace").ends_with("\r\n\r\nok").then_some(())
    });
    // Nobody uses Networks.
    eventually("all are ready without the definition of Networks", || {
        get(&address, "/readyz").ends_with("\r\n\r\nok").then_some(())
    });
    Kubectl::new(program, &plane.kubeconfig()).ok("apply -f manifests/crd/network-v1.yaml");
    eventually("the network controller is ready", || {
        get(&address, "/readyz/network").ends_with("\r\n\r\nok").then_some(())
    });
    let metrics = get(&address, "/metrics");
    for (controller, workers) in [("namespace-controller", 10), ("network-controller", 4)] {
        let line = format!("\ncontroller_runtime_max_concurrent_reconciles{{controller=\"{controller}\"}} {workers}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let ended =
        run(home.path(), ["up", "--listen", "127.0.0.1:0", "--data-dir", "other", "--metrics-address", &address]);
    assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
    assert!(ended.stderr.contains(&address) && ended.stderr.contains("--metrics-address"), "{ended:#?}");
    assert!(!home.path().join("other").exists());
    plane.stop();
    assert!(TcpStream::connect(&address).is_err(), "the port outlives the process");
}

#[test]
fn access_log_has_a_line_for_every_request() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let (log, tokens) = (home.path().join("access.log"), root().join("tests/walks/tokens.csv"));
    let (log_text, tokens_text) = (log.to_string_lossy(), tokens.to_string_lossy());
    let flags = ["--access-log", &log_text, "--token-auth-file", &tokens_text, "--controllers=namespace"];
    let plane = Plane::server(home.path(), &flags);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let Some(curl) = Curl::new(&kubectl) else { return };
    let (_, body) = curl.get(As::Token("admin-token"), "/api/v1/namespaces/default?a=b");
    curl.get(As::Nobody, "/api/v1/nodes");
    kubectl.ok("get configmaps --as somebody --as-group system:masters");
    let mut watch = curl.stream("/api/v1/namespaces?watch=true&timeoutSeconds=1");
    while watch.line().is_some() {}
    plane.stop();

    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |path: &str| {
        let found = lines.iter().find(|line| line["path"].as_str().is_some_and(|found| found.starts_with(path)));
        found.unwrap_or_else(|| panic!("no {path} in {text}"))
    };
    let known = of("/api/v1/namespaces/default?a=b");
    assert_eq!((&known["method"], &known["status"]), (&"GET".into(), &200.into()));
    assert_eq!((&known["user"], &known["sourceIP"]), (&"admin".into(), &"127.0.0.1".into()));
    assert_eq!(known["bytes"], body.len(), "{known}");
    assert_eq!(known["auditId"].as_str().unwrap().len(), 36);
    let refused = of("/api/v1/nodes");
    assert_eq!((&refused["status"], refused.get("user")), (&401.into(), None));
    let impersonated = of("/api/v1/namespaces/default/configmaps");
    assert_eq!(
        (&impersonated["user"], &impersonated["impersonatedUser"]),
        (&"kubernetes-admin".into(), &"somebody".into())
    );
    assert!(of("/api/v1/namespaces?watch=true&timeoutSeconds=1")["durationMs"].as_u64().unwrap() >= 1000);
    let is_loops = |line: &Value| line["user"] == "system:kube-controller-manager";
    assert!(lines.iter().any(is_loops), "no request of the namespace loop in {text}");
}

#[test]
fn audit_log_says_who_did_what_before_they_are_answered() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let (log, policy) = (home.path().join("audit.log"), home.path().join("policy.yaml"));
    let rules = "rules: [{level: RequestResponse, resources: [{resources: [configmaps]}], verbs: [create]}]";
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n")).unwrap();
    let (log_text, policy_text) = (log.to_string_lossy(), policy.to_string_lossy());
    let flags = ["--audit-log-path", &log_text, "--audit-policy-file", &policy_text, "--audit-log-mode", "blocking"];
    let plane = Plane::server(home.path(), &[&flags[..], &["--controllers=-*"]].concat());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("create configmap c --from-literal=a=b --as somebody --as-group system:masters");
    kubectl.ok("get configmaps");
    let text = std::fs::read_to_string(&log).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_test = |event: &&Value| event["objectRef"]["namespace"] == "default";
    let events: Vec<&Value> = events.iter().filter(of_test).collect();
    let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"], "{text}");
    let done = events[1];
    assert_eq!(
        (&done["user"]["username"], &done["impersonatedUser"]["username"]),
        (&"kubernetes-admin".into(), &"somebody".into())
    );
    assert_eq!((&done["sourceIPs"][0], &done["objectRef"]["name"]), (&"127.0.0.1".into(), &"c".into()));
    assert_eq!((&done["requestObject"]["data"]["a"], &done["responseStatus"]["code"]), (&"b".into(), &201.into()));
    assert!(done["responseObject"]["metadata"]["uid"].is_string(), "{done}");
    assert!(done["userAgent"].as_str().unwrap().starts_with("kubectl"), "{done}");
    plane.stop();
}

#[test]
fn a_controller_works_alone_on_a_simulated_cloud() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let mut command = steersman(home.path());
    command.args(["network", "--simulated", "--kubeconfig"]).arg(plane.kubeconfig());
    let controller = Process::start(&mut command);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.ok("apply -f manifests/example-network.yaml");
    kubectl.ok("wait --for=condition=Ready network/example-network --timeout=60s");
    kubectl.ok("delete network example-network --timeout=60s");
    controller.signal("TERM");
    assert_eq!(controller.end().status.code(), Some(0));
    plane.stop();
}
