//! Conversion webhooks: a small server that converts kites correctly or not, and the effects for clients.

use crate::custom::definitions::DEFINITIONS;
use crate::support::{Answer, Http, Options, TestServer, allow_all, names, options, text, version};
use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_server::webhook::Services;
use steersman_storage::{Memory, Store};
use tokio::net::TcpListener;

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kites.example.com";
/// Kites of the storage version, which have `spec.length`, and of the other one, where the field is `spec.size`.
const V1: &str = "/apis/example.com/v1/namespaces/default/kites";
const V2: &str = "/apis/example.com/v2/namespaces/default/kites";

/// Changes a correct answer before it is sent.
type Spoil = fn(&mut Value);

#[derive(Clone)]
struct Hook {
    state: Arc<Mutex<HookState>>,
}

struct HookState {
    is_down: bool,
    spoil: Spoil,
    /// The number of objects of each call, with the requested version.
    calls: Vec<(usize, String)>,
}

/// A test with the definition of kites and the webhook that converts them.
struct Kites {
    test: TestServer,
    http: Http,
    hook: Hook,
}

impl Hook {
    fn calls(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    fn set_spoil(&self, spoil: Spoil) {
        self.state.lock().unwrap().spoil = spoil;
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let wanted = text(&review, "/request/desiredAPIVersion").to_owned();
        let objects = review["request"]["objects"].as_array().unwrap();
        let mut state = self.state.lock().unwrap();
        state.calls.push((objects.len(), wanted.clone()));
        if state.is_down {
            return Ok(Response::builder().status(500).body(Full::from("out of order")).unwrap());
        }
        let converted: Vec<Value> = objects.iter().map(|object| convert(object.clone(), &wanted)).collect();
        let mut answer = json!({
            "apiVersion": review["apiVersion"], "kind": "ConversionReview",
            "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": converted},
        });
        (state.spoil)(&mut answer);
        Ok(Response::new(Full::from(answer.to_string())))
    }
}

fn convert(mut object: Value, wanted: &str) -> Value {
    let (from, to) = if wanted == "example.com/v1" { ("size", "length") } else { ("length", "size") };
    object["apiVersion"] = wanted.into();
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(length) = spec.remove(from)
    {
        spec.insert(to.to_owned(), length);
    }
    // Neither version has this field: it is pruned.
    object["spec"]["leftover"] = true.into();
    object["metadata"]["annotations"] = json!({"converted-to": wanted});
    object
}

fn definition(storage: &str) -> Value {
    let version = |name: &str, field: &str, more: Value| {
        let mut spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        spec["properties"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({
            "name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            "additionalPrinterColumns": [{"name": field, "type": "integer", "jsonPath": format!(".spec.{field}")}],
        })
    };
    let service = json!({"namespace": "default", "name": "kite-hook", "path": "/convert"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "kites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "kites", "singular": "kite", "kind": "Kite", "listKind": "KiteList"},
            "versions": [
                version("v1", "length", json!({})),
                version("v2", "size", json!({"color": {"type": "string", "default": "red"}})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"service": service}, "conversionReviewVersions": ["v9", "v1", "v1beta1"]}},
        },
    })
}

async fn kites() -> Kites {
    let hook = Hook { state: Arc::new(Mutex::new(HookState { is_down: false, spoil: |_| {}, calls: Vec::new() })) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = hook.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let hook = answering.clone();
            let service = service_fn(move |request| hook.clone().answer(request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let store = Store::open(Arc::new(Memory::new()), Default::default()).await.unwrap();
    let mapping = format!("default/kite-hook=http://{address}").parse().unwrap();
    let webhook_services = Services::new([mapping]).unwrap();
    let test = TestServer::of(store.clone(), Options { webhook_services, ..options(&store, allow_all()) }).await;
    let http = test.http();
    http.post(DEFINITIONS, &definition("v1")).await.ok();
    Kites { test, http, hook }
}

fn kite_v1(name: &str, length: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": name}, "spec": {"length": length}})
}

fn kite_v2(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Kite", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn apply(http: &Http, path: &str, manager: &str, object: &Value) -> Answer {
    let path = format!("{path}?fieldManager={manager}");
    http.send(Method::PATCH, &path, "application/apply-patch+yaml", object.to_string()).await
}

/// The object in its stored form.
async fn stored(test: &TestServer, name: &str) -> Value {
    let (kites, key) = (GroupResource::new("example.com", "kites"), ObjectKey::namespaced("default", name));
    let found = test.store.get(&kites, &key).await.unwrap();
    serde_json::from_slice(found.unwrap().json()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_and_written_in_every_version_and_stored_in_one() {
    let Kites { test, http, hook } = kites().await;
    let made = http.post(V2, &kite_v2("a", 3)).await.ok();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v2"), &json!({"size": 3, "color": "red"})));
    let at_rest = stored(&test, "a").await;
    assert_eq!((&at_rest["apiVersion"], &at_rest["spec"]), (&json!("example.com/v1"), &json!({"length": 3})));
    assert_eq!(at_rest["metadata"]["uid"], made["metadata"]["uid"]);
    hook.calls();

    let read = http.get(&format!("{V1}/a")).await.ok();
    assert_eq!(read["spec"], json!({"length": 3}));
    assert_eq!(hook.calls(), [], "in the version that it is stored in it is not converted");

    let changed = http.merge(&format!("{V2}/a"), &json!({"spec": {"size": 4, "color": "blue"}})).await.ok();
    assert_eq!(changed["spec"], json!({"size": 4, "color": "red"}), "the stored version has no color");
    assert_eq!(stored(&test, "a").await["spec"], json!({"length": 4}));

    let request = Request::get(V2).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = http.raw(request.body(Full::<Bytes>::default()).unwrap()).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 4]));
    http.delete(&format!("{V2}/a")).await.ok();
    assert_eq!(http.get(&format!("{V1}/a")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_converted_with_few_calls_and_keeps_its_order() {
    let Kites { http, hook, .. } = kites().await;
    for index in 0..70 {
        http.post(V1, &kite_v1(&format!("k{index:03}"), index)).await.ok();
    }
    assert_eq!(hook.calls(), []);
    let list = http.get(V2).await.ok();
    let expected: Vec<String> = (0..70).map(|index| format!("k{index:03}")).collect();
    assert_eq!(names(&list), expected);
    assert_eq!(list["items"][42]["spec"], json!({"size": 42, "color": "red"}));
    let calls = hook.calls();
    assert_eq!(calls.iter().map(|(n, _)| n).sum::<usize>(), 70);
    assert!(calls.len() <= 4, "{calls:?}");
    http.get(V2).await.ok();
    assert_eq!(hook.calls(), [], "what was converted a moment ago is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watches_of_another_version_cost_one_call_for_each_event() {
    let Kites { http, hook, .. } = kites().await;
    let from = version(&http.get(V1).await.ok());
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(http.watch(&format!("{V2}?resourceVersion={from}")).await);
    }
    // A call that began and was dropped counts as a call. Threads decide whether that happens, so several events are
    // tried.
    for size in 0..10 {
        http.post(V1, &kite_v1(&format!("k{size}"), size)).await.ok();
        let events = watches.iter_mut().map(|watch| watch.next());
        for event in futures::future::join_all(events).await {
            let event = event.unwrap();
            assert_eq!((text(&event, "/type"), &event["object"]["spec"]["size"]), ("ADDED", &json!(size)));
            assert_eq!(event["object"]["apiVersion"], "example.com/v2");
        }
        assert_eq!(hook.calls(), [(1, "example.com/v2".to_owned())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_down_concerns_only_who_needs_it() {
    let Kites { http, hook, .. } = kites().await;
    http.post(V1, &kite_v1("a", 1)).await.ok();
    let from = version(&http.get(V1).await.ok());
    let mut watch = http.watch(&format!("{V2}?resourceVersion={from}")).await;
    hook.set_down(true);

    http.post(V1, &kite_v1("b", 2)).await.ok();
    assert_eq!(names(&http.get(V1).await.ok()), ["a", "b"]);
    let refused = http.get(&format!("{V2}/a")).await;
    assert_eq!(refused.code, 500);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "conversion webhook for example.com/v1, Kind=Kite failed: Post \"https://kite-hook.default.svc:443/convert?timeout=30s\": \
         the webhook answers 500 Internal Server Error: out of order: converting default/a"
    );
    assert_eq!(http.get(V2).await.code, 500);
    assert_eq!(http.post(V2, &kite_v2("c", 3)).await.code, 500);
    assert_eq!(http.get(&format!("{V1}/c")).await.code, 404, "nothing is stored");
    let event = watch.next().await.unwrap();
    assert_eq!((text(&event, "/type"), &event["object"]["code"]), ("ERROR", &json!(500)));
    assert!(watch.next().await.is_none());
    // Requests that need not read the object need no webhook.
    http.delete(&format!("{V2}/b")).await;
    assert_eq!(http.get(&format!("{V1}/b")).await.code, 404);

    hook.set_down(false);
    assert_eq!(http.get(&format!("{V2}/a")).await.ok()["spec"]["size"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_none_is_refused_in_upstreams_words() {
    let Kites { http, hook, .. } = kites().await;
    http.post(V1, &kite_v1("a", 1)).await.ok();
    let cases: [(Spoil, &str); 12] = [
        (|answer| answer["response"]["uid"] = "other".into(), "failed: expected response.uid="),
        (
            |answer| answer["kind"] = "Pod".into(),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Pod",
        ),
        (|answer| answer["response"] = Value::Null, "failed: no response provided"),
        (
            |answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no kites today"}),
            "failed: no kites today",
        ),
        (|answer| answer["response"]["result"] = json!({}), "failed: response.result.status was '', not 'Success'"),
        (|answer| answer["response"]["convertedObjects"] = json!([]), "returned 0 objects, expected 1"),
        (
            |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v3".into(),
            "returned invalid converted object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["kind"] = "Hat".into(),
            "returned invalid converted object at index 0: invalid kind (expected Kite, received Hat)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            "returned invalid converted object at index 0: must have the same name: a != b",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["uid"] = "b".into(),
            "returned invalid converted object at index 0: must have the same UID:",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": 1}),
            "returned invalid metadata in object at index 0: metadata.labels[a] must be a string",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a b": "c"}),
            "returned invalid metadata in object at index 0: metadata.labels: Invalid value: \"a b\"",
        ),
    ];
    for (spoil, wanted) in cases {
        hook.set_spoil(spoil);
        let refused = http.get(&format!("{V2}/a")).await;
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let start = format!("conversion webhook for example.com/v1, Kind=Kite {wanted}");
        assert!(refused.code == 500 && message.starts_with(&start), "{message}\nwant {start}");
        assert!(message.contains("kite-hook.default.svc") && message.ends_with("converting default/a"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_changes_labels_and_annotations_and_nothing_else_of_the_metadata() {
    let Kites { http, hook, .. } = kites().await;
    let made = http.post(V1, &kite_v1("a", 1)).await.ok();
    hook.set_spoil(|answer| {
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({"a": "b"});
        metadata["finalizers"] = json!(["example.com/no"]);
        metadata["resourceVersion"] = "1".into();
    });
    let read = http.get(&format!("{V2}/a")).await.ok();
    assert_eq!(read["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(read["metadata"]["annotations"], json!({"converted-to": "example.com/v2"}));
    assert_eq!(read["metadata"]["finalizers"], Value::Null);
    assert_eq!(read["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_of_fields_in_another_version_are_respected() {
    let Kites { http, .. } = kites().await;
    apply(&http, &format!("{V1}/a"), "one", &kite_v1("a", 1)).await.ok();
    let refused = apply(&http, &format!("{V2}/a"), "two", &kite_v2("a", 2)).await;
    assert_eq!(refused.refusal(), (409, "Conflict".to_owned()), "{}", refused.body_text());
    assert!(refused.body_text().contains("conflict with \\\"one\\\": .spec.length"), "{}", refused.body_text());
    let forced = apply(&http, &format!("{V2}/a"), "two&force=true", &kite_v2("a", 2)).await.ok();
    assert_eq!(forced["spec"]["size"], 2);
    let managers: Vec<(&str, bool)> = forced["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(entry, "/manager"), entry.pointer("/fieldsV1/f:spec").is_some()))
        .collect();
    assert_eq!(managers, [("two", true)], "who lost the only field that it had owns nothing: {forced}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_rewritten_by_the_webhook_when_the_storage_version_changes() {
    let Kites { test, http, hook } = kites().await;
    for index in 0..40 {
        http.post(V1, &kite_v1(&format!("k{index:02}"), index)).await.ok();
    }
    hook.set_down(true);
    let current = http.get(DEFINITION).await.ok();
    let mut next = definition("v2");
    next["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    let changed = http.put(DEFINITION, &next).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let from = version(&changed);
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={from}")).await;
    let condition = |definition: &Value| {
        let mut conditions = definition["status"]["conditions"].as_array().unwrap().iter();
        conditions.find(|one| one["type"] == "StoredObjectsCurrent").cloned().unwrap_or_default()
    };
    loop {
        let event = definitions.next().await.unwrap();
        let condition = condition(&event["object"]);
        if condition["reason"] == "Failed" {
            assert!(
                text(&condition, "/message").contains("out of order: converting default/k00 and 39 more"),
                "{condition}"
            );
            break;
        }
    }
    // Objects stored in the requested version are still readable.
    assert_eq!(http.get(&format!("{V1}/k01")).await.ok()["spec"]["length"], 1);
    assert_eq!(http.get(&format!("{V2}/k01")).await.code, 500);
    hook.set_down(false);
    hook.calls();
    let from = version(&http.get(DEFINITION).await.ok());
    // A change of the definition restarts the rewriting, earlier than its next retry.
    http.merge(DEFINITION, &json!({"spec": {"names": {"shortNames": ["ki"]}}})).await.ok();
    let mut kites = http.watch(&format!("{V2}?resourceVersion={from}")).await;
    let mut rewritten = 0;
    while rewritten < 40 {
        rewritten += usize::from(text(&kites.next().await.unwrap(), "/type") == "MODIFIED");
    }
    let calls = hook.calls();
    assert_eq!(calls, [(40, "example.com/v2".to_owned())], "all in one call");
    for index in 0..40 {
        let at_rest = stored(&test, &format!("k{index:02}")).await;
        assert_eq!((&at_rest["apiVersion"], &at_rest["spec"]["size"]), (&json!("example.com/v2"), &json!(index)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_and_timed() {
    let Kites { http, hook, .. } = kites().await;
    http.post(V1, &kite_v1("a", 1)).await.ok();
    http.get(&format!("{V2}/a")).await.ok();
    hook.set_down(true);
    http.post(V1, &kite_v1("b", 1)).await.ok();
    http.get(&format!("{V2}/b")).await;
    let metrics = http.get("/metrics").await.body_text();
    for succeeded in ["true", "false"] {
        let line = format!(
            "apiserver_crd_conversion_webhook_duration_seconds_count{{crd_name=\"kites.example.com\",from_version=\"v1\",succeeded=\"{succeeded}\",to_version=\"v2\"}} 1"
        );
        assert!(metrics.contains(&line), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_is_selected_by_in_a_version_that_a_webhook_makes() {
    let Kites { http, .. } = kites().await;
    let current = http.get(DEFINITION).await.ok();
    let mut next = current.clone();
    next["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.length"}]);
    next["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    http.put(DEFINITION, &next).await.ok();
    http.post(V1, &kite_v1("a", 1)).await.ok();
    assert_eq!(names(&http.get(&format!("{V1}?fieldSelector=spec.length=1")).await.ok()), ["a"]);
    http.post(V1, &kite_v1("b", 2)).await.ok();
    http.post(V1, &kite_v1("c", 1)).await.ok();
    let by_size = format!("{V2}?fieldSelector=spec.size=1");
    let list = http.get(&by_size).await.ok();
    assert_eq!(names(&list), ["a", "c"]);
    // A page may have fewer objects than it could, and leads on all the same.
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let page = http.get(&format!("{by_size}&limit=1&continue={next}")).await.ok();
        found.extend(names(&page));
        next = text(&page["metadata"], "/continue").to_owned();
        if next.is_empty() {
            break;
        }
    }
    assert_eq!(found, ["a", "c"]);
    let mut watch = http.watch(&format!("{by_size}&resourceVersion={}", version(&list))).await;
    http.merge(&format!("{V1}/b"), &json!({"spec": {"length": 1}})).await.ok();
    http.merge(&format!("{V1}/a"), &json!({"spec": {"length": 3}})).await.ok();
    http.merge(&format!("{V1}/a"), &json!({"spec": {"length": 4}})).await.ok();
    http.delete(&format!("{V1}/c")).await.ok();
    for (word, name) in [("ADDED", "b"), ("DELETED", "a"), ("DELETED", "c")] {
        let event = watch.next().await.unwrap();
        assert_eq!((text(&event, "/type"), text(&event, "/object/metadata/name")), (word, name), "{event}");
        assert_eq!(text(&event, "/object/apiVersion"), "example.com/v2");
    }
    http.delete(&by_size).await.ok();
    assert_eq!(names(&http.get(V1).await.ok()), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_with_unusable_certificates_is_not_established_until_they_are_replaced() {
    let http = TestServer::new().await.http();
    let certificate = {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
    };
    let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let bundle = |bundle: &str| json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
    let mut placeholder = definition("v1");
    placeholder["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = "Cg==".into();
    http.post(DEFINITIONS, &placeholder).await.ok();
    let established = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array().unwrap().iter();
        let found = conditions.into_iter().find(|one| one["type"] == "Established").unwrap();
        (text(found, "/status").to_owned(), text(found, "/reason").to_owned())
    };
    let seen = http.get(DEFINITION).await.ok();
    assert_eq!(established(&seen), ("False".to_owned(), "InvalidCABundle".to_owned()));
    assert_eq!(http.get(V1).await.code, 404);
    http.merge(DEFINITION, &bundle(&encoded)).await.ok();
    assert_eq!(established(&http.get(DEFINITION).await.ok()).0, "True");
    assert_eq!(http.get(V1).await.code, 200);
    // A valid bundle may not be replaced by an invalid one.
    let refused = http.merge(DEFINITION, &bundle("Cg==")).await;
    assert_eq!(refused.code, 422);
    let wanted =
        "spec.conversion.webhookClientConfig.caBundle: Invalid value: \\\"Cg==\\\": unable to load root certificates: ";
    assert!(refused.body_text().contains(wanted), "{}", refused.body_text());
}
