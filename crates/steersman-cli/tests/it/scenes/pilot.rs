//! `steersman mesh pilot` with stock kubectl: a route is told what becomes of it, and the tables name it.

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{self, Plane};
use crate::support::process::Process;
use serde_json::Value;

const OBJECTS: &str = r#"apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: split}
spec:
  parentRefs: [{group: "", kind: Service, name: web}]
  rules: [{backendRefs: [{name: web, port: 80, weight: 9}, {name: gone, port: 80}]}]
"#;

#[test]
fn a_route_is_told_what_becomes_of_it_and_printed() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::up(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply --server-side -f manifests/mesh/gateway-api");
    kubectl.ok("wait --for=condition=Established crd/httproutes.gateway.networking.k8s.io --timeout=60s");
    kubectl.apply(OBJECTS);

    let mut command = plane::steersman(home.path());
    command.args(["mesh", "pilot", "--listen", "127.0.0.1:0", "--debug-address", "127.0.0.1:0", "--leader-elect"]);
    let mut pilot = Process::start(command.arg("--kubeconfig").arg(plane.kubeconfig()));
    assert!(pilot.line().unwrap().starts_with("proxies: 127.0.0.1:"));
    let line = pilot.line().unwrap();
    let state = line.strip_prefix("state: http://").unwrap().strip_suffix("/debug/mesh").unwrap().to_owned();

    let problem = "BackendNotFound: Service default/gone does not exist";
    let table = eventually("the route is in the table", || {
        let printed = plane::run(home.path(), ["mesh", "routes", "--pilot", &state]);
        printed.stdout.contains("httproute/split").then_some(printed.stdout)
    });
    let row: Vec<&str> =
        table.lines().nth(1).unwrap().split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
    assert_eq!(row, ["default", "httproute/split", "default/web", "80", "all", "0/0", problem]);
    let printed = plane::run(home.path(), ["mesh", "proxies", "--output", "json", "--pilot", &state]);
    assert_eq!(printed.stdout.trim(), "[]");

    let conditions = eventually("the route has a status", || {
        let route: Value = kubectl.json("get httproute split");
        let conditions = route["status"]["parents"][0]["conditions"].as_array()?.clone();
        Some(conditions.iter().map(|one| format!("{}={}", one["type"], one["status"])).collect::<Vec<_>>())
    });
    let wanted =
        ["\"Accepted\"=\"True\"", "\"ResolvedRefs\"=\"False\"", "\"mesh.steersman.dev/Programmed\"=\"Unknown\""];
    assert_eq!(conditions, wanted);

    pilot.signal("TERM");
    let ended = pilot.end();
    assert_eq!(ended.status.code(), Some(0), "after SIGTERM: {ended:#?}");
    plane.stop();
}

#[test]
fn tokens_do_not_travel_without_tls() {
    let home = tempfile::tempdir().unwrap();
    let refused = plane::run(home.path(), ["mesh", "pilot", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("tokens of Envoys would travel to 0.0.0.0:0 without TLS"), "{refused:#?}");
    let trusting = ["mesh", "pilot", "--listen", "0.0.0.0:0", "--allow-plaintext", "--trust-node-ids"];
    let refused = plane::run(home.path(), trusting);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("whoever reaches 0.0.0.0:0 could say to be any Pod"), "{refused:#?}");
    let refused = plane::run(home.path(), ["mesh", "routes", "--pilot", "127.0.0.1:1"]);
    assert!(refused.stderr.contains("the pilot at 127.0.0.1:1 cannot be asked"), "{refused:#?}");
}
