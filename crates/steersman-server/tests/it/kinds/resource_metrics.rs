//! The usage of nodes and Pods, which the embedder provides.

use crate::support::{Http, TestServer, names, options, text};
use http::Request;
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman_server::authz::Authorization;
use steersman_server::{NodeUsage, Options, PodUsage, ResourceMetrics, Usage, builtin};
use steersman_storage::{Memory, Store};

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";

/// Reports the usage of the node `n`, and of all Pods but `idle`.
#[derive(Debug)]
struct Meter;

impl ResourceMetrics for Meter {
    fn of_node(&self, name: &str, _: Timestamp) -> Option<NodeUsage> {
        let usage = Usage { cpu_nanos: 1_500_000_001, memory_bytes: 3 << 30 };
        (name == "n").then_some(NodeUsage { window: Duration::from_secs(15), usage })
    }

    fn of_pod(&self, namespace: &str, name: &str, _: Timestamp) -> Option<PodUsage> {
        assert!(!namespace.is_empty());
        let usage = |cpu_millis: u64, memory_kib: u64| Usage {
            cpu_nanos: cpu_millis * 1_000_000,
            memory_bytes: memory_kib << 10,
        };
        let containers = vec![("c".to_owned(), usage(250, 1024)), ("d".to_owned(), usage(1750, 2047))];
        (name != "idle").then_some(PodUsage { window: Duration::from_secs(12), containers })
    }
}

fn now() -> Timestamp {
    "2026-03-01T00:00:30.7Z".parse().unwrap()
}

async fn serve(store: &Store, config: &str) -> TestServer {
    let runtime_config = builtin::runtime_config(config.split(',')).unwrap();
    let resource_metrics: Option<Arc<dyn ResourceMetrics>> = Some(Arc::new(Meter));
    let base = options(store, Authorization::default());
    TestServer::of(store.clone(), Options { runtime_config, resource_metrics, clock: now, ..base }).await
}

async fn store() -> Store {
    Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap()
}

/// A server with the nodes `m` and `n`, the Pods `a`, `b` and `idle` in the namespace default, and `far` in
/// kube-system.
async fn plane_with_metrics() -> TestServer {
    let test = serve(&store().await, "").await;
    let http = test.http();
    for name in ["m", "n"] {
        let node = json!({"metadata": {"name": name, "labels": {"is": name}}});
        http.post("/api/v1/nodes", &node).await.ok();
    }
    let pods = [("default", "a", "x"), ("default", "b", "y"), ("default", "idle", "x"), ("kube-system", "far", "x")];
    for (namespace, name, app) in pods {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec});
        http.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await.ok();
    }
    test
}

async fn found(http: &Http, path: &str) -> Vec<String> {
    names(&http.get(path).await.ok())
}

#[tokio::test]
async fn discovery_and_openapi_have_the_group_where_somebody_knows() {
    let (without, with) = (TestServer::new().await, plane_with_metrics().await);
    let (none, http) = (without.http(), with.http());
    for path in ["/apis/metrics.k8s.io", GROUP, "/openapi/v3/apis/metrics.k8s.io/v1beta1", SERVICE] {
        assert_eq!(none.get(path).await.code, 404, "{path}");
        assert_eq!(http.get(path).await.code, 200, "{path}");
    }
    let groups = |answer: Value| -> Vec<String> {
        answer["groups"].as_array().unwrap().iter().map(|group| text(group, "/name").to_owned()).collect()
    };
    let mut before = groups(none.get("/apis").await.ok());
    before.push("metrics.k8s.io".to_owned());
    assert_eq!(groups(http.get("/apis").await.ok()), before);
    assert_eq!(
        http.get(GROUP).await.ok(),
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
            {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
            {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]},
        ]})
    );
    let service = http.get(SERVICE).await.ok();
    let spec =
        json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100});
    assert_eq!((&service["spec"], text(&service, "/status/conditions/0/reason")), (&spec, "Local"));
    let document = http.get("/openapi/v3/apis/metrics.k8s.io/v1beta1").await.ok();
    let schemas = &document["components"]["schemas"];
    let pod = &schemas["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"];
    assert_eq!(pod["required"], json!(["containers", "timestamp", "window"]));
    assert_eq!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Duration"]["type"], "string");
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let test = serve(&store().await, "metrics.k8s.io/v1beta1=false").await;
    let http = test.http();
    for path in [GROUP, "/apis/metrics.k8s.io/v1beta1/nodes", SERVICE] {
        assert_eq!(http.get(path).await.code, 404, "{path}");
    }
}

#[tokio::test]
async fn objects_look_as_those_of_metrics_server() {
    let test = plane_with_metrics().await;
    let http = test.http();
    assert_eq!(
        http.get(&format!("{PODS}/a")).await.ok(),
        json!({
            "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "a", "namespace": "default", "creationTimestamp": "2026-03-01T00:00:30Z", "labels": {"app": "x"}},
            "timestamp": "2026-03-01T00:00:30Z", "window": "12s",
            "containers": [
                {"name": "c", "usage": {"cpu": "250m", "memory": "1Mi"}},
                {"name": "d", "usage": {"cpu": "1750m", "memory": "2047Ki"}},
            ],
        })
    );
    let node = json!({
        "metadata": {"name": "n", "creationTimestamp": "2026-03-01T00:00:30Z", "labels": {"is": "n"}},
        "timestamp": "2026-03-01T00:00:30Z", "window": "15s", "usage": {"cpu": "1500000001n", "memory": "3Gi"},
    });
    assert_eq!(
        http.get(&format!("{GROUP}/nodes")).await.ok(),
        json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [node]})
    );
}

#[tokio::test]
async fn lists_are_narrowed_by_namespace_labels_and_name() {
    let test = plane_with_metrics().await;
    let http = test.http();
    for (path, want) in [
        (PODS.to_owned(), &["a", "b"][..]),
        (format!("{GROUP}/pods"), &["a", "b", "far"]),
        (format!("{GROUP}/pods?labelSelector=app%3Dx"), &["a", "far"]),
        (format!("{PODS}?labelSelector=app%20notin%20(x)"), &["b"]),
        (format!("{PODS}?fieldSelector=metadata.name%3Db"), &["b"]),
        (format!("{GROUP}/pods?fieldSelector=metadata.namespace%3Dkube-system"), &["far"]),
        (format!("{PODS}?limit=1"), &["a", "b"]),
        (format!("{GROUP}/namespaces/none/pods"), &[]),
        (format!("{GROUP}/nodes?labelSelector=is%3Dm"), &[]),
        (format!("{GROUP}/nodes?labelSelector=is"), &["n"]),
    ] {
        assert_eq!(found(&http, &path).await, want, "{path}");
    }
    let refused = http.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn")).await;
    assert_eq!(refused.code, 400, "{refused:?}");
}

#[tokio::test]
async fn what_is_not_known_is_not_found_under_the_name_of_its_kind() {
    let test = plane_with_metrics().await;
    let http = test.http();
    for (path, message) in [
        (format!("{PODS}/none"), "pods \"none\" not found"),
        (format!("{PODS}/idle"), "podmetrics.metrics.k8s.io \"default/idle\" not found"),
        (format!("{GROUP}/nodes/none"), "nodes \"none\" not found"),
        (format!("{GROUP}/nodes/m"), "nodemetrics.metrics.k8s.io \"m\" not found"),
        (format!("{PODS}/a/status"), "the server could not find the requested resource"),
    ] {
        let answer = http.get(&path).await;
        assert_eq!((answer.code, text(&answer.json(), "/message")), (404, message), "{path}");
    }
}

#[tokio::test]
async fn nothing_can_be_written_or_watched() {
    let test = plane_with_metrics().await;
    let http = test.http();
    assert_eq!(http.delete(&format!("{PODS}/a")).await.code, 405);
    assert_eq!(http.post(PODS, &json!({"metadata": {"name": "x"}})).await.code, 405);
    assert_eq!(http.merge(&format!("{GROUP}/nodes/n"), &json!({})).await.code, 405);
    assert_eq!(http.get(&format!("{PODS}?watch=1")).await.code, 405);
}

async fn table(http: &Http, path: &str) -> Value {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = Request::get(path).header("accept", accept).body(Full::<bytes::Bytes>::default()).unwrap();
    http.raw(request).await.ok()
}

#[tokio::test]
async fn tables_have_the_sums_and_the_window() {
    let test = plane_with_metrics().await;
    let http = test.http();
    let cells = |table: &Value| -> Vec<Value> {
        table["rows"].as_array().unwrap().iter().map(|row| row["cells"].clone()).collect()
    };
    let pods = table(&http, PODS).await;
    let columns = pods["columnDefinitions"].as_array().unwrap().iter();
    assert_eq!(columns.map(|column| text(column, "/name")).collect::<Vec<_>>(), ["Name", "cpu", "memory", "Window"]);
    assert_eq!(cells(&pods), [json!(["a", "2", "3071Ki", "12s"]), json!(["b", "2", "3071Ki", "12s"])]);
    assert_eq!(pods["rows"][0]["object"]["metadata"]["name"], "a");
    let node = table(&http, &format!("{GROUP}/nodes/n")).await;
    assert_eq!(cells(&node), [json!(["n", "1500000001n", "3Gi", "15s"])]);
}

#[tokio::test]
async fn whoever_may_view_a_namespace_may_see_what_its_pods_use() {
    let test = plane_with_metrics().await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    let refused = alice.get(PODS).await;
    let message = "pods.metrics.k8s.io is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"metrics.k8s.io\" in the namespace \"default\"";
    assert_eq!((refused.code, text(&refused.json(), "/message")), (403, message));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let subjects = json!([{"kind": "User", "name": "alice"}]);
    let binding = json!({"metadata": {"name": "alice"}, "roleRef": role, "subjects": subjects});
    admin.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).await.ok();
    assert_eq!(found(&alice, PODS).await, ["a", "b"]);
    assert_eq!(alice.get(&format!("{GROUP}/pods")).await.code, 403);
    assert_eq!(alice.get(&format!("{GROUP}/nodes")).await.code, 403);
}

/// The APIService of a metrics server that the user runs.
fn own() -> Value {
    json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
        "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "kube-system", "name": "metrics-server"},
    }})
}

/// Waits until the condition of the APIService has a reason.
async fn until(http: &Http, reason: &str) {
    until_of(http, "v1beta1.metrics.k8s.io", reason).await;
}

/// Waits until the server has checked all APIServices.
async fn passed(http: &Http) {
    let far = json!({"metadata": {"name": "v9.far.example.com"}, "spec": {
        "group": "far.example.com", "version": "v9", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "far"},
    }});
    http.post(SERVICES, &far).await.ok();
    // They are checked in the order of their names.
    until_of(http, "v9.far.example.com", "ServiceNotFound").await;
    http.delete(&format!("{SERVICES}/v9.far.example.com")).await.ok();
}

async fn until_of(http: &Http, name: &str, reason: &str) {
    let mut watch = http.watch(&format!("{SERVICES}?fieldSelector=metadata.name={name}")).await;
    while let Some(event) = watch.next().await {
        if text(&event, "/object/status/conditions/0/reason") == reason {
            return;
        }
    }
    panic!("the watch has ended");
}

#[tokio::test]
async fn a_metrics_server_of_the_users_own_takes_the_place_of_this_one() {
    let store = store().await;
    let test = serve(&store, "").await;
    let http = test.http();
    assert_eq!(http.get(&format!("{GROUP}/nodes")).await.code, 200);
    // As with `kubectl apply`, the existing APIService is changed.
    http.merge(SERVICE, &own()).await.ok();
    until(&http, "ServiceNotFound").await;
    let answer = http.get(&format!("{GROUP}/nodes")).await;
    assert_eq!((answer.code, answer.body_text().as_str()), (503, "service unavailable\n"));
    assert_eq!(http.get(GROUP).await.code, 503);
    test.server.stop().await;

    // The change survives restarts, with and without a source of usage.
    let test = TestServer::of(store.clone(), options(&store, Authorization::default())).await;
    passed(&test.http()).await;
    test.server.stop().await;
    let test = serve(&store, "").await;
    let http = test.http();
    assert_eq!(http.get(GROUP).await.code, 503);
    assert_eq!(http.get(&format!("{GROUP}/nodes")).await.code, 503);

    // When the user removes his Service, this server serves the group again.
    http.merge(SERVICE, &json!({"spec": {"service": null, "insecureSkipTLSVerify": null}})).await.ok();
    until(&http, "Local").await;
    assert_eq!(http.get(&format!("{GROUP}/nodes")).await.code, 200);
    test.server.stop().await;
}

#[tokio::test]
async fn without_anybody_who_knows_the_api_service_of_the_last_time_goes() {
    let store = store().await;
    serve(&store, "").await.server.stop().await;
    let test = TestServer::of(store.clone(), options(&store, Authorization::default())).await;
    let http = test.http();
    passed(&http).await;
    assert_eq!(http.get(SERVICE).await.code, 404);
    // The server leaves an APIService alone that the user created.
    http.post(SERVICES, &own()).await.ok();
    until(&http, "ServiceNotFound").await;
    assert_eq!(http.get(&format!("{GROUP}/nodes")).await.code, 503);
}
