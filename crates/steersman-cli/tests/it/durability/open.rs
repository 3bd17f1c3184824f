//! `steersman open`: dumps that real tools have made, asked with stock kubectl.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::durability::etcd::Etcd;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;

/// A dump that is shown.
struct Opened {
    process: Process,
    said: Value,
}

impl Opened {
    #[track_caller]
    fn start(home: &Path, file: &Path, extra: &[&str]) -> Opened {
        let mut command = steersman(home);
        command.env("TMPDIR", home).arg("open").arg(file).args(["--output", "json"]).args(extra);
        let mut process = Process::start(&mut command);
        let Some(line) = process.line() else { panic!("it ended before it was ready: {:#?}", process.end()) };
        Opened { process, said: serde_json::from_str(&line).unwrap() }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.said["kubeconfig"].as_str().unwrap().into()
    }

    fn stop(self) {
        self.process.signal("TERM");
        let ended = self.process.end();
        assert!(ended.status.success(), "{ended:#?}");
    }
}

/// Directories that were left behind.
fn left(home: &Path) -> usize {
    let names = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("steersman-open-")).count()
}

#[test]
fn a_snapshot_of_a_real_etcd_is_what_its_server_gave() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let plane_home = home.path().join("a");
    std::fs::create_dir(&plane_home).unwrap();
    let plane = Plane::server(&plane_home, &["--etcd-servers", &etcd.url]);
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    kubectl.ok("wait --for=condition=Established crd/networks.samplecrd.k8s.io");
    kubectl.ok("apply -f manifests/example-network.yaml");
    kubectl.ok("create secret generic login --from-literal=password=hunter2");
    kubectl.ok("create deployment web --image nginx");
    kubectl.ok("create configmap gone --from-literal=a=1");
    let gone = kubectl.json("get configmap gone");
    kubectl.ok("delete configmap gone");
    let kinds = ["deployments", "networks", "secrets", "namespaces", "clusterroles", "crd", "apiservices", "services"];
    let before: Vec<Value> = kinds.map(|kind| kubectl.json(&format!("get {kind} -A"))["items"].clone()).into();
    plane.stop();
    let database = etcd.database(home.path());
    let snapshot = home.path().join("snapshot");
    // As `etcdctl snapshot save` writes it.
    std::fs::write(&snapshot, [&*database, &*Sha256::digest(&database)].concat()).unwrap();

    let opened = Opened::start(home.path(), &snapshot, &[]);
    assert_eq!((&opened.said["format"], &opened.said["leftOut"]), (&json!("a snapshot of etcd"), &json!([])));
    let kubectl = Kubectl::new(program.clone(), &opened.kubeconfig());
    for (kind, before) in kinds.iter().zip(before) {
        assert_eq!(kubectl.json(&format!("get {kind} -A"))["items"], before, "{kind}");
    }
    let refusal = kubectl.fails("delete deployment web");
    let want = format!(
        "Error from server (Forbidden): deployments.apps \"web\" is forbidden: {} is a snapshot of etcd, opened to be read: nothing can be changed in it, or run",
        snapshot.display()
    );
    assert_eq!(refusal.trim(), want);
    assert!(kubectl.fails("get configmap gone").contains("NotFound"));
    assert!(kubectl.ok("describe network example-network").contains("Name:         example-network"));
    opened.stop();
    assert_eq!(left(home.path()), 0);

    let at = gone["metadata"]["resourceVersion"].as_str().unwrap();
    let opened = Opened::start(home.path(), &snapshot, &["--at", at, "--redact"]);
    let kubectl = Kubectl::new(program, &opened.kubeconfig());
    assert_eq!(kubectl.json("get configmap gone"), gone);
    assert_eq!(kubectl.ok("get secret login -o jsonpath={.data.password}"), "cmVkYWN0ZWQ=");
    opened.stop();
}

fn must_gather(root: &Path) {
    let pod = |name: &str, node: Option<&str>| {
        let mut pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "shop", "resourceVersion": "12", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}, {"name": "proxy", "image": "envoy"}]}, "status": {"phase": "Running"},
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        pod
    };
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "items": [pod("web-1", Some("n-1"))]}).to_string();
    let route = "apiVersion: route.openshift.io/v1\nkind: Route\nmetadata:\n  name: front\n  namespace: shop\n  resourceVersion: \"9\"\nspec:\n  host: a.example.com\n";
    for (name, text) in [
        ("namespaces/shop/core/pods.yaml", &*pods),
        ("namespaces/shop/route.openshift.io/routes/front.yaml", route),
        ("namespaces/shop/pods/web-1/web/web/logs/current.log", "2026-01-01T00:00:00Z one\n2026-01-01T00:00:01Z two\n"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[test]
fn a_must_gather_has_tables_selectors_watches_and_logs() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let root = home.path().join("must-gather.local.1");
    must_gather(&root);
    let opened = Opened::start(home.path(), &root, &["--data-dir", "kept"]);
    assert_eq!(opened.said["madeUp"], json!(["routes.route.openshift.io"]));
    assert_eq!(opened.kubeconfig(), home.path().canonicalize().unwrap().join("kept/kubeconfig"));
    let kubectl = Kubectl::new(program, &opened.kubeconfig());
    let table = kubectl.ok("get pods -A -l app=web --field-selector status.phase=Running");
    assert!(table.contains("shop        web-1   0/2     Running"), "{table}");
    assert_eq!(kubectl.ok("get routes -n shop -o jsonpath={.items[*].spec.host}"), "a.example.com");
    assert_eq!(kubectl.ok("get pods -n shop -o name --watch --request-timeout 2s").trim(), "pod/web-1");
    assert!(kubectl.ok("explain pod.spec.containers").contains("FIELDS:"));
    assert!(kubectl.ok("describe pod web-1 -n shop").contains("Image:        nginx"));
    assert_eq!(kubectl.ok("logs web-1 -n shop -c web"), "one\ntwo");
    assert_eq!(kubectl.ok("logs web-1 -n shop -c web --tail 1 --timestamps"), "2026-01-01T00:00:01Z two");
    let missing = kubectl.fails("logs web-1 -n shop -c proxy");
    assert!(missing.contains("the dump has no log of container \"proxy\" of pod shop/web-1"), "{missing}");
    for refused in ["exec web-1 -n shop -c web -- ls", "label pod web-1 -n shop a=b", "create namespace x"] {
        let said = kubectl.fails(refused);
        assert!(said.contains("opened to be read: nothing can be changed in it, or run"), "{said}");
    }
    opened.stop();
    assert!(home.path().join("kept/kubeconfig").exists());
    assert!(!home.path().join("kept/store").exists(), "objects are in memory alone");
}

#[test]
fn what_cannot_be_opened_is_said_in_one_sentence_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    for (bytes, want) in [
        (&b"PK\x03\x04"[..], "is nothing that can be opened"),
        (&b""[..], "is empty"),
        (&b"{\"kind\": \"Pod\""[..], "its JSON is damaged or cut off"),
        (&[0x1f, 0x8b, 8, 0, 1][..], "is damaged or ends too early"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let ended = run(home.path(), ["open".as_ref(), file.as_os_str()]);
        assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
        assert!(ended.stderr.starts_with("steersman: ") && ended.stderr.contains(want), "{ended:#?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{ended:#?}");
    }
}
