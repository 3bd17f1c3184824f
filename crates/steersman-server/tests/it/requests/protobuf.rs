//! Answers in protobuf. The tests send them back to the server, which must read the same objects.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite, spec};
use crate::support::{Answer, CONFIGS, Http, TestServer, config, text};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Sends a request that prefers protobuf, as typed clients do.
async fn ask(http: &Http, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
    accepting(http, method, path, &format!("{PROTOBUF},application/json"), body).await
}

async fn accepting(http: &Http, method: Method, path: &str, accept: &str, body: impl Into<Bytes>) -> Answer {
    let request = Request::builder().method(method).uri(path).header("accept", accept).header("content-type", PROTOBUF);
    http.raw(request.body(Full::new(body.into())).unwrap()).await
}

#[track_caller]
fn protobuf(answer: &Answer) -> Bytes {
    assert_eq!(answer.header("content-type"), Some(PROTOBUF), "{}", String::from_utf8_lossy(&answer.bytes));
    assert!(answer.bytes.starts_with(b"k8s\0"));
    answer.bytes.clone()
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"a": "line\n\"quoted\""}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
            }],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

#[tokio::test]
async fn what_is_read_can_be_written_back_and_changes_nothing() {
    let test = TestServer::new().await;
    let http = test.http();
    let created = http.post(PODS, &pod("a")).await.ok();
    let read = protobuf(&ask(&http, Method::GET, &format!("{PODS}/a"), "").await);
    assert!(read.len() < created.to_string().len());
    // An update that changes nothing is not a new version.
    let updated = ask(&http, Method::PUT, &format!("{PODS}/a"), read.clone()).await;
    assert_eq!(updated.code, 200);
    assert_eq!(protobuf(&updated), read);
    assert_eq!(http.get(&format!("{PODS}/a")).await.ok(), created);
}

#[tokio::test]
async fn objects_of_many_kinds_can_be_written_back() {
    let test = TestServer::new().await;
    let http = test.http();
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod("a")["spec"]});
    let selector = json!({"matchLabels": labels});
    let mut template_for_ever = template.clone();
    template_for_ever["spec"]["restartPolicy"] = json!("Always");
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    for (path, object) in [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "spec": {"selector": selector, "template": template, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}},
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "spec": {"selector": selector, "template": template_for_ever, "serviceName": "s", "volumeClaimTemplates": [claim]},
            }),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]},
            }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({
                "apiVersion": "v1", "kind": "Secret", "data": {"a": "AAEC"}, "type": "Opaque",
            }),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": "2026-01-01T00:00:00.000001Z"},
            }),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            }),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}, "ingress": [{}]},
            }),
        ),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            json!({
                "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "maxReplicas": 3},
            }),
        ),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "a", "labels": labels});
        let created = http.post(path, &object).await.ok();
        let path = format!("{path}/a");
        let read = protobuf(&ask(&http, Method::GET, &path, "").await);
        let updated = ask(&http, Method::PUT, &path, read).await;
        assert_eq!(updated.code, 200, "{path}: {}", String::from_utf8_lossy(&updated.bytes));
        assert_eq!(http.get(&path).await.ok(), created, "{path}");
    }
}

#[tokio::test]
async fn failures_and_deletions_are_answered_in_protobuf() {
    let test = TestServer::new().await;
    let http = test.http();
    let failure = ask(&http, Method::GET, &format!("{CONFIGS}/none"), "").await;
    assert_eq!(failure.code, 404);
    let message = String::from_utf8_lossy(&protobuf(&failure)).into_owned();
    assert!(message.contains("configmaps \"none\" not found") && message.contains("NotFound"), "{message}");
    http.post(CONFIGS, &config("c")).await.ok();
    let deleted = ask(&http, Method::DELETE, &format!("{CONFIGS}/c"), "").await;
    assert_eq!(deleted.code, 200);
    assert!(String::from_utf8_lossy(&protobuf(&deleted)).contains("Success"));
}

#[tokio::test]
async fn a_watch_sends_frames_with_their_length() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("a")).await.ok();
    let path = format!("{CONFIGS}?sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan");
    let request = Request::get(format!("{path}&watch=true&timeoutSeconds=1")).header("accept", PROTOBUF);
    let answer = http.raw(request.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(answer.header("content-type"), Some("application/vnd.kubernetes.protobuf;stream=watch"));
    let mut rest = &answer.bytes[..];
    let mut events = Vec::new();
    while let Some((length, behind)) = rest.split_at_checked(4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(length);
        // The first field is the type, the second the object, as a document of its own.
        let word = String::from_utf8(frame[2..2 + usize::from(frame[1])].to_vec()).unwrap();
        let document = frame.windows(4).position(|bytes| bytes == b"k8s\0").unwrap();
        events.push((word, Bytes::copy_from_slice(&frame[document..])));
        rest = behind;
    }
    assert!(rest.is_empty());
    let words: Vec<&str> = events.iter().map(|(word, _)| &**word).collect();
    assert_eq!(words, ["ADDED", "BOOKMARK"]);
    assert_eq!(events[0].1, protobuf(&ask(&http, Method::GET, &format!("{CONFIGS}/a"), "").await));
    assert!(String::from_utf8_lossy(&events[1].1).contains("k8s.io/initial-events-end"));
}

#[tokio::test]
async fn a_watch_from_a_version_that_is_gone_says_so_in_protobuf() {
    let test = TestServer::new().await;
    let request = Request::get(format!("{CONFIGS}?watch=true&resourceVersion=999999999")).header("accept", PROTOBUF);
    let answer = test.http().raw(request.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(answer.code, 200);
    let frame = String::from_utf8_lossy(&answer.bytes).into_owned();
    assert!(frame.contains("ERROR") && frame.contains("k8s\0") && frame.contains("Expired"), "{frame:?}");
}

#[tokio::test]
async fn tables_are_json_and_metadata_are_protobuf() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("a")).await.ok();
    let table = "as=Table;g=meta.k8s.io;v=v1";
    let accept = format!("{PROTOBUF};{table},application/json;{table}");
    assert_eq!(accepting(&http, Method::GET, CONFIGS, &accept, "").await.ok()["kind"], "Table");
    for (path, kind) in
        [(CONFIGS.to_owned(), "PartialObjectMetadataList"), (format!("{CONFIGS}/a"), "PartialObjectMetadata")]
    {
        let accept = format!("{PROTOBUF};as={kind};g=meta.k8s.io;v=v1");
        let message = protobuf(&accepting(&http, Method::GET, &path, &accept, "").await);
        let message = String::from_utf8_lossy(&message).into_owned();
        assert!(message.contains(kind) && message.contains("meta.k8s.io/v1"), "{message}");
    }
}

#[tokio::test]
async fn discovery_is_to_be_had_in_protobuf() {
    let test = TestServer::new().await;
    for (path, kind) in [("/api", "APIVersions"), ("/apis", "APIGroupList"), ("/apis/apps/v1", "APIResourceList")] {
        let answer = ask(&test.http(), Method::GET, path, "").await;
        assert!(String::from_utf8_lossy(&protobuf(&answer)).contains(kind), "{path}");
    }
    // An answer that is no kind has no protobuf form.
    let paths = ask(&test.http(), Method::GET, "/", "").await;
    assert_eq!(paths.header("content-type"), Some("application/json"));
    assert!(text(&paths.ok(), "/paths/0").starts_with('/'));
}

#[tokio::test]
async fn custom_resources_have_no_protobuf_but_their_metadata_do() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    http.post(KITES, &kite("k", 1)).await.ok();
    let path = format!("{KITES}/k");
    assert_eq!(ask(&http, Method::GET, &path, "").await.header("content-type"), Some("application/json"));
    let refused = accepting(&http, Method::GET, &path, PROTOBUF, "").await;
    assert_eq!(refused.code, 406);
    assert!(String::from_utf8_lossy(&protobuf(&refused)).contains("NotAcceptable"));
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let metadata = protobuf(&accepting(&http, Method::GET, &path, &metadata, "").await);
    assert!(String::from_utf8_lossy(&metadata).contains("PartialObjectMetadata"));
}
