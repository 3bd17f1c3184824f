//! Admission webhooks: their requests, the effects of their answers, and the bounds for those that misbehave.

use crate::support::{Answer, CONFIGS, Options, TestServer, allow_all, config, options, text};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_server::admission::Plugins;
use steersman_server::webhook::Services;
use steersman_storage::{Memory, Store};
use tokio::net::TcpListener;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Answers a request to a webhook: its path, its headers, and the review in it.
type Answers = dyn Fn(String, HeaderMap, Value) -> BoxFuture<'static, Response<String>> + Send + Sync;

/// A server with webhooks beside it.
struct Hooks {
    test: TestServer,
    /// The path and the review of each call.
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Hooks {
    /// Starts the server. Each path is a separate webhook.
    async fn start(answers: impl Fn(&str, &Value) -> Response<String> + Send + Sync + 'static) -> Hooks {
        Hooks::serving(
            Arc::new(move |path, _, review| Box::pin(std::future::ready(answers(&path, &review)))),
            |options| options,
        )
        .await
    }

    async fn serving(answers: Arc<Answers>, change: impl FnOnce(Options) -> Options) -> Hooks {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, log) = (answers.clone(), log.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answers, log) = (answers.clone(), log.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let Ok(body) = body.collect().await else { return Ok(Response::default()) };
                        let review: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
                        let path = head.uri.path().to_owned();
                        log.lock().unwrap().push((path.clone(), review.clone()));
                        let answer = answers(path, head.headers, review).await;
                        Ok::<_, Infallible>(answer.map(|text| Full::new(Bytes::from(text))))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let mapping = format!("default/hook=http://{address}").parse().unwrap();
        let webhook_services = Services::new([mapping]).unwrap();
        let options = change(Options { webhook_services, ..options(&store, allow_all()) });
        Hooks { test: TestServer::of(store, options).await, asked }
    }

    async fn register(&self, path: &str, name: &str, webhooks: Value) {
        self.test.http().post(path, &configuration(name, webhooks)).await.ok();
    }

    /// The paths of the calls so far, which are then forgotten.
    fn paths(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap()).into_iter().map(|(path, _)| path).collect()
    }

    /// The request of the only call so far, which is then forgotten.
    #[track_caller]
    fn request(&self) -> Value {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0).1["request"].take()
    }

    async fn create(&self, name: &str) -> Answer {
        self.test.http().post(CONFIGS, &config(name)).await
    }
}

fn configuration(name: &str, webhooks: Value) -> Value {
    json!({"metadata": {"name": name}, "webhooks": webhooks})
}

/// A webhook at `/NAME` for ConfigMaps.
fn hook(name: &str, more: Value) -> Value {
    about(name, &["configmaps"], more)
}

fn about(name: &str, resources: &[&str], more: Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": format!("/{name}")}},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
        // The system's namespaces are excluded, because the server itself writes there.
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    hook
}

fn reviewed(review: &Value, response: Value) -> Response<String> {
    let mut response = response;
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    Response::new(
        json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}).to_string(),
    )
}

fn allow(review: &Value) -> Response<String> {
    reviewed(review, json!({"allowed": true}))
}

fn deny(review: &Value, why: &str) -> Response<String> {
    reviewed(review, json!({"allowed": false, "status": {"message": why, "reason": "Forbidden", "code": 403}}))
}

fn patch(review: &Value, operations: &Value) -> Response<String> {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    reviewed(review, json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
}

/// Sets `data.KEY`, whatever it was.
fn set(review: &Value, key: &str, value: &str) -> Response<String> {
    let mut data = review["request"]["object"]["data"].clone();
    if data.is_null() {
        data = json!({});
    }
    data[key] = value.into();
    patch(review, &json!([{"op": "add", "path": "/data", "value": data}]))
}

#[tokio::test]
async fn a_mutating_webhook_is_sent_the_write_and_changes_the_object() {
    let hooks = Hooks::start(|_, review| set(review, "a", "b")).await;
    hooks.register(MUTATING, "one", json!([hook("a", json!({}))])).await;
    let created = hooks.test.http_as("bob").post(&format!("{CONFIGS}?fieldManager=me"), &config("c")).await.ok();
    assert_eq!(created["data"], json!({"a": "b"}));
    let stored = hooks.test.http().get(&format!("{CONFIGS}/c")).await.ok();
    assert_eq!(stored, created);
    let fields = stored["metadata"]["managedFields"].to_string();
    assert!(!fields.contains("f:data"), "what a webhook sets has no owner: {fields}");
    let request = hooks.request();
    let gvk = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let gvr = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!((&request["kind"], &request["requestKind"]), (&gvk, &gvk));
    assert_eq!((&request["resource"], &request["requestResource"]), (&gvr, &gvr));
    assert_eq!((text(&request, "/name"), text(&request, "/namespace")), ("c", "default"));
    assert_eq!((text(&request, "/operation"), &request["dryRun"]), ("CREATE", &json!(false)));
    assert_eq!(request["userInfo"], json!({"username": "bob", "groups": ["system:authenticated"]}));
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(text(&request, "/object/metadata/name"), "c");
    assert_eq!(text(&request, "/object/kind"), "ConfigMap");
    assert_eq!(
        request["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );
    assert!(uuid::Uuid::parse_str(text(&request, "/uid")).is_ok());
}

#[tokio::test]
async fn what_a_webhook_makes_is_defaulted_and_has_no_unknown_fields() {
    let hooks = Hooks::start(|_, review| {
        let container = json!({"name": "side", "image": "side:1", "fly": true});
        patch(review, &json!([{"op": "add", "path": "/spec/containers/-", "value": container}]))
    })
    .await;
    hooks.register(MUTATING, "one", json!([about("a", &["pods"], json!({}))])).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    let pod = hooks.test.http().post("/api/v1/namespaces/default/pods", &pod).await.ok();
    let side = &pod["spec"]["containers"][1];
    assert_eq!((text(side, "/name"), text(side, "/terminationMessagePolicy")), ("side", "File"));
    assert_eq!(side.get("fly"), None);
}

#[tokio::test]
async fn webhooks_are_called_in_the_order_of_their_configurations_and_again_if_they_want() {
    let hooks = Hooks::start(|path, review| match path {
        // They set the same field to different values.
        "/a" | "/b" => set(review, "who", path),
        _ => allow(review),
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    hooks.register(MUTATING, "2", json!([hook("b", again.clone()), hook("c", json!({}))])).await;
    hooks.register(MUTATING, "1", json!([hook("z", json!({})), hook("a", again.clone())])).await;
    let created = hooks.create("x").await.ok();
    assert_eq!(created["data"]["who"], "/b");
    assert_eq!(hooks.paths(), ["/z", "/a", "/b", "/c", "/a", "/b"], "there is one more round and no third");
}

#[tokio::test]
async fn a_webhook_is_not_called_again_if_nothing_came_after_it() {
    let hooks = Hooks::start(|path, review| if path == "/a" { set(review, "a", "b") } else { allow(review) }).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    hooks.register(MUTATING, "1", json!([hook("a", again.clone()), hook("b", again)])).await;
    hooks.create("x").await.ok();
    assert_eq!(hooks.paths(), ["/a", "/b"]);
}

#[tokio::test]
async fn a_validating_webhook_sees_the_whole_object_and_its_refusal_is_the_answer() {
    let hooks = Hooks::start(|path, review| match path {
        "/a" => allow(review),
        _ => deny(review, "no"),
    })
    .await;
    hooks.register(VALIDATING, "one", json!([hook("a", json!({}))])).await;
    hooks.test.http().post(CONFIGS, &json!({"metadata": {"generateName": "c-"}})).await.ok();
    let request = hooks.request();
    assert!(text(&request, "/name").starts_with("c-") && text(&request, "/name").len() == 7);
    assert!(!text(&request, "/object/metadata/uid").is_empty());
    hooks.register(VALIDATING, "two", json!([hook("b", json!({}))])).await;
    let refused = hooks.create("x").await;
    assert_eq!(refused.refusal(), (403, "Forbidden".to_owned()));
    assert_eq!(refused.json()["message"], "admission webhook \"b.example.com\" denied the request: no");
    assert_eq!(hooks.test.http().get(&format!("{CONFIGS}/x")).await.code, 404);
}

#[tokio::test]
async fn of_several_refusals_the_first_counts_and_warnings_of_all_come() {
    let hooks = Hooks::start(|path, review| {
        let status = json!({"message": path});
        reviewed(review, json!({"allowed": false, "status": status, "warnings": [format!("careful {path}")]}))
    })
    .await;
    hooks.register(VALIDATING, "2", json!([hook("c", json!({}))])).await;
    hooks.register(VALIDATING, "1", json!([hook("b", json!({})), hook("a", json!({}))])).await;
    let refused = hooks.create("x").await;
    assert_eq!(refused.code, 400);
    assert_eq!(refused.json()["message"], "admission webhook \"b.example.com\" denied the request: /b");
    let warnings: Vec<_> = refused.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(warnings, ["299 - \"careful /b\"", "299 - \"careful /a\"", "299 - \"careful /c\""]);
    assert_eq!(hooks.paths().len(), 3);
}

#[tokio::test]
async fn a_deletion_is_sent_with_the_object_and_may_be_refused() {
    let hooks = Hooks::start(|path, review| {
        let name = text(review, "/request/oldObject/metadata/name");
        let is_kept = path == "/a" && name == "kept";
        let status = json!({"message": "keep it", "reason": "Forbidden", "code": 403});
        reviewed(review, json!({"allowed": !is_kept, "status": status, "warnings": ["seen"]}))
    })
    .await;
    for name in ["kept", "x", "y"] {
        hooks.create(name).await.ok();
    }
    for path in [MUTATING, VALIDATING] {
        hooks.register(path, "one", json!([hook("a", json!({}))])).await;
        let refused = hooks.test.http().delete(&format!("{CONFIGS}/kept")).await;
        let request = hooks.request();
        assert_eq!((text(&request, "/operation"), &request["object"]), ("DELETE", &Value::Null));
        assert_eq!(text(&request, "/oldObject/metadata/name"), "kept");
        assert_eq!(text(&request, "/options/kind"), "DeleteOptions");
        assert_eq!(refused.refusal(), (403, "Forbidden".to_owned()));
        hooks.test.http().delete(&format!("{path}/one")).await.ok();
    }
    hooks.register(VALIDATING, "one", json!([hook("a", json!({}))])).await;
    let refused = hooks.test.http().delete(CONFIGS).await;
    assert_eq!(refused.code, 403);
    assert_eq!(refused.header("warning"), Some("299 - \"seen\""));
    assert!(hooks.test.http().get(&format!("{CONFIGS}/kept")).await.code == 200);
    assert!(hooks.paths().len() >= 3);
}

#[tokio::test]
async fn a_write_of_another_version_is_converted_there_and_back() {
    let hooks = Hooks::start(|_, review| {
        let patches = json!([
            {"op": "test", "path": "/deprecatedCount", "value": 3},
            {"op": "replace", "path": "/note", "value": "changed"},
        ]);
        patch(review, &patches)
    })
    .await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    hooks.register(MUTATING, "one", json!([hook("a", json!({"rules": rules}))])).await;
    hooks.register(MUTATING, "two", json!([hook("b", json!({"rules": rules, "matchPolicy": "Exact"}))])).await;
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "as it was", "reason": "Why", "count": 3, "type": "Normal", "source": {"component": "me"},
    });
    let created = hooks.test.http().post("/api/v1/namespaces/default/events", &event).await.ok();
    assert_eq!((text(&created, "/message"), &created["count"]), ("changed", &json!(3)));
    let request = hooks.request();
    assert_eq!(text(&request, "/kind/group"), "events.k8s.io");
    assert_eq!((text(&request, "/requestKind/group"), text(&request, "/requestKind/version")), ("", "v1"));
    assert_eq!(text(&request, "/object/apiVersion"), "events.k8s.io/v1");
}

#[tokio::test]
async fn a_dry_run_only_asks_webhooks_without_side_effects() {
    let hooks = Hooks::start(|_, review| allow(review)).await;
    hooks.register(VALIDATING, "one", json!([hook("a", json!({"sideEffects": "NoneOnDryRun"}))])).await;
    hooks.test.http().post(&format!("{CONFIGS}?dryRun=All"), &config("x")).await.ok();
    let request = hooks.request();
    assert_eq!((&request["dryRun"], &request["options"]["dryRun"]), (&json!(true), &json!(["All"])));
}

#[tokio::test]
async fn a_webhook_that_fails_is_fatal_or_ignored_as_it_says() {
    let hooks = Hooks::start(|_, _| Response::builder().status(503).body("later".to_owned()).unwrap()).await;
    hooks.register(MUTATING, "one", json!([hook("a", json!({"failurePolicy": "Ignore"}))])).await;
    hooks.register(VALIDATING, "one", json!([hook("b", json!({"failurePolicy": "Ignore"}))])).await;
    hooks.create("x").await.ok();
    assert_eq!(hooks.paths(), ["/a", "/b"]);
    hooks.register(VALIDATING, "two", json!([hook("c", json!({}))])).await;
    let failed = hooks.create("y").await;
    assert_eq!(failed.refusal(), (500, "InternalError".to_owned()));
    assert_eq!(
        failed.json()["message"],
        "Internal error occurred: failed calling webhook \"c.example.com\": failed to call webhook: Post \"https://hook.default.svc:443/c?timeout=5s\": the webhook answers 503 Service Unavailable: later"
    );
    let metrics = hooks.test.http().get("/metrics").await.body_text();
    for line in [
        "apiserver_admission_webhook_fail_open_count{name=\"a.example.com\",type=\"admit\"} 2",
        "apiserver_admission_webhook_request_total{code=\"503\",name=\"b.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 2",
        "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"c.example.com\",operation=\"CREATE\",rejection_code=\"503\",type=\"validating\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}\nis not in\n{metrics}");
    }
}

#[tokio::test]
async fn what_a_configuration_says_is_in_force_when_its_write_is_answered() {
    let hooks = Hooks::start(|_, review| deny(review, "no")).await;
    let http = hooks.test.http();
    for n in 0..20 {
        let name = format!("c{n}");
        hooks.register(VALIDATING, &name, json!([hook("a", json!({}))])).await;
        assert_eq!(hooks.create("x").await.code, 403, "{n}");
        http.delete(&format!("{VALIDATING}/{name}")).await.ok();
        hooks.test.http().post(&format!("{CONFIGS}?dryRun=All"), &config("x")).await.ok();
    }
}

#[tokio::test]
async fn no_webhook_is_asked_about_webhooks_or_by_the_server_itself() {
    let hooks = Hooks::start(|_, review| deny(review, "nothing at all")).await;
    let all = about("a", &["*/*"], json!({}));
    hooks.register(VALIDATING, "all", json!([all.clone()])).await;
    hooks.register(MUTATING, "all", json!([all])).await;
    assert_eq!(hooks.create("x").await.code, 403);
    let http = hooks.test.http();
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    http.merge(&format!("{VALIDATING}/all"), &change).await.ok();
    assert_eq!(http.get("/readyz").await.code, 200);
    for path in [VALIDATING, MUTATING] {
        http.delete(&format!("{path}/all")).await.ok();
    }
    hooks.create("x").await.ok();
}

#[tokio::test]
async fn a_switched_off_plugin_calls_nobody() {
    let answers: Arc<Answers> = Arc::new(|_, _, review| Box::pin(std::future::ready(deny(&review, "no"))));
    let disabled = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];
    let admission = Plugins::default().with(&[], &disabled).unwrap();
    let hooks = Hooks::serving(answers, |options| Options { admission, ..options }).await;
    for path in [MUTATING, VALIDATING] {
        hooks.register(path, "one", json!([hook("a", json!({}))])).await;
    }
    hooks.create("x").await.ok();
    assert!(hooks.paths().is_empty());
}

#[tokio::test]
async fn conditions_and_selectors_say_which_writes_are_sent() {
    let hooks = Hooks::start(|_, review| deny(review, "no")).await;
    let conditions = json!([
        {"name": "data", "expression": "has(object.data) && object.data.a == 'b'"},
        {"name": "user", "expression": "request.userInfo.username == 'admin'"},
    ]);
    let only = json!({"matchConditions": conditions, "objectSelector": {"matchLabels": {"seen": "yes"}}});
    hooks.register(VALIDATING, "one", json!([hook("a", only)])).await;
    let object =
        |label: &str, data: &str| json!({"metadata": {"name": "x", "labels": {"seen": label}}, "data": {"a": data}});
    let http = hooks.test.http();
    let dry = format!("{CONFIGS}?dryRun=All");
    http.post(&dry, &object("no", "b")).await.ok();
    http.post(&dry, &object("yes", "c")).await.ok();
    hooks.test.http_as("bob").post(&dry, &object("yes", "b")).await.ok();
    assert!(hooks.paths().is_empty());
    assert_eq!(http.post(&dry, &object("yes", "b")).await.code, 403);
    assert!(http.get("/metrics").await.body_text().contains(
        "apiserver_admission_match_condition_exclusions_total{kind=\"webhook\",name=\"a.example.com\",operation=\"CREATE\",type=\"validating\"} 2"
    ));
}

#[tokio::test]
async fn subresources_are_sent_as_what_they_take() {
    let hooks = Hooks::start(|_, review| allow(review)).await;
    let http = hooks.test.http();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    http.post("/api/v1/namespaces/default/pods", &pod).await.ok();
    let of_pods = json!([about("a", &["pods/*"], json!({}))]);
    hooks.register(VALIDATING, "one", of_pods).await;
    let status = json!({"status": {"phase": "Running"}});
    http.merge("/api/v1/namespaces/default/pods/p/status", &status).await.ok();
    let request = hooks.request();
    assert_eq!((text(&request, "/subResource"), text(&request, "/requestSubResource")), ("status", "status"));
    assert_eq!((text(&request, "/operation"), text(&request, "/object/status/phase")), ("UPDATE", "Running"));
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=ls&command=-l&stdout=true&container=main";
    http.post(exec, &json!({})).await;
    let request = hooks.request();
    assert_eq!((text(&request, "/operation"), text(&request, "/kind/kind")), ("CONNECT", "PodExecOptions"));
    let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "main", "command": ["ls", "-l"]});
    assert_eq!((&request["object"], &request["options"]), (&options, &Value::Null));
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}});
    http.post("/api/v1/namespaces/default/pods/p/eviction", &eviction).await.ok();
    let request = hooks.request();
    assert_eq!((text(&request, "/operation"), text(&request, "/kind/kind")), ("CREATE", "Eviction"));
    assert_eq!(text(&request, "/subResource"), "eviction");
}

#[tokio::test]
async fn a_write_of_a_scale_is_sent_as_a_scale_and_may_be_changed() {
    let hooks = Hooks::start(|path, review| match path {
        "/a" => patch(review, &json!([{"op": "replace", "path": "/spec/replicas", "value": 3}])),
        _ => allow(review),
    })
    .await;
    let http = hooks.test.http();
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    http.post(deployments, &deployment).await.ok();
    for (path, name) in [(MUTATING, "a"), (VALIDATING, "b")] {
        hooks.register(path, "one", json!([about(name, &["deployments/scale"], json!({}))])).await;
    }
    let scale = json!({"spec": {"replicas": 9}});
    let scaled = http.merge(&format!("{deployments}/d/scale"), &scale).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 3);
    let asked = std::mem::take(&mut *hooks.asked.lock().unwrap());
    let replicas: Vec<_> = asked
        .iter()
        .map(|(path, review)| (path.as_str(), review["request"]["object"]["spec"]["replicas"].clone()))
        .collect();
    assert_eq!(replicas, [("/a", json!(9)), ("/b", json!(3))]);
    for (_, review) in &asked {
        assert_eq!(text(review, "/request/kind/kind"), "Scale");
        assert_eq!(text(review, "/request/object/kind"), "Scale");
        assert_eq!(review["request"]["oldObject"]["spec"]["replicas"], 1);
    }
    let stored = http.get(&format!("{deployments}/d")).await.ok();
    assert_eq!(
        (&stored["spec"]["replicas"], text(&stored, "/spec/template/spec/containers/0/name")),
        (&json!(3), "main")
    );
}

// === webhooks that misbehave ===

/// The answer to a client when a mutating webhook answers like this; nothing may be stored.
async fn refused_with(answers: impl Fn(&Value) -> Response<String> + Send + Sync + 'static) -> (u16, String) {
    let hooks = Hooks::start(move |_, review| answers(review)).await;
    hooks.register(MUTATING, "one", json!([hook("a", json!({}))])).await;
    let refused = hooks.create("x").await;
    assert_eq!(hooks.test.http().get(&format!("{CONFIGS}/x")).await.code, 404);
    let message = text(&refused.json(), "/message").to_owned();
    assert!(message.contains("\"a.example.com\""), "{message}");
    (refused.code, message)
}

#[tokio::test]
async fn an_answer_that_is_wrong_stores_nothing_and_names_the_webhook() {
    let check = |(code, message): (u16, String), want: &str| {
        assert_eq!(code, 500, "{message}");
        assert!(message.contains(want), "{message}");
    };
    let away = |_: &Value| {
        Response::builder().status(302).header("location", "https://elsewhere/").body(String::new()).unwrap()
    };
    check(refused_with(away).await, "a redirect to \"https://elsewhere/\": it is not followed");
    let other = |review: &Value| reviewed(review, json!({"uid": "other", "allowed": true}));
    check(refused_with(other).await, "got \"other\"");
    let long = |review: &Value| reviewed(review, json!({"allowed": true, "warnings": ["x".repeat(8 << 20)]}));
    check(refused_with(long).await, "the answer has more than 3145728 bytes");
    check(refused_with(|_| Response::new("no JSON".to_owned())).await, "the answer is no AdmissionReview");
    let deep = |_: &Value| Response::new("[".repeat(1 << 20));
    check(refused_with(deep).await, "the answer is no AdmissionReview");
    let nowhere = |review: &Value| patch(review, &json!([{"op": "replace", "path": "/a/b/c", "value": 1}]));
    check(refused_with(nowhere).await, "sent a patch that cannot be applied: operation 0");
    let no_patch = |review: &Value| patch(review, &json!({"a": "b"}));
    check(refused_with(no_patch).await, "sent a patch that cannot be read");
    let number = |review: &Value| patch(review, &json!([{"op": "add", "path": "/data", "value": 5}]));
    check(refused_with(number).await, "made an object that cannot be read");
    let kind = |review: &Value| patch(review, &json!([{"op": "add", "path": "/kind", "value": "Secret"}]));
    check(refused_with(kind).await, "changed kind");
    let whole = |review: &Value| patch(review, &json!([{"op": "replace", "path": "", "value": null}]));
    check(refused_with(whole).await, "sent a patch that cannot be applied: operation 0");
}

#[tokio::test]
async fn a_patch_that_needs_more_than_the_request_may_is_refused_as_that_and_blames_nobody() {
    let bomb = |review: &Value| {
        // Each operation doubles the object.
        let copies = (0..40).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")}));
        let mut operations = vec![json!({"op": "add", "path": "/data", "value": {"a": "bcdefgh"}})];
        operations.extend(copies);
        patch(review, &Value::Array(operations))
    };
    let steps = |review: &Value| {
        let list = json!({"op": "add", "path": "/data", "value": {"list": vec![1; 200_000]}});
        let shift = json!({"op": "move", "from": "/data/list/-1", "path": "/data/list/0"});
        let mut operations = vec![shift; 9000];
        operations.insert(0, list);
        patch(review, &Value::Array(operations))
    };
    let (code, message) = refused_with(bomb).await;
    assert_eq!(code, 413);
    assert_eq!(
        message,
        "the patch of the admission webhook \"a.example.com\" is not applied: the object, with its defaults set, takes more than the 36 MiB of memory \
         that one request may use: split it into several objects"
    );
    let (code, message) = refused_with(steps).await;
    assert_eq!(code, 413);
    assert!(message.contains("the request needs more than the 100000000 steps"), "{message}");
}

#[tokio::test]
async fn a_webhook_that_moves_an_object_is_refused() {
    let hooks = Hooks::start(|_, review| {
        patch(review, &json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]))
    })
    .await;
    hooks.register(MUTATING, "one", json!([hook("a", json!({}))])).await;
    let refused = hooks.create("x").await;
    assert_eq!(refused.refusal(), (400, "BadRequest".to_owned()));
    assert_eq!(hooks.test.http().get("/api/v1/namespaces/kube-system/configmaps/x").await.code, 404);
}

#[tokio::test]
async fn owners_of_fields_that_a_webhook_spoils_stay_as_they_were() {
    let hooks = Hooks::start(|_, review| {
        let spoilt = json!([{"manager": "x", "operation": "Fly", "apiVersion": "v1", "fieldsType": "FieldsV1"}]);
        patch(review, &json!([{"op": "add", "path": "/metadata/managedFields", "value": spoilt}]))
    })
    .await;
    hooks.register(MUTATING, "one", json!([hook("a", json!({}))])).await;
    let created = hooks.test.http().post(CONFIGS, &json!({"metadata": {"name": "x"}, "data": {"a": "b"}})).await;
    assert!(
        created.header("warning").unwrap().contains(".metadata.managedFields was in an invalid state after admission")
    );
    let created = created.ok();
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Update");
}

#[tokio::test]
async fn a_webhook_that_never_answers_costs_its_timeout_and_others_go_on() {
    let answers: Arc<Answers> = Arc::new(|path, _, review| {
        Box::pin(async move {
            if path == "/never" {
                std::future::pending::<()>().await;
            }
            allow(&review)
        })
    });
    let hooks = Hooks::serving(answers, |options| options).await;
    let one_second = json!({"timeoutSeconds": 1});
    hooks.register(VALIDATING, "one", json!([hook("never", one_second), hook("b", json!({}))])).await;
    let begun = tokio::time::Instant::now();
    let http = hooks.test.http();
    let (failed, pods) = tokio::join!(hooks.create("x"), http.get("/api/v1/pods"));
    assert_eq!(pods.code, 200);
    let message = failed.json()["message"].clone();
    let want = "failed calling webhook \"never.example.com\": failed to call webhook: Post \"https://hook.default.svc:443/never?timeout=1s\": context deadline exceeded";
    assert!(message.as_str().unwrap().contains(want), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(4));
    // The time limit of the request applies too.
    hooks.test.http().delete(&format!("{VALIDATING}/one")).await.ok();
    hooks
        .register(MUTATING, "one", json!([hook("never", json!({"timeoutSeconds": 30, "failurePolicy": "Ignore"}))]))
        .await;
    let late = hooks.test.http().post(&format!("{CONFIGS}?timeout=300ms"), &config("y")).await;
    assert_eq!(late.code, 504);
    assert_eq!(hooks.test.http().get(&format!("{CONFIGS}/y")).await.code, 404);
}

#[tokio::test]
async fn a_review_that_comes_back_to_the_server_is_refused() {
    // The webhook forwards its requests to the API server, as if its URL were the server's.
    let test: Arc<Mutex<Option<crate::support::Http>>> = Arc::default();
    let target = test.clone();
    let answers: Arc<Answers> = Arc::new(move |_, headers, review| {
        let http = target.lock().unwrap().clone().unwrap();
        Box::pin(async move {
            let mut request = Request::post(CONFIGS).body(Full::new(Bytes::from(review.to_string()))).unwrap();
            *request.headers_mut() = headers;
            let answer = http.raw(request).await;
            Response::builder().status(answer.code).body(answer.body_text()).unwrap()
        })
    });
    let hooks = Hooks::serving(answers, |options| options).await;
    *test.lock().unwrap() = Some(hooks.test.http());
    hooks.register(MUTATING, "one", json!([hook("a", json!({}))])).await;
    let refused = hooks.create("x").await;
    let message = refused.json()["message"].clone();
    assert!(message.as_str().unwrap().contains("the URL of the webhook leads back to the server"), "{message}");
    assert_eq!(hooks.paths(), ["/a"]);
}
