//! The subresources of pods that are parts of them, and those that lead to what runs them.

use crate::support::{Answer, Http, TestServer, text};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(http: &Http, name: &str, more: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    http.post(PODS, &pod).await.ok()
}

#[track_caller]
fn refused(answer: &Answer, code: u16, want: &str) {
    assert_eq!((answer.code, text(&answer.json(), "/message")), (code, want));
}

#[tokio::test]
async fn an_ephemeral_container_is_added_and_stays() {
    let test = TestServer::new().await;
    let http = test.http();
    pod(&http, "p", json!({})).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "other"}],
        "ephemeralContainers": [{"name": "dbg", "image": "busybox", "targetContainerName": "c"}],
    }});
    let added = http.merge(&path, &patch).await.ok();
    assert_eq!(added["spec"]["ephemeralContainers"][0]["imagePullPolicy"], "Always");
    assert_eq!((&added["spec"]["containers"][0]["image"], &added["metadata"]["labels"]), (&json!("i"), &Value::Null));
    assert_eq!(added["metadata"]["generation"], 2);
    assert_eq!(http.get(&path).await.ok(), added);
    let gone = http.json_patch(&path, &json!([{"op": "remove", "path": "/spec/ephemeralContainers"}])).await;
    let why = "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"dbg\" may not be removed\n";
    refused(&gone, 422, why);
    let odd = json!({"spec": {"ephemeralContainers": [
        {"name": "c", "image": "i", "targetContainerName": "none"}, {"name": "d", "image": "i", "resources": {"limits": {"cpu": "1"}}},
    ]}});
    let causes = http.merge(&path, &odd).await.json()["details"]["causes"].clone();
    let mut fields: Vec<&str> = causes.as_array().unwrap().iter().map(|cause| text(cause, "/field")).collect();
    fields.sort_unstable();
    let want = [
        "spec.ephemeralContainers",
        "spec.ephemeralContainers[0].name",
        "spec.ephemeralContainers[0].targetContainerName",
        "spec.ephemeralContainers[1].resources",
    ];
    assert_eq!(fields, want);
}

#[tokio::test]
async fn a_resize_changes_processor_and_memory_and_nothing_else() {
    let test = TestServer::new().await;
    let http = test.http();
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}});
    pod(&http, "p", json!({"containers": [{"name": "c", "image": "i", "resources": resources}]})).await;
    let path = format!("{PODS}/p/resize");
    let resize =
        |resources: Value| json!({"spec": {"containers": [{"name": "c", "image": "other", "resources": resources}]}});
    let larger = resize(json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "2"}}));
    let resized = http.merge(&path, &larger).await.ok();
    assert_eq!(resized["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");
    assert_eq!(resized["spec"]["containers"][0]["image"], "i");
    assert_eq!(resized["metadata"]["generation"], 2);
    let why = "Pod \"p\" is invalid: spec: Forbidden: only cpu and memory resources are mutable";
    let other = resize(json!({"requests": {"cpu": "200m", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "2"}}));
    refused(&http.merge(&path, &other).await, 422, why);
    let class = "Pod \"p\" is invalid: spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing";
    let guaranteed =
        resize(json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}));
    refused(&http.merge(&path, &guaranteed).await, 422, class);
}

#[tokio::test]
async fn what_would_need_a_node_says_what_is_missing() {
    let test = TestServer::new().await;
    let http = test.http();
    pod(&http, "p", json!({})).await;
    let no_node = "pod p does not have a host assigned";
    assert_eq!(http.get(&format!("{PODS}/p/log")).await.code, 204);
    refused(&http.post(&format!("{PODS}/p/exec?command=x"), &json!({})).await, 400, no_node);
    refused(&http.get(&format!("{PODS}/p/portforward")).await, 400, no_node);
    refused(&http.get(&format!("{PODS}/p/log?container=x")).await, 400, "container x is not valid for pod p");
    refused(&http.get(&format!("{PODS}/none/log")).await, 404, "pods \"none\" not found");
    let lines = "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0";
    refused(&http.get(&format!("{PODS}/p/log?tailLines=-1")).await, 422, lines);
    refused(&http.get(&format!("{PODS}/p:80/proxy/a/b")).await, 400, "address not allowed");
    assert_eq!(http.delete(&format!("{PODS}/p/log")).await.code, 405);
    refused(&http.get("/api/v1/nodes/n/proxy/logs").await, 404, "nodes \"n\" not found");

    pod(&http, "there", json!({"nodeName": "n"})).await;
    refused(&http.get(&format!("{PODS}/there/log")).await, 404, "nodes \"n\" not found");
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.ok();
    let unknown = "no preferred addresses found; known addresses: []";
    refused(&http.get(&format!("{PODS}/there/log")).await, 500, unknown);
    // Nothing listens at the port after this.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    http.merge("/api/v1/nodes/n/status", &status).await.ok();
    let dialed = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    refused(&http.get(&format!("{PODS}/there/log")).await, 500, &format!("error dialing backend: {dialed}"));
    let unreached = format!("error trying to reach service: {dialed}");
    refused(&http.get("/api/v1/nodes/n/proxy/healthz").await, 503, &unreached);
    refused(&http.get(&format!("/api/v1/nodes/n:{port}/proxy/healthz")).await, 503, &unreached);
    refused(&http.get("/api/v1/nodes/n:1/proxy/healthz").await, 400, "address not allowed");
    refused(&http.get(&format!("{PODS}/there/exec?command=x&dryRun=All")).await, 400, "dryRun is not supported");
}

#[tokio::test]
async fn a_proxy_to_a_service_needs_a_port_and_an_address_behind_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    http.post(services, &service).await.ok();
    refused(&http.get(&format!("{services}/s:81/proxy/")).await, 503, "no service port 81 found for service \"s\"");
    refused(&http.get(&format!("{services}/s:80/proxy/")).await, 404, "endpoints \"s\" not found");
    let endpoints = json!({"metadata": {"name": "s"}, "subsets": [
        {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "web", "port": 8080}]},
    ]});
    http.post("/api/v1/namespaces/default/endpoints", &endpoints).await.ok();
    // Nobody says that a Pod has the address.
    let none = |id: &str| format!("no endpoints available for service {id:?}");
    refused(&http.get(&format!("{services}/s:80/proxy/x/y")).await, 503, &none("s:80"));
    refused(&http.get(&format!("{services}/s:other/proxy/")).await, 503, &none("s:other"));
}

#[tokio::test]
async fn a_binding_may_come_by_the_old_path() {
    let test = TestServer::new().await;
    let http = test.http();
    pod(&http, "p", json!({})).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let bindings = "/api/v1/namespaces/default/bindings";
    assert_eq!(http.post(bindings, &binding).await.code, 201);
    assert_eq!(text(&http.get(&format!("{PODS}/p")).await.ok(), "/spec/nodeName"), "n");
    assert_eq!(http.post(bindings, &binding).await.refusal(), (409, "Conflict".to_owned()));
    assert_eq!(http.get(bindings).await.code, 405);
}
