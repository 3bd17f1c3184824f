//! Initializers: which ones new objects get, what waits for them, what is visible, and how the wait ends.

use crate::support::{Answer, Http, TestServer, Watch, names, options, text, version};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_server::authz::Authorization;
use steersman_server::{Concurrency, Options, RuntimeConfig};
use steersman_storage::{Memory, Store};
use tokio::task::JoinHandle;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
const ENVOY: &str = "envoy.initializer.kubernetes.io";
const CHECK: &str = "check.initializer.kubernetes.io";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "myapp"}},
        "spec": {"containers": [{"name": "myapp-container", "image": "busybox"}]},
    })
}

fn for_pods(name: &str) -> Value {
    json!({"name": name, "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
}

async fn configure(http: &Http, initializers: Value) -> Value {
    let configuration = json!({"metadata": {"name": "envoy-config"}, "initializers": initializers});
    http.post(CONFIGURATIONS, &configuration).await.ok()
}

/// Creates an object in a task of its own.
fn begin(http: &Http, path: &str, object: Value) -> JoinHandle<Answer> {
    let (http, path) = (http.clone(), path.to_owned());
    tokio::spawn(async move { http.post(&path, &object).await })
}

async fn patch(http: &Http, name: &str, patch: &Value) -> Answer {
    http.send(Method::PATCH, &format!("{PODS}/{name}"), STRATEGIC, patch.to_string()).await
}

/// The last patch of an initializer.
fn done(initializer: &str) -> Value {
    json!({"metadata": {"initializers": {"pending": [{"$patch": "delete", "name": initializer}]}}})
}

/// Watches all pods from now on, initialized or not.
async fn watch_all(http: &Http) -> Watch {
    http.watch(&format!("{PODS}?includeUninitialized=true&resourceVersion=0")).await
}

/// The names of the pending initializers.
fn pending(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["initializers"]["pending"].as_array();
    list.into_iter().flatten().map(|one| one["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn refused(answer: &Answer, code: u16, want: &str) {
    let json = answer.json();
    let message = text(&json, "/message");
    assert!(answer.code == code && message.contains(want), "{} {message}", answer.code);
}

/// Repeats until the condition holds.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn without_them_there_is_neither_the_kind_nor_the_field() {
    let test = TestServer::new().await;
    let http = test.http();
    assert_eq!(http.get(CONFIGURATIONS).await.code, 404);
    let mut object = pod("p");
    object["metadata"]["initializers"] = json!({"pending": [{"name": ENVOY}]});
    let created = http.post(PODS, &object).await;
    assert_eq!(created.header("warning"), Some(r#"299 - "unknown field \"metadata.initializers\"""#));
    assert_eq!(created.ok()["metadata"].get("initializers"), None);
    let published = http.get("/openapi/v2").await;
    assert!(!String::from_utf8_lossy(&published.bytes).contains("nitializers\""), "nothing is published of them");
}

#[tokio::test]
async fn with_them_the_kind_and_the_field_are_published() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let resources = http.get("/apis/admissionregistration.k8s.io/v1alpha1").await.ok();
    assert_eq!(text(&resources, "/resources/0/name"), "initializerconfigurations");
    let v2 = http.get("/openapi/v2").await.ok();
    let definitions = &v2["definitions"];
    let field = &definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]["initializers"];
    assert!(text(field, "/description").starts_with("The initializers that the object waits for"), "{field}");
    let kind = &definitions["io.k8s.api.admissionregistration.v1alpha1.InitializerConfiguration"];
    assert_eq!(text(kind, "/x-kubernetes-group-version-kind/0/kind"), "InitializerConfiguration");
    let v3 = http.get("/openapi/v3/apis/admissionregistration.k8s.io/v1alpha1").await.ok();
    let schemas = v3["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.Initializers"));
}

#[tokio::test]
async fn a_configuration_says_what_it_needs() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let refused_with = async |initializer: Value, want: &str| {
        let configuration = json!({"metadata": {"name": "c"}, "initializers": [initializer]});
        refused(&http.post(CONFIGURATIONS, &configuration).await, 422, want);
    };
    refused_with(json!({"name": "envoy"}), "should be a domain with at least three segments").await;
    let mut long = for_pods(ENVOY);
    long["timeoutSeconds"] = json!(3601);
    refused_with(long, "initializers[0].timeoutSeconds: Invalid value: 3601: must be between 1 and 3600 seconds").await;
    let mut unknown = for_pods(ENVOY);
    unknown["failurePolicy"] = json!("Retry");
    refused_with(unknown, r#"Unsupported value: "Retry": supported values: "Fail", "Ignore""#).await;
    let mut part = for_pods(ENVOY);
    part["rules"][0]["resources"] = json!(["pods/status"]);
    refused_with(part, "must not specify subresources").await;
    refused_with(json!({"name": ENVOY, "rules": [{"resources": ["pods"]}]}), "apiGroups: Required value").await;
}

#[tokio::test]
async fn a_creation_waits_until_its_initializers_are_done() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let (mut all, mut initialized) = (watch_all(&http).await, http.watch(&format!("{PODS}?resourceVersion=0")).await);
    let creation = begin(&http, PODS, pod("myapp-pod"));

    let added = all.next().await.unwrap();
    assert_eq!((text(&added, "/type"), pending(&added["object"])), ("ADDED", vec![ENVOY]));
    let hidden = http.get(&format!("{PODS}/myapp-pod")).await.ok();
    assert_eq!(hidden["metadata"]["initializers"]["pending"], json!([{"name": ENVOY}]), "just the names");
    assert_eq!(names(&http.get(PODS).await.ok()), [""; 0]);
    assert_eq!(names(&http.get(&format!("{PODS}?fieldSelector=metadata.name%3Dmyapp-pod")).await.ok()), [""; 0]);
    assert_eq!(names(&http.get(&format!("{PODS}?includeUninitialized=true")).await.ok()), ["myapp-pod"]);
    assert!(!creation.is_finished());

    let sidecar = json!({
        "metadata": {"initializers": {"pending": [{"$patch": "delete", "name": ENVOY}]}},
        "spec": {
            "containers": [{"name": "envoy", "image": "envoy", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            "volumes": [{"name": "envoy-conf", "configMap": {"name": "envoy"}}],
        },
    });
    patch(&http, "myapp-pod", &sidecar).await.ok();
    let created = creation.await.unwrap();
    assert_eq!(created.code, 201);
    let created = created.ok();
    assert_eq!(created["metadata"].get("initializers"), None);
    let containers: Vec<&str> =
        created["spec"]["containers"].as_array().unwrap().iter().map(|one| text(one, "/name")).collect();
    assert_eq!(containers, ["envoy", "myapp-container"]);
    assert_eq!(text(&created, "/spec/volumes/0/name"), "envoy-conf");
    assert_eq!(text(&created, "/status/qosClass"), "Burstable", "as for a pod that was created with both");
    assert_eq!(text(&all.next().await.unwrap(), "/type"), "MODIFIED");
    let seen = initialized.next().await.unwrap();
    assert_eq!((text(&seen, "/type"), version(&seen["object"])), ("ADDED", version(&created)));
    assert_eq!(names(&http.get(PODS).await.ok()), ["myapp-pod"]);
}

#[tokio::test]
async fn initializers_run_one_after_the_other() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY), for_pods(CHECK)])).await;
    let mut all = watch_all(&http).await;
    let creation = begin(&http, PODS, pod("p"));
    assert_eq!(pending(&all.next().await.unwrap()["object"]), [ENVOY, CHECK]);
    let want = format!("of {ENVOY}, {CHECK} only the first can be removed, and none added");
    refused(&patch(&http, "p", &done(CHECK)).await, 422, &want);
    patch(&http, "p", &done(ENVOY)).await.ok();
    assert_eq!(pending(&all.next().await.unwrap()["object"]), [CHECK]);
    assert!(!creation.is_finished());
    patch(&http, "p", &done(CHECK)).await.ok();
    assert_eq!(creation.await.unwrap().code, 201);
    let again = json!({"metadata": {"initializers": {"pending": [{"name": ENVOY}]}}});
    refused(&patch(&http, "p", &again).await, 422, "field is immutable once initialization has completed");
}

#[tokio::test]
async fn a_creation_that_includes_uninitialized_objects_is_answered_at_once() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let created = http.post(&format!("{PODS}?includeUninitialized=true"), &pod("p")).await.ok();
    assert_eq!(pending(&created), [ENVOY]);
    let dry = http.post(&format!("{PODS}?dryRun=All"), &pod("q")).await.ok();
    assert_eq!(pending(&dry), [ENVOY], "a dry run stores nothing that could be initialized");
    let mut manifest = pod("r");
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Pod");
    let path = format!("{PODS}/r?fieldManager=m&includeUninitialized=true");
    let applied = http.send(Method::PATCH, &path, "application/apply-patch+yaml", manifest.to_string()).await;
    assert_eq!(pending(&applied.ok()), [ENVOY]);
}

#[tokio::test]
async fn a_result_fails_the_creation_and_removes_the_object() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let mut all = watch_all(&http).await;
    let mut object = pod("p");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let creation = begin(&http, PODS, object);
    all.next().await.unwrap();
    let result = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no envoy for you"});
    let failed = json!({"metadata": {"initializers": {"result": result}}});
    patch(&http, "p", &failed).await.ok();
    let answer = creation.await.unwrap();
    assert_eq!(answer.refusal(), (403, "Forbidden".to_owned()));
    refused(&answer, 403, "no envoy for you");
    assert_eq!(http.get(&format!("{PODS}/p")).await.code, 404);
    let events = [all.next().await.unwrap(), all.next().await.unwrap()];
    assert_eq!(events.each_ref().map(|event| text(event, "/type")), ["MODIFIED", "DELETED"]);
}

#[tokio::test]
async fn who_may_not_initialize_neither_bypasses_nor_changes() {
    let test = TestServer::initializing().await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "patch"]}]);
    admin.post(&format!("{rbac}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await.ok();
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let subjects = json!([{"kind": "User", "name": "alice"}]);
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects});
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.ok();
    configure(&admin, json!([for_pods(ENVOY)])).await;

    let mut bypass = pod("p");
    bypass["metadata"]["initializers"] = json!({"pending": []});
    refused(&alice.post(PODS, &bypass).await, 403, r#"pods "p" is forbidden: create with initializers denied: "#);
    let path = format!("{PODS}?includeUninitialized=true");
    assert_eq!(pending(&alice.post(&path, &pod("p")).await.ok()), [ENVOY], "who waits needs no permission");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    refused(&patch(&alice, "p", &label).await, 403, "update to uninitialized resource denied: ");
    patch(&admin, "p", &label).await.ok();
    // A subresource does not bypass that.
    let path_of_status = format!("{PODS}/p/status");
    let ready = json!({"metadata": {"initializers": null}, "status": {"phase": "Running"}});
    assert_eq!(pending(&admin.merge(&path_of_status, &ready).await.ok()), [ENVOY]);
    patch(&admin, "p", &done(ENVOY)).await.ok();
    patch(&alice, "p", &label).await.ok();

    bypass["metadata"]["name"] = json!("q");
    assert_eq!(admin.post(PODS, &bypass).await.ok()["metadata"].get("initializers"), None, "not for an admin");
    let mut own = pod("s");
    own["metadata"]["initializers"] = json!({"pending": [{"name": "one.example.com"}]});
    assert_eq!(pending(&admin.post(&path, &own).await.ok()), ["one.example.com"]);
    own["metadata"]["initializers"] = json!({"pending": [{"name": "one"}]});
    refused(&admin.post(&path, &own).await, 422, "should be a domain with at least three segments");
}

#[tokio::test]
async fn an_object_that_is_deleted_while_it_waits_fails_its_creation() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let mut all = watch_all(&http).await;
    for path in [format!("{PODS}/p"), format!("{PODS}?labelSelector=app%3Dmyapp")] {
        let creation = begin(&http, PODS, pod("p"));
        assert_eq!(text(&all.next().await.unwrap(), "/type"), "ADDED");
        http.delete(&path).await.ok();
        refused(&creation.await.unwrap(), 500, "object deleted while waiting for creation");
        while text(&all.next().await.unwrap(), "/type") != "DELETED" {}
    }
}

#[tokio::test]
async fn who_does_not_answer_in_time_fails_the_creation_or_is_passed_over() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let timed = |name: &str, policy: &str| {
        let mut initializer = for_pods(name);
        initializer["timeoutSeconds"] = json!(1);
        initializer["failurePolicy"] = json!(policy);
        initializer
    };
    configure(&http, json!([timed(ENVOY, "Ignore"), timed(CHECK, "Fail")])).await;
    let mut all = watch_all(&http).await;
    let creation = begin(&http, PODS, pod("p"));
    let begun = all.next().await.unwrap()["object"]["metadata"]["initializers"]["current"].clone();
    assert_eq!((text(&begun, "/name"), text(&begun, "/failurePolicy")), (ENVOY, "Ignore"));
    let second = all.next().await.unwrap();
    assert_eq!(pending(&second["object"]), [CHECK], "the first was passed over");
    let answer = creation.await.unwrap();
    assert_eq!(answer.refusal(), (504, "Timeout".to_owned()));
    let want = format!(r#"pods "p" was not created: the initializer {CHECK} did not act on it within 1s"#);
    refused(&answer, 504, &want);
    assert_eq!(http.get(&format!("{PODS}/p")).await.code, 404);

    let events = async || {
        let list = http.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp").await.ok();
        let items = list["items"].as_array().unwrap().clone();
        let row = |event: &Value| (text(event, "/reason").to_owned(), text(event, "/message").to_owned());
        items.iter().map(row).collect::<Vec<_>>()
    };
    until(async || events().await.iter().filter(|(reason, _)| reason == "InitializerTimedOut").count() == 2).await;
    let said = events().await;
    assert!(said.iter().any(|(_, said)| said.contains(ENVOY) && said.ends_with("it was passed over")), "{said:?}");
    assert!(said.iter().any(|(reason, _)| reason == "WaitingForInitializer"), "{said:?}");
    let metrics = String::from_utf8(http.get("/metrics").await.bytes.to_vec()).unwrap();
    for line in [
        format!(r#"steersman_initializer_timeouts_total{{failure_policy="Ignore",initializer="{ENVOY}"}} 1"#),
        format!(r#"steersman_initializer_timeouts_total{{failure_policy="Fail",initializer="{CHECK}"}} 1"#),
        format!(r#"steersman_initializer_duration_seconds_count{{initializer="{CHECK}"}} 1"#),
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}\nis not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_configuration_says_who_is_waited_for() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY), for_pods(CHECK)])).await;
    let path = format!("{PODS}?includeUninitialized=true");
    http.post(&path, &pod("a")).await.ok();
    http.post(&path, &pod("b")).await.ok();
    let one = format!("{CONFIGURATIONS}/envoy-config");
    until(async || http.get(&one).await.ok()["status"] != json!({})).await;
    let status = http.get(&one).await.ok()["status"].clone();
    let row = &status["initializers"][0];
    assert_eq!((text(row, "/name"), row["waiting"].as_i64()), (ENVOY, Some(2)), "{status}");
    assert_eq!((text(row, "/oldest"), status["initializers"].as_array().unwrap().len()), ("pods default/a", 1));
    let request = Request::get(&one).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = http.raw(request.body(Full::<Bytes>::default()).unwrap()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!((&cells[1], &cells[2], &cells[3]), (&json!(format!("{ENVOY},{CHECK}")), &json!(2), &json!(ENVOY)));
    assert!(cells[4].as_str().unwrap().starts_with("pods default/a ("), "{cells:?}");
    // A client cannot set this status.
    let lie = json!({"status": {"initializers": []}});
    assert_eq!(http.merge(&one, &lie).await.ok()["status"], status);
    http.delete(PODS).await.ok();
    until(async || http.get(&one).await.ok()["status"] == json!({})).await;
}

#[tokio::test]
async fn a_configuration_is_in_force_when_its_writer_is_answered() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let one = format!("{CONFIGURATIONS}/envoy-config");
    for round in 0..20 {
        configure(&http, json!([for_pods(ENVOY)])).await;
        let created = http.post(&format!("{PODS}?includeUninitialized=true"), &pod(&format!("a-{round}"))).await.ok();
        assert_eq!(pending(&created), [ENVOY]);
        http.delete(&one).await.ok();
        let created = http.post(PODS, &pod(&format!("b-{round}"))).await.ok();
        assert_eq!(pending(&created), [""; 0]);
    }
}

#[tokio::test]
async fn what_waits_goes_on_after_a_restart() {
    let kv = Arc::new(Memory::new());
    let start = async || {
        let store = Store::open(kv.clone(), steersman_storage::Options::default()).await.unwrap();
        let served = RuntimeConfig::default().with_initializers();
        TestServer::of(store.clone(), Options { runtime_config: served, ..options(&store, Authorization::default()) })
            .await
    };
    let first = start().await;
    let http = first.http();
    let mut initializer = for_pods(ENVOY);
    initializer["timeoutSeconds"] = json!(2);
    configure(&http, json!([initializer])).await;
    let mut all = watch_all(&http).await;
    let creations = [begin(&http, PODS, pod("a")), begin(&http, PODS, pod("b"))];
    all.next().await.unwrap();
    all.next().await.unwrap();
    first.server.stop().await;
    for creation in creations {
        refused(&creation.await.unwrap(), 503, "waits for its initializers: it was stored, and goes on waiting");
    }

    let second = start().await;
    let http = second.http();
    assert_eq!(names(&http.get(PODS).await.ok()), [""; 0], "still hidden");
    let mut initialized = http.watch(&format!("{PODS}?resourceVersion=0")).await;
    let mut all = watch_all(&http).await;
    // The client that waited is gone, but its object is initialized.
    patch(&http, "b", &done(ENVOY)).await.ok();
    assert_eq!(initialized.next_name().await.unwrap(), ("ADDED".to_owned(), "b".to_owned()));
    http.delete(&format!("{CONFIGURATIONS}/envoy-config")).await.ok();
    // The deadline is from the creation, so the configuration is not needed for it.
    loop {
        let event = all.next_name().await.unwrap();
        if event == ("DELETED".to_owned(), "a".to_owned()) {
            break;
        }
    }
    second.server.stop().await;
}

#[tokio::test]
async fn creations_that_wait_hold_no_place_among_the_requests_in_flight() {
    for has_priority_and_fairness in [true, false] {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let concurrency = Concurrency { has_priority_and_fairness, reads_max: 4, writes_max: 1 };
        let served = RuntimeConfig::default().with_initializers();
        let options = Options { concurrency, runtime_config: served, ..options(&store, Authorization::default()) };
        let test = TestServer::of(store, options).await;
        let http = test.http();
        configure(&http, json!([for_pods(ENVOY)])).await;
        let mut all = watch_all(&http).await;
        let mut creations = BTreeMap::new();
        for n in 0..50 {
            let name = format!("p-{n}");
            creations.insert(name.clone(), begin(&http, PODS, pod(&name)));
            let (_, seen) = all.next_name().await.unwrap();
            assert_eq!(seen, name, "one after the other, none of which is answered");
        }
        let metrics = String::from_utf8(http.get("/metrics").await.bytes.to_vec()).unwrap();
        assert!(metrics.contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 0"), "{metrics}");
        for (name, creation) in creations {
            patch(&http, &name, &done(ENVOY)).await.ok();
            assert_eq!(creation.await.unwrap().code, 201);
        }
    }
}

#[tokio::test]
async fn a_creation_whose_client_went_is_not_waited_for() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let mut all = watch_all(&http).await;
    let creation = begin(&http, PODS, pod("p"));
    all.next().await.unwrap();
    let waiting = async || {
        let metrics = String::from_utf8(http.get("/metrics").await.bytes.to_vec()).unwrap();
        let line = metrics.lines().find(|line| line.starts_with("steersman_initializer_waiting_creations ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    until(async || waiting().await == 1).await;
    creation.abort();
    assert!(creation.await.unwrap_err().is_cancelled());
    assert_eq!(waiting().await, 0);
    patch(&http, "p", &done(ENVOY)).await.ok();
    assert_eq!(names(&http.get(PODS).await.ok()), ["p"], "what it wanted is done all the same");
}

#[tokio::test]
async fn pages_and_counts_are_those_of_what_is_shown() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let mut object = pod("x");
    object["metadata"]["initializers"] = json!({"pending": [{"name": ENVOY}]});
    for n in 0..6 {
        let mut object = if n % 2 == 0 { pod("x") } else { object.clone() };
        object["metadata"]["name"] = json!(format!("p-{n}"));
        http.post(&format!("{PODS}?includeUninitialized=true"), &object).await.ok();
    }
    let page = http.get(&format!("{PODS}?limit=2")).await.ok();
    assert_eq!(
        (names(&page), page["metadata"]["remainingItemCount"].as_i64()),
        (vec!["p-0".into(), "p-2".into()], Some(1))
    );
    patch(&http, "p-1", &done(ENVOY)).await.ok();
    let token = text(&page, "/metadata/continue");
    let rest = http.get(&format!("{PODS}?limit=2&continue={token}")).await.ok();
    assert_eq!((names(&rest), text(&rest, "/metadata/continue")), (vec!["p-4".to_owned()], ""), "as it was then");
    assert_eq!(text(&rest, "/metadata/resourceVersion"), text(&page, "/metadata/resourceVersion"));
    let all = http.get(&format!("{PODS}?limit=2&includeUninitialized=true")).await.ok();
    assert_eq!(all["metadata"]["remainingItemCount"].as_i64(), Some(4));
    let request = Request::get(PODS).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = http.raw(request.body(Full::<Bytes>::default()).unwrap()).await.ok();
    assert_eq!(table["rows"].as_array().unwrap().len(), 4);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let mut watch = http.watch(&format!("{PODS}?{initial}")).await;
    let seen: Vec<(String, String)> =
        [watch.next_name().await, watch.next_name().await, watch.next_name().await, watch.next_name().await]
            .into_iter()
            .flatten()
            .collect();
    assert_eq!(seen.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["p-0", "p-1", "p-2", "p-4"]);
    let bookmark = watch.next().await.unwrap();
    assert_eq!(text(&bookmark, "/type"), "BOOKMARK", "{bookmark}");
}

#[tokio::test]
async fn what_initializers_add_is_judged_as_if_its_creator_had() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"pods": "5", "requests.cpu": "1"});
    http.post(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    let used = json!({"pods": "0", "requests.cpu": "0"});
    http.merge(&format!("{quotas}/q/status"), &json!({"status": {"hard": hard, "used": used}})).await.ok();
    let used = async || http.get(&format!("{quotas}/q")).await.ok()["status"]["used"].clone();
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "400m"}});
    http.post(&format!("{PODS}?includeUninitialized=true"), &object).await.ok();
    assert_eq!(used().await, json!({"pods": "1", "requests.cpu": "400m"}));
    let add = |cpu: &str| json!({"spec": {"containers": [{"name": "envoy", "image": "e", "resources": {"requests": {"cpu": cpu}}}]}});
    refused(&patch(&http, "p", &add("700m")).await, 403, "exceeded quota: q, requested: requests.cpu=700m");
    patch(&http, "p", &add("500m")).await.ok();
    assert_eq!(used().await, json!({"pods": "1", "requests.cpu": "900m"}));
    refused(&patch(&http, "p", &json!({"spec": {"containers": [{"name": "A B", "image": "e"}]}})).await, 422, "A B");
    http.merge(
        "/api/v1/namespaces/default",
        &json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}),
    )
    .await
    .ok();
    let privileged = json!({"spec": {"containers": [{"name": "envoy", "securityContext": {"privileged": true}}]}});
    refused(&patch(&http, "p", &privileged).await, 403, "violates PodSecurity");
    patch(&http, "p", &done(ENVOY)).await.ok();
    let late =
        json!({"spec": {"containers": [{"name": "late", "image": "e", "resources": {"requests": {"cpu": "1m"}}}]}});
    refused(&patch(&http, "p", &late).await, 422, "pod updates may not add or remove containers");
}

#[tokio::test]
async fn an_annotation_asks_for_an_initializer_by_its_short_name() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([{"name": ENVOY}])).await;
    let asking = |name: &str, short: &str, value: &str| {
        let mut object = pod(name);
        object["metadata"]["annotations"] = json!({format!("initializer.kubernetes.io/{short}"): value});
        object
    };
    let path = format!("{PODS}?includeUninitialized=true");
    assert_eq!(pending(&http.post(&path, &asking("a", "envoy", "true")).await.ok()), [ENVOY]);
    assert_eq!(pending(&http.post(PODS, &asking("b", "envoy", "false")).await.ok()), [""; 0]);
    assert_eq!(pending(&http.post(PODS, &pod("c")).await.ok()), [""; 0]);
    let unknown = http.post(PODS, &asking("d", "nginx", "true")).await;
    let warning = unknown.header("warning").unwrap();
    assert!(warning.contains("no InitializerConfiguration names nginx.initializer.kubernetes.io"), "{warning}");
    unknown.ok();
}

#[tokio::test]
async fn some_things_never_wait() {
    let test = TestServer::initializing().await;
    let http = test.http();
    let all = json!([{"name": ENVOY, "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}]);
    configure(&http, all).await;
    let mut mirror = pod("static-n1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["spec"]["nodeName"] = json!("n1");
    assert_eq!(pending(&http.post(PODS, &mirror).await.ok()), [""; 0]);
    let policy = json!({"metadata": {"name": "w"}, "webhooks": []});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    http.post(webhooks, &policy).await.ok();
    let other = json!({"metadata": {"name": "other"}});
    http.post(CONFIGURATIONS, &other).await.ok();
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.ok();
    let mut given = other.clone();
    given["metadata"] = json!({"name": "third", "initializers": {"pending": [{"name": ENVOY}]}});
    refused(&http.post(CONFIGURATIONS, &given).await, 422, "objects of this kind are never initialized");
}

#[tokio::test]
async fn custom_resources_and_roles_wait_like_all_others() {
    let test = TestServer::initializing().await;
    let (http, alice) = (test.http(), test.http_as("alice"));
    let names_of = json!({"plural": "hats", "singular": "hat", "kind": "Hat"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}});
    let definition = json!({
        "metadata": {"name": "hats.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names_of,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    let rules = json!([
        {"apiGroups": ["example.com"], "apiVersions": ["*"], "resources": ["hats"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "resources": ["roles"]},
    ]);
    configure(&http, json!([{"name": ENVOY, "rules": rules}])).await;
    let hats = "/apis/example.com/v1/namespaces/default/hats";
    let hat = json!({"apiVersion": "example.com/v1", "kind": "Hat", "metadata": {"name": "h"}});
    assert_eq!(pending(&http.post(&format!("{hats}?includeUninitialized=true"), &hat).await.ok()), [ENVOY]);
    assert_eq!(names(&http.get(hats).await.ok()), [""; 0]);
    let done = json!({"metadata": {"initializers": null}});
    assert_eq!(http.merge(&format!("{hats}/h"), &done).await.ok()["metadata"].get("initializers"), None);
    assert_eq!(names(&http.get(hats).await.ok()), ["h"]);

    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": [{"kind": "User", "name": "alice"}]});
    http.post(&format!("{rbac}/rolebindings"), &binding).await.ok();
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    http.post(&format!("{rbac}/roles?includeUninitialized=true"), &role).await.ok();
    assert_eq!(alice.get(PODS).await.code, 403, "a role that waits grants nothing");
    http.merge(&format!("{rbac}/roles/r"), &done).await.ok();
    assert_eq!(alice.get(PODS).await.code, 200);
}

#[tokio::test]
async fn policies_see_what_initializers_do_as_the_update_that_it_is() {
    let test = TestServer::initializing().await;
    let http = test.http();
    configure(&http, json!([for_pods(ENVOY)])).await;
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for (name, operation, expression) in [
        ("few", "CREATE", "size(object.spec.containers) < 2"),
        ("known", "UPDATE", "oldObject.spec.containers[0].name == 'myapp-container'"),
    ] {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation]});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]});
        let policies = format!("{admission}/validatingadmissionpolicies");
        http.post(&policies, &json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        let spec = json!({"policyName": name, "validationActions": ["Deny"]});
        let bindings = format!("{admission}/validatingadmissionpolicybindings");
        http.post(&bindings, &json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    }
    http.post(&format!("{PODS}?includeUninitialized=true"), &pod("p")).await.ok();
    // The policy for creations has judged the object that the creator sent; the policy for updates also gets the
    // previous object.
    patch(&http, "p", &json!({"spec": {"containers": [{"name": "envoy", "image": "e"}]}})).await.ok();
    refused(
        &patch(&http, "p", &done(ENVOY)).await,
        422,
        "ValidatingAdmissionPolicy 'known' with binding 'known' denied",
    );
}

#[tokio::test]
async fn a_second_round_of_admission_does_not_take_initializers_for_the_creators() {
    let test = TestServer::initializing().await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]);
    admin.post(&format!("{rbac}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await.ok();
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let subjects = json!([{"kind": "User", "name": "alice"}]);
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects});
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.ok();
    configure(&admin, json!([for_pods(ENVOY)])).await;
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for name in ["one", "two"] {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
        let expression = format!("Object{{metadata: Object.metadata{{labels: {{'{name}': 'set'}}}}}}");
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "IfNeeded",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        });
        let policies = format!("{admission}/mutatingadmissionpolicies");
        admin.post(&policies, &json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        let bindings = format!("{admission}/mutatingadmissionpolicybindings");
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        admin.post(&bindings, &binding).await.ok();
    }
    let created = alice.post(&format!("{PODS}?includeUninitialized=true"), &pod("p")).await.ok();
    assert_eq!((pending(&created), text(&created, "/metadata/labels/one")), (vec![ENVOY], "set"));
}
