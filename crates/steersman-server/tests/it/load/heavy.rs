//! Heavy requests: they compute beside small ones, users take turns, and they end in time.

use crate::custom::definitions::{DEFINITIONS, KITES, definition};
use crate::support::{Answer, CONFIGS, Http, Options, TestServer, allow_all, config, options, text, version};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use steersman_server::{Compute, NodeUsage, PodUsage, ResourceMetrics};
use steersman_storage::{Memory, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The most heavy requests of one user that have not begun.
const WAITING_OF_USER_MAX: usize = 128;

/// A server that computes heavy requests one at a time, on a thread behind a gate.
struct Gated {
    test: TestServer,
    gate: Option<mpsc::SyncSender<()>>,
    runtime: Option<Runtime>,
}

/// Knows no usage.
#[derive(Debug)]
struct Unknown;

impl ResourceMetrics for Unknown {
    fn of_node(&self, _: &str, _: jiff::Timestamp) -> Option<NodeUsage> {
        None
    }

    fn of_pod(&self, _: &str, _: &str, _: jiff::Timestamp) -> Option<PodUsage> {
        None
    }
}

impl Gated {
    async fn new() -> Gated {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        Gated::on(store).await
    }

    async fn on(store: Store) -> Gated {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let compute = Compute::default().on(runtime.handle().clone()).slots(NonZeroUsize::MIN);
        let resource_metrics: Option<Arc<dyn ResourceMetrics>> = Some(Arc::new(Unknown));
        let test =
            TestServer::of(store.clone(), Options { compute, resource_metrics, ..options(&store, allow_all()) }).await;
        let mut gated = Gated { test, gate: None, runtime: Some(runtime) };
        gated.close();
        gated
    }

    fn close(&mut self) {
        let (gate, opened) = mpsc::sync_channel(0);
        self.runtime.as_ref().unwrap().spawn_blocking(move || opened.recv());
        self.gate = Some(gate);
    }

    fn open(&mut self) {
        self.gate = None;
    }

    /// Waits until this many heavy requests compute and wait.
    async fn until(&self, computing: usize, waiting: usize) {
        let line = |state: &str, n: usize| format!("steersman_heavy_requests{{state=\"{state}\"}} {n}\n");
        let want = [line("computing", computing), line("waiting", waiting)];
        loop {
            let metrics = self.test.http().get("/metrics").await.body_text();
            if want.iter().all(|line| metrics.contains(line)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Gated {
    /// Waits until a task computes on the thread for large requests, and so does not end before the gate is open.
    async fn until_computing<T>(&self, task: &JoinHandle<T>) {
        let computing = "steersman_heavy_requests{state=\"computing\"} 1\n";
        for _ in 0..10_000 {
            if self.test.http().get("/metrics").await.body_text().contains(computing) {
                return;
            }
            assert!(!task.is_finished(), "it was computed where small requests are");
            tokio::task::yield_now().await;
        }
        panic!("it does not compute");
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.open();
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "x".repeat(100_000)}})
}

fn post(http: Http, object: Value) -> JoinHandle<Answer> {
    tokio::spawn(async move { http.post(CONFIGS, &object).await })
}

#[tokio::test]
async fn small_requests_are_answered_while_a_large_one_computes() {
    let mut gated = Gated::new().await;
    let http = gated.test.http();
    http.post(CONFIGS, &config("small")).await.ok();
    let heavy = post(http.clone(), large("large"));
    gated.until(1, 0).await;
    let small = format!("{CONFIGS}/small");
    http.get(&small).await.ok();
    http.get(CONFIGS).await.ok();
    http.merge(&small, &json!({"data": {"a": "b"}})).await.ok();
    http.delete(&small).await.ok();
    assert!(!heavy.is_finished());
    gated.open();
    assert_eq!(heavy.await.unwrap().code, 201);
}

#[tokio::test]
async fn a_small_patch_of_a_large_object_is_a_large_request_and_so_is_its_indented_form() {
    let before = TestServer::new().await;
    before.http().post(CONFIGS, &large("large")).await.ok();
    let mut gated = Gated::on(before.store).await;
    let (http, path) = (gated.test.http(), format!("{CONFIGS}/large"));
    let patch = tokio::spawn({
        let (http, path) = (http.clone(), path.clone());
        async move { http.merge(&path, &json!({"data": {"b": "c"}})).await }
    });
    gated.until(1, 0).await;
    let pretty = tokio::spawn({
        let (http, path) = (http.clone(), path.clone());
        async move { http.get(&format!("{path}?pretty=true")).await }
    });
    gated.until(1, 1).await;
    // The stored form is only copied, so this is no heavy request.
    http.get(&path).await.ok();
    gated.open();
    patch.await.unwrap().ok();
    pretty.await.unwrap().ok();
}

/// The definition of kites in two versions with the same fields, of which the second can be selected by length.
fn two_versions() -> Value {
    let mut definition = definition(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["selectableFields"] = json!([{"jsonPath": ".spec.length"}]);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({"length": {"type": "string"}});
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    definition
}

#[tokio::test]
async fn a_watch_reads_large_objects_that_it_selects_from_on_the_threads_for_large_requests() {
    let other = TestServer::new().await;
    let http = other.http();
    http.post(DEFINITIONS, &two_versions()).await.ok();
    let mut gated = Gated::on(other.store.clone()).await;
    let path = KITES.replace("/v1/", "/v2/");
    let mut watch = gated.test.http().watch(&format!("{path}?fieldSelector=spec.length%3Dlong")).await;
    let kite = |name: &str, length: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": name},
            "spec": {"length": length, "notes": "x".repeat(100_000)}})
    };
    http.post(KITES, &kite("a", "short")).await.ok();
    http.post(KITES, &kite("b", "long")).await.ok();
    let next = tokio::spawn(async move { watch.next_name().await });
    gated.until_computing(&next).await;
    gated.open();
    assert_eq!(next.await.unwrap(), Some(("ADDED".to_owned(), "b".to_owned())));
}

#[tokio::test]
async fn a_watch_selects_among_very_many_labels_on_the_threads_for_large_requests() {
    let other = TestServer::new().await;
    let mut gated = Gated::on(other.store.clone()).await;
    let mut watch = gated.test.http().watch(&format!("{CONFIGS}?labelSelector=zzz")).await;
    let labels: Map<String, Value> = (0..10_000).map(|n| (format!("label-{n}"), json!("a"))).collect();
    let mut object = json!({"metadata": {"name": "a", "labels": labels}});
    other.http().post(CONFIGS, &object).await.ok();
    object["metadata"]["name"] = json!("b");
    object["metadata"]["labels"]["zzz"] = json!("a");
    other.http().post(CONFIGS, &object).await.ok();
    let next = tokio::spawn(async move { watch.next_name().await });
    gated.until_computing(&next).await;
    gated.open();
    assert_eq!(next.await.unwrap(), Some(("ADDED".to_owned(), "b".to_owned())));
}

#[tokio::test]
async fn a_watch_writes_large_events_in_another_form_on_the_threads_for_large_requests() {
    let other = TestServer::new().await;
    let mut gated = Gated::on(other.store.clone()).await;
    let mut watch = gated.test.http().watch_as(CONFIGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let name = |table: Option<Value>| text(&table.unwrap(), "/object/rows/0/object/metadata/name").to_owned();
    other.http().post(CONFIGS, &config("small")).await.ok();
    assert_eq!(name(watch.next().await), "small");
    other.http().post(CONFIGS, &large("large")).await.ok();
    let next = tokio::spawn(async move { name(watch.next().await) });
    gated.until_computing(&next).await;
    gated.open();
    assert_eq!(next.await.unwrap(), "large");
}

#[tokio::test]
async fn the_rest_of_a_list_in_another_form_is_written_on_the_threads_for_large_requests() {
    let other = TestServer::new().await;
    for index in 0..30 {
        other.http().post(CONFIGS, &large(&format!("large-{index}"))).await.ok();
    }
    let path = format!("{CONFIGS}?pretty=true");
    let whole = other.http().get(&path).await.ok();
    let mut gated = Gated::on(other.store.clone()).await;
    gated.open();
    let body = gated.test.http().unread(&path).await;
    gated.close();
    let rest = tokio::spawn(async move { body.collect().await.unwrap().to_bytes() });
    gated.until_computing(&rest).await;
    gated.open();
    let rest: Value = serde_json::from_slice(&rest.await.unwrap()).unwrap();
    assert!(rest["items"] == whole["items"], "the list in parts is the list in one");
}

#[tokio::test]
async fn documents_of_openapi_are_made_on_the_threads_for_large_requests() {
    let mut gated = Gated::new().await;
    let http = gated.test.http();
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1"] {
        let first = tokio::spawn({
            let http = http.clone();
            async move { http.get(path).await }
        });
        gated.until_computing(&first).await;
        gated.open();
        let first = first.await.unwrap();
        assert_eq!(first.code, 200, "{path}");
        gated.close();
        assert!(http.get(path).await.bytes == first.bytes, "it is made once");
    }
    assert_eq!(http.get("/openapi/v3/apis/none/v1").await.code, 404);
    gated.open();
}

#[tokio::test]
async fn users_take_turns_with_their_large_requests() {
    let mut gated = Gated::new().await;
    let (alice, bob) = (gated.test.http_as("alice"), gated.test.http_as("bob"));
    let first = post(alice.clone(), large("a1"));
    gated.until(1, 0).await;
    let second = post(alice.clone(), large("a2"));
    gated.until(1, 1).await;
    let third = post(alice, large("a3"));
    gated.until(1, 2).await;
    let other = post(bob, large("b1"));
    gated.until(1, 3).await;
    gated.open();
    let mut versions = Vec::new();
    for request in [first, second, other, third] {
        versions.push(version(&request.await.unwrap().ok()));
    }
    assert!(versions.is_sorted(), "bob's came last, and is the third: {versions:?}");
}

#[tokio::test]
async fn a_user_with_too_many_large_requests_is_told_to_wait_for_them() {
    let mut gated = Gated::new().await;
    let http = gated.test.http();
    let first = post(http.clone(), large("first"));
    gated.until(1, 0).await;
    let waiting: Vec<_> = (0..WAITING_OF_USER_MAX).map(|n| post(http.clone(), large(&format!("c{n}")))).collect();
    gated.until(1, WAITING_OF_USER_MAX).await;
    let refused = http.post(CONFIGS, &large("late")).await;
    assert_eq!(refused.refusal(), (429, "TooManyRequests".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        text(&refused.json(), "/message"),
        "128 large requests of the user \"admin\" are waiting for their turn to be computed, which is the most for one user; wait for their answers, or send smaller ones"
    );
    assert!(gated.test.http().get("/metrics").await.body_text().contains("steersman_heavy_requests_refused_total 1\n"));
    let other = post(gated.test.http_as("bob"), large("of-bob"));
    gated.until(1, WAITING_OF_USER_MAX + 1).await;
    gated.open();
    for request in waiting.into_iter().chain([first, other]) {
        assert_eq!(request.await.unwrap().code, 201);
    }
    http.post(CONFIGS, &large("late")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_large_request_whose_turn_does_not_come_in_time_does_nothing() {
    let mut gated = Gated::new().await;
    let http = gated.test.http();
    let first = post(http.clone(), large("first"));
    gated.until(1, 0).await;
    let late = http.post(&format!("{CONFIGS}?timeout=5s"), &large("late")).await;
    assert_eq!(late.refusal(), (504, "Timeout".to_owned()));
    gated.until(1, 0).await;
    gated.open();
    // The paused clock may have passed the first request's limit, too.
    let _first = first.await.unwrap();
    assert_eq!(http.get(&format!("{CONFIGS}/late")).await.code, 404);
}

#[tokio::test]
async fn a_request_without_time_is_answered_with_504_and_does_nothing() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let path = format!("{CONFIGS}/c");
    for (method, path, body) in [
        (Method::GET, CONFIGS, ""),
        (Method::GET, &path, ""),
        (Method::POST, CONFIGS, r#"{"metadata": {"name": "d"}}"#),
        (Method::DELETE, &path, ""),
        (Method::DELETE, CONFIGS, ""),
    ] {
        let answer = http.send(method.clone(), &format!("{path}?timeout=1ns"), "application/json", body).await;
        assert_eq!(answer.refusal(), (504, "Timeout".to_owned()), "{method} {path}");
        assert_eq!(text(&answer.json(), "/message"), "Timeout: request did not complete within the allotted timeout");
    }
    http.get(&path).await.ok();
    assert_eq!(http.get(&format!("{CONFIGS}/d")).await.code, 404);
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// A small object of many values.
fn dense(name: &str) -> Value {
    let keys: Map<String, Value> = (0..3000).map(|n| (format!("k{n}"), json!(""))).collect();
    json!({"metadata": {"name": name}, "data": keys})
}

/// A server in which requests with small bodies compute much.
async fn costly() -> Gated {
    let before = TestServer::new().await;
    let http = before.http();
    let words = |n: usize| (0..n).map(|n| json!({"pattern": format!("^{n}$")})).collect::<Vec<_>>();
    let rule = json!([{"rule": "self.all(a, self.all(b, a + b < 1000))"}]);
    let properties = json!({
        "defaulted": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "x".repeat(50_000)}}}},
        "matched": {"type": "array", "items": {"type": "string", "anyOf": words(500)}},
        "ruled": {"type": "array", "maxItems": 100, "items": {"type": "integer"}, "x-kubernetes-validations": rule},
    });
    http.post(DEFINITIONS, &definition(&json!({"type": "object", "properties": properties}))).await.ok();
    http.post(CONFIGS, &dense("dense")).await.ok();
    for n in 0..40 {
        let labels = json!({"n": n.to_string()});
        http.post(CONFIGS, &json!({"metadata": {"name": format!("c{n}"), "labels": labels}})).await.ok();
        http.post("/api/v1/nodes", &json!({"metadata": {"name": format!("n{n}"), "labels": labels}})).await.ok();
    }
    let container = json!({"name": "c", "image": "i"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let long = json!({"a": "x".repeat(70_000)});
    for (name, annotations) in [("small", json!({})), ("large", long)] {
        let deployment = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        http.post(DEPLOYMENTS, &deployment).await.ok();
    }
    http.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await.ok();
    http.post(PODS, &json!({"metadata": {"name": "small"}, "spec": {"containers": [container]}})).await.ok();
    http.merge(&format!("{PODS}/small/status"), &json!({"status": {"phase": "Running"}})).await.ok();
    let long = json!({"a": "x".repeat(70_000)});
    for (namespace, resource, spec) in [
        ("counted", "resourcequotas", json!({})),
        ("ranged", "limitranges", json!({"limits": []})),
        ("checked", "pods", json!({"containers": [container]})),
    ] {
        http.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.ok();
        let path = format!("/api/v1/namespaces/{namespace}");
        http.post(&format!("{path}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await.ok();
        let large = json!({"metadata": {"name": "large", "annotations": long}, "spec": spec});
        http.post(&format!("{path}/{resource}"), &large).await.ok();
    }
    for n in 0..2 {
        let budget = json!({"metadata": {"name": format!("b{n}"), "annotations": {"a": "x".repeat(40_000)}}, "spec": {"minAvailable": 1}});
        http.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await.ok();
    }
    let rules: Vec<Value> = (0..300)
        .map(|n| json!({"apiGroups": ["example.com"], "resources": [format!("r{n}")], "verbs": ["get"]}))
        .collect();
    let access = "/apis/rbac.authorization.k8s.io/v1";
    http.post(&format!("{access}/clusterroles"), &json!({"metadata": {"name": "many"}, "rules": rules})).await.ok();
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "many"});
    let bound = json!({"metadata": {"name": "many"}, "roleRef": role, "subjects": [{"kind": "User", "name": "admin"}]});
    http.post(&format!("{access}/clusterrolebindings"), &bound).await.ok();
    let matches = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}]});
    let costly = json!([{"expression": "object.data.all(a, object.data.all(b, a != b || true))"}]);
    let spec = json!({"matchConstraints": matches, "validations": costly});
    let policy = json!({"metadata": {"name": "costly"}, "spec": spec});
    http.post(&format!("{POLICIES}/validatingadmissionpolicies"), &policy).await.ok();
    let bound =
        json!({"metadata": {"name": "costly"}, "spec": {"policyName": "costly", "validationActions": ["Deny"]}});
    http.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &bound).await.ok();
    let matches = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["resourcequotas"], "operations": ["CREATE"]}]});
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let validations = json!([{"expression": "params != null"}]);
    let spec = json!({"paramKind": kind, "matchConstraints": matches, "validations": validations});
    let policy = json!({"metadata": {"name": "of-params"}, "spec": spec});
    http.post(&format!("{POLICIES}/validatingadmissionpolicies"), &policy).await.ok();
    let all = json!({"name": "dense", "parameterNotFoundAction": "Deny"});
    let spec = json!({"policyName": "of-params", "validationActions": ["Deny"], "paramRef": all});
    let bound = json!({"metadata": {"name": "of-params"}, "spec": spec});
    http.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &bound).await.ok();
    Gated::on(before.store).await
}

#[tokio::test]
async fn small_requests_that_compute_much_are_large_requests() {
    let mut gated = costly().await;
    let http = gated.test.http();
    let kite = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": name}, "spec": spec});
    let absent: Vec<String> = (0..1000).map(|n| format!("!k{n}")).collect();
    let selector = format!("labelSelector={}", absent.join(","));
    let rules: Vec<Value> = (0..40).map(|n| json!({"rule": format!("self.p.size() < {n} + 1000")})).collect();
    let properties = json!({"p": {"type": "string", "maxLength": 10}});
    let ruled = definition(&json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules}));
    let ruled = ruled.to_string().replace("kite", "kayak").replace("Kite", "Kayak");
    let keys: Map<String, Value> = (0..200).map(|n| (format!("k{n}"), json!("eA=="))).collect();
    let review = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let selectors = vec![json!({"cel": {"expression": "device.driver == 'd.example.com'"}}); 30];
    let requested: Vec<Value> = ["a", "b"]
        .map(|name| json!({"name": name, "exactly": {"deviceClassName": "gpu", "selectors": selectors}}))
        .into();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let evicted = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "small"}});
    // It doubles a value fifteen times and removes it again.
    let mut doubling = vec![json!({"op": "add", "path": "/x", "value": {"a": "b"}})];
    doubling.extend((0..15).map(|n| json!({"op": "copy", "from": "/x", "path": format!("/x/{n}")})));
    doubling.push(json!({"op": "remove", "path": "/x"}));
    let (post, get, merge) = (Method::POST, Method::GET, "application/merge-patch+json");
    let cases = [
        ("defaults", post.clone(), KITES.to_owned(), kite("d", json!({"defaulted": vec![json!({}); 50]})).to_string()),
        ("patterns", post.clone(), KITES.to_owned(), kite("m", json!({"matched": vec!["499"; 400]})).to_string()),
        ("rules in CEL", post.clone(), KITES.to_owned(), kite("r", json!({"ruled": vec![1; 100]})).to_string()),
        ("a definition", post.clone(), DEFINITIONS.to_owned(), ruled),
        (
            "a policy",
            post.clone(),
            CONFIGS.replace("configmaps", "secrets"),
            json!({"metadata": {"name": "s"}, "data": keys}).to_string(),
        ),
        (
            "parameters of a policy",
            post.clone(),
            CONFIGS.replace("configmaps", "resourcequotas"),
            json!({"metadata": {"name": "q"}, "spec": {}}).to_string(),
        ),
        (
            "selectors of devices",
            post.clone(),
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims".to_owned(),
            json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requested}}}).to_string(),
        ),
        ("quotas", post.clone(), "/api/v1/namespaces/counted/configmaps".to_owned(), config("c").to_string()),
        ("ranges", post.clone(), "/api/v1/namespaces/ranged/persistentvolumeclaims".to_owned(), claim.to_string()),
        ("levels", Method::PATCH, "/api/v1/namespaces/checked".to_owned(), level.to_string()),
        ("many values", post.clone(), CONFIGS.to_owned(), dense("many").to_string()),
        ("a patch of many values", Method::PATCH, format!("{CONFIGS}/dense"), json!({"data": {"a": "b"}}).to_string()),
        ("a list", get.clone(), format!("{CONFIGS}?{selector}"), String::new()),
        ("a watch", get.clone(), format!("{CONFIGS}?watch=true&timeoutSeconds=1&{selector}"), String::new()),
        ("a collection", Method::DELETE, format!("{CONFIGS}?labelSelector=n"), String::new()),
        ("metrics", get.clone(), format!("/apis/metrics.k8s.io/v1beta1/nodes?{selector}"), String::new()),
        ("a scale", get.clone(), format!("{DEPLOYMENTS}/large/scale"), String::new()),
        ("a patch of a scale", Method::PATCH, format!("{DEPLOYMENTS}/small/scale"), json!(doubling).to_string()),
        ("an eviction with large budgets", post.clone(), format!("{PODS}/small/eviction"), evicted.to_string()),
        ("a review", post, review.to_owned(), json!({"spec": {"namespace": "default"}}).to_string()),
    ];
    let mut requests = Vec::new();
    for (n, (what, method, path, body)) in cases.into_iter().enumerate() {
        assert!(body.len() < 64 * 1024, "{what} has {} bytes", body.len());
        let content_type = match method {
            Method::PATCH if path.ends_with("/scale") => "application/json-patch+json",
            Method::PATCH => merge,
            _ => "application/json",
        };
        let http = http.clone();
        let request = tokio::spawn(async move { http.send(method, &path, content_type, body).await });
        let line = |state: &str, n: usize| format!("steersman_heavy_requests{{state=\"{state}\"}} {n}\n");
        let waiting = line("waiting", n);
        loop {
            let metrics = gated.test.http().get("/metrics").await.body_text();
            if metrics.contains(&line("computing", 1)) && metrics.contains(&waiting) {
                break;
            }
            assert!(!request.is_finished(), "{what} was computed where small requests are");
            tokio::task::yield_now().await;
        }
        requests.push((what, request));
    }
    gated.open();
    for (what, request) in requests {
        let answer = request.await.unwrap();
        assert!((200..300).contains(&answer.code), "{what}: {} {}", answer.code, answer.body_text());
    }
}

#[tokio::test]
async fn an_eviction_of_a_large_pod_is_a_large_request_even_if_its_budget_refuses_it() {
    let before = TestServer::new().await;
    let http = before.http();
    http.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await.ok();
    let metadata = json!({"name": "large", "labels": {"a": "b"}, "annotations": {"a": "x".repeat(70_000)}});
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    http.post(PODS, &json!({"metadata": metadata, "spec": spec})).await.ok();
    http.merge(&format!("{PODS}/large/status"), &json!({"status": {"phase": "Running"}})).await.ok();
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}});
    let budget = json!({"metadata": {"name": "b"}, "spec": spec});
    http.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await.ok();
    let mut gated = Gated::on(before.store).await;
    let evicted = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "large"}});
    let http = gated.test.http();
    let mut eviction = Box::pin(async move { http.post(&format!("{PODS}/large/eviction"), &evicted).await });
    tokio::select! {
        answer = &mut eviction => panic!("it was computed where small requests are: {}", answer.body_text()),
        () = gated.until(1, 0) => {}
    }
    gated.open();
    assert_eq!(eviction.await.code, 429);
}

#[tokio::test]
async fn small_requests_of_the_usual_kind_stay_where_they_are() {
    let gated = costly().await;
    let http = gated.test.http();
    let blocker = post(http.clone(), large("large"));
    gated.until(1, 0).await;
    let small = async {
        let container = |n: usize| json!({"name": format!("c{n}"), "image": "i", "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80 + n}]});
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"containers": (0..10).map(container).collect::<Vec<_>>()}});
        http.post(PODS, &pod).await.ok();
        http.get(&format!("{DEPLOYMENTS}/small/scale")).await.ok();
        http.merge(&format!("{DEPLOYMENTS}/small/scale"), &json!({"spec": {"replicas": 2}})).await.ok();
        http.get(&format!("{CONFIGS}?labelSelector=n%3D7")).await.ok();
        http.merge(&format!("{CONFIGS}/c7"), &json!({"data": {"a": "b"}})).await.ok();
        http.delete(&format!("{CONFIGS}/c7")).await.ok();
        http.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}, "data": {"k": "eA=="}}))
            .await
            .ok();
    };
    tokio::time::timeout(Duration::from_secs(60), small).await.expect("none waits for its turn");
    assert!(!blocker.is_finished());
}
