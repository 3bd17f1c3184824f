//! The formats: the same objects and logs out of each.

use crate::support::{Dumps, gzip, keys, object, stored, tar};
use serde_json::json;
use steersman_archive::{Container, LogOptions, Options, Redaction, Run};
use steersman_machinery::{Draft, Revision};
use steersman_storage::backup::{Encoder, Header};
use steersman_storage::kv::Entry;

fn pod() -> serde_json::Value {
    let mut pod = object("v1", "Pod", "default", "web-1", 41);
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    pod["metadata"]["managedFields"] =
        json!([{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]);
    pod["spec"] = json!({"containers": [{"name": "web", "image": "nginx"}], "aFieldOfALaterRelease": {"x": 1}});
    pod["status"] = json!({"phase": "Failed"});
    pod
}

fn log(archive: &steersman_archive::Archive, container: &str) -> String {
    let container = Container::new("default", "web-1", container, Run::Current);
    String::from_utf8(archive.logs.read(&container, &LogOptions::new()).unwrap()).unwrap()
}

#[test]
fn the_output_of_kubectl_get_has_its_objects_unchanged() {
    let dumps = Dumps::new();
    let list = json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "57"},
        "items": [pod(), object("v1", "Node", "", "n-1", 9)],
    });
    let mut want = pod();
    want["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    for bytes in [list.to_string().into_bytes(), gzip(list.to_string().as_bytes())] {
        let archive = dumps.open(&dumps.file(bytes)).unwrap();
        assert_eq!(archive.format, "the output of kubectl get");
        assert_eq!(keys(&archive), ["/nodes/n-1 9", "/pods/default/web-1 41"]);
        assert_eq!(stored(&archive, "/pods/default/web-1"), want, "nothing is defaulted, dropped or added");
        assert_eq!(archive.revision, Revision(57));
        assert_eq!(archive.left_out.n_objects(), 0);
    }
}

#[test]
fn yaml_is_read_like_json() {
    let dumps = Dumps::new();
    let text = "apiVersion: v1\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata:\n    name: web\n    namespace: default\n    resourceVersion: \"12\"\n    creationTimestamp: \"2026-01-01T00:00:00Z\"\n  spec:\n    replicas: 3\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c, namespace: default, resourceVersion: \"13\"}\n  data:\n    a: \"yes\"\n    b: |\n      x: y\n      ---\n      z\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
    let archive = dumps.open(&dumps.file(text)).unwrap();
    assert_eq!(keys(&archive), ["/configmaps/default/c 13", "apps/deployments/default/web 12"]);
    let config = stored(&archive, "/configmaps/default/c");
    assert_eq!(config["data"], json!({"a": "yes", "b": "x: y\n---\nz\n"}));
    assert_eq!(stored(&archive, "apps/deployments/default/web")["spec"], json!({"replicas": 3}));
}

#[test]
fn a_must_gather_is_read_from_a_directory_and_from_a_tar() {
    let dumps = Dumps::new();
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "items": [pod()]}).to_string();
    let (one, node) = (pod().to_string(), object("v1", "Node", "", "n-1", 9).to_string());
    let version = object("config.openshift.io/v1", "ClusterVersion", "", "version", 30).to_string();
    let files = [
        ("must-gather.1/image/cluster-scoped-resources/core/nodes/n-1.yaml", &*node),
        ("must-gather.1/image/cluster-scoped-resources/config.openshift.io/clusterversions/version.yaml", &*version),
        ("must-gather.1/image/namespaces/default/core/pods.yaml", &*pods),
        ("must-gather.1/image/namespaces/default/pods/web-1/web-1.yaml", &*one),
        ("must-gather.1/image/namespaces/default/pods/web-1/web/web/logs/current.log", "2026-01-01T00:00:00Z ready\n"),
        ("must-gather.1/event-filter.html", "<html>"),
        ("must-gather.1/timestamp", "2026"),
    ];
    let whole = tar(&files);
    for path in [dumps.directory(&files), dumps.file(gzip(&whole)), dumps.file(&whole)] {
        let archive = dumps.open(&path).unwrap();
        assert_eq!(archive.format, "a must-gather");
        assert_eq!(
            keys(&archive),
            [
                "/nodes/n-1 9",
                "/pods/default/web-1 41",
                "apiextensions.k8s.io/customresourcedefinitions/clusterversions.config.openshift.io 41",
                "config.openshift.io/clusterversions/version 30",
            ]
        );
        assert_eq!(archive.made_up, ["clusterversions.config.openshift.io"]);
        assert_eq!(log(&archive, "web"), "ready\n");
        assert_eq!(archive.notes, [] as [&str; 0]);
    }
}

#[test]
fn a_backup_of_velero_has_each_object_once() {
    let dumps = Dumps::new();
    let (pod, widget) = (pod().to_string(), object("example.com/v1", "Gizmo", "default", "a", 8).to_string());
    let events = object("events.k8s.io/v1", "Event", "default", "e", 7).to_string();
    let core = object("v1", "Event", "default", "e", 7).to_string();
    let files = [
        ("metadata/version", "1"),
        ("resources/pods/namespaces/default/web-1.json", &*pod),
        ("resources/pods/v1-preferredversion/namespaces/default/web-1.json", &*pod),
        // The plural is nothing that could be guessed.
        ("resources/gizmata.example.com/namespaces/default/a.json", &*widget),
        ("resources/events.events.k8s.io/namespaces/default/e.json", &*events),
        ("resources/events/namespaces/default/e.json", &*core),
    ];
    let archive = dumps.open(&dumps.file(gzip(&tar(&files)))).unwrap();
    assert_eq!(archive.format, "a backup of Velero");
    assert_eq!(
        keys(&archive),
        [
            "/events/default/e 7",
            "/pods/default/web-1 41",
            "apiextensions.k8s.io/customresourcedefinitions/gizmata.example.com 41",
            "example.com/gizmata/default/a 8",
        ]
    );
}

#[test]
fn a_support_bundle_has_objects_that_do_not_say_what_they_are() {
    let dumps = Dumps::new();
    let mut bare = pod();
    bare.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
    let pods = json!([bare]).to_string();
    let nodes = json!({"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "n-1", "resourceVersion": "9"}}]});
    let widgets = "- apiVersion: example.com/v1\n  kind: Widget\n  metadata:\n    name: a\n    namespace: default\n";
    let nodes = nodes.to_string();
    let files = [
        ("support-bundle-1/version.yaml", "apiVersion: troubleshoot.sh/v1beta2\nkind: SupportBundle\n"),
        ("support-bundle-1/cluster-resources/pods/default.json", &*pods),
        ("support-bundle-1/cluster-resources/nodes.json", &*nodes),
        ("support-bundle-1/cluster-resources/custom-resources/widgets.example.com/default.yaml", widgets),
        (
            "support-bundle-1/cluster-resources/pods/logs/default/web-1/web.log",
            "2026-01-01T00:00:00Z is the program's own\n",
        ),
        ("support-bundle-1/cluster-resources/auth-cani-list/default.json", r#"{"status":{"resourceRules":[]}}"#),
    ];
    let archive = dumps.open(&dumps.file(gzip(&tar(&files)))).unwrap();
    assert_eq!(archive.format, "a support bundle");
    assert_eq!(
        keys(&archive),
        [
            "/nodes/n-1 9",
            "/pods/default/web-1 41",
            "apiextensions.k8s.io/customresourcedefinitions/widgets.example.com 41",
            "example.com/widgets/default/a 41",
        ]
    );
    assert_eq!(log(&archive, "web"), "2026-01-01T00:00:00Z is the program's own\n");
}

#[test]
fn a_dump_of_cluster_info_has_logs_with_marks() {
    let dumps = Dumps::new();
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "items": [pod()]}).to_string();
    let mark = |word: &str| format!("==== {word} logs for container web of pod default/web-1 ====\n");
    let text = format!("{}ready\n{}", mark("START"), mark("END"));
    let archive = dumps.open(&dumps.directory(&[
        ("nodes.json", r#"{"kind":"NodeList","apiVersion":"v1","items":[]}"#),
        ("default/pods.json", &pods),
        ("default/web-1/logs.txt", &text),
    ]));
    let archive = archive.unwrap();
    assert_eq!(archive.format, "the directory of kubectl cluster-info dump");
    assert_eq!(keys(&archive), ["/pods/default/web-1 41"]);
    assert_eq!(log(&archive, "web"), "ready\n");
}

#[test]
fn a_backup_of_steersman_has_what_it_was_made_of() {
    let dumps = Dumps::new();
    let value = |object: serde_json::Value| Draft::read(object.to_string().into()).unwrap().encode();
    let mut out = Vec::new();
    let mut encoder = Encoder::begin(&Header::new("embedded", Revision(99), None), &mut out);
    for (key, revision, object) in [
        ("/configmaps/default/c", 5, object("v1", "ConfigMap", "default", "c", 0)),
        ("steersman/serviceaccountkeys/k", 6, object("v1", "Key", "", "k", 0)),
        ("/masterleases/10.0.0.1", 7, object("v1", "Endpoints", "", "x", 0)),
    ] {
        encoder.entry(&Entry { key: key.into(), revision: Revision(revision), value: value(object) }, &mut out);
    }
    encoder.end(&mut out);
    let archive = dumps.open(&dumps.file(&out)).unwrap();
    assert_eq!((archive.format, archive.revision), ("a backup of Steersman", Revision(99)));
    assert_eq!(keys(&archive), ["/configmaps/default/c 5"], "what a server keeps for itself is not shown");
    let at = out.len() - 100;
    out[at] ^= 1;
    let refusal = dumps.refusal(&dumps.file(&out));
    assert!(refusal.starts_with("\"DIR/dump\" is damaged: "), "{refusal}");
}

#[test]
fn secrets_lose_their_values_where_that_is_asked_for() {
    let dumps = Dumps::new();
    let mut secret = object("v1", "Secret", "default", "s", 3);
    secret["data"] = json!({"password": "aHVudGVyMg=="});
    let path = dumps.file(secret.to_string());
    let of = |redaction| {
        let mut options = Options::default();
        options.redaction = redaction;
        stored(&dumps.open_with(&path, &options).unwrap(), "/secrets/default/s")["data"]["password"].clone()
    };
    assert_eq!((of(Redaction::Keep), of(Redaction::Redact)), (json!("aHVudGVyMg=="), json!("cmVkYWN0ZWQ=")));
}

#[test]
fn only_snapshots_of_etcd_have_other_revisions() {
    let dumps = Dumps::new();
    let mut options = Options::default();
    options.at = Some(Revision(3));
    let refusal = dumps.refusal_with(&dumps.file(pod().to_string()), &options);
    assert_eq!(refusal, "\"DIR/dump\" is the output of kubectl get, which has one state only: leave out --at 3");
}
