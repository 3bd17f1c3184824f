//! Requests that would build or compute too much are refused while they do; realistic large objects are accepted.

use crate::custom::definitions::{DEFINITIONS, KITES, definition};
use crate::support::{Answer, CONFIGS, Http, TestServer};
use http::Method;
use serde_json::{Map, Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with a definition of kites that has this schema for their spec.
async fn kites(spec: &Value) -> (TestServer, Http) {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(spec)).await.ok();
    (test, http)
}

fn kite(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": "k"}, "spec": spec})
}

/// The same text many times, as items of a JSON list.
fn repeated(item: &str, n: usize) -> String {
    vec![item; n].join(",")
}

async fn post_text(http: &Http, path: &str, json: String) -> Answer {
    http.send(Method::POST, path, "application/json", json).await
}

#[track_caller]
fn assert_too_large(answer: &Answer, of: &str) {
    assert_eq!(answer.refusal(), (413, "RequestEntityTooLarge".to_owned()), "{}", answer.body_text());
    assert!(answer.body_text().contains(of), "{}", answer.body_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_that_multiply_a_body_are_refused() {
    let defaults: Map<String, Value> =
        (0..20).map(|n| (format!("p{n}"), json!({"type": "string", "default": "x"}))).collect();
    let item = json!({"type": "object", "properties": defaults});
    let (_world, http) =
        kites(&json!({"type": "object", "properties": {"items": {"type": "array", "items": item}}})).await;
    let body = |n: usize| {
        let items = repeated("{}", n);
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Kite","metadata":{{"name":"k{n}"}},"spec":{{"items":[{items}]}}}}"#
        )
    };
    for n in [100_000, 900_000] {
        assert_too_large(&post_text(&http, KITES, body(n)).await, "that one request may");
    }
    assert_eq!(post_text(&http, KITES, body(1000)).await.code, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_hundreds_of_thousands_of_containers_is_refused_in_every_format() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let test = TestServer::new().await;
    let http = test.http();
    let path = format!("{PODS}?dryRun=All");
    let containers = repeated("{}", 700_000);
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{{"containers":[{containers}]}}}}"#
    );
    assert_too_large(&post_text(&http, &path, json.clone()).await, "MiB of memory");
    assert_too_large(&http.send(Method::POST, &path, "application/yaml", json).await, "MiB of memory");
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
        out
    };
    let empty_containers = [2 << 3 | 2, 0].repeat(700_000);
    let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
    let body = [b"k8s\0".to_vec(), field(1, &kind), field(2, &field(2, &empty_containers))].concat();
    let refused = http.send(Method::POST, &path, PROTOBUF, body).await;
    assert_eq!(refused.code, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_list_is_found_in_a_long_enum_at_once() {
    let words: Vec<String> = (0..50_000).map(|n| format!("w{n}")).collect();
    let last = words[words.len() - 1].clone();
    let list = json!({"type": "array", "items": {"type": "string", "enum": words}});
    let (_world, http) = kites(&json!({"type": "object", "properties": {"list": list}})).await;
    let answer = http.post(KITES, &kite(&json!({"list": vec![last; 100_000]}))).await;
    assert_eq!(answer.code, 201, "{}", answer.body_text());
    // Each of the validation errors would list all words.
    let wrong = http.post(KITES, &kite(&json!({"list": vec!["none"; 100_000]}))).await;
    assert_eq!(wrong.code, 422);
    assert!(wrong.body_text().len() < 8 << 20, "{}", wrong.body_text().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_shift_a_long_list_thousands_of_times_are_refused() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let (_world, http) = kites(&json!({"type": "object", "properties": {"list": list}})).await;
    http.post(KITES, &kite(&json!({"list": vec![1; 500_000]}))).await.ok();
    let path = format!("{KITES}/k");
    let shuffle = vec![json!({"op": "move", "from": "/spec/list/-1", "path": "/spec/list/0"}); 10_000];
    assert_too_large(&http.json_patch(&path, &json!(shuffle)).await, "steps of computation");
    let few = vec![json!({"op": "add", "path": "/spec/list/0", "value": 2}); 10];
    http.json_patch(&path, &json!(few)).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn map_of_a_hundred_thousand_keys_can_be_created_and_patched() {
    let test = TestServer::new().await;
    let http = test.http();
    let data = |value: &str| (0..100_000).map(|n| (format!("key-{n}"), json!(value))).collect::<Map<String, Value>>();
    let config = json!({"metadata": {"name": "large"}, "data": data("one")});
    http.post(CONFIGS, &config).await.ok();
    let path = format!("{CONFIGS}/large");
    // The same manager changes each key, so its entry of managedFields is searched for all of them.
    let patched = http.merge(&path, &json!({"data": data("two")})).await;
    assert_eq!(patched.ok()["data"]["key-99999"], "two");
    let keys: Vec<String> = (0..100_000).map(|n| format!("key-{n}")).collect();
    let retain = json!({"data": {"$retainKeys": keys, "key-1": "three"}}).to_string();
    let retained = http.send(Method::PATCH, &path, "application/strategic-merge-patch+json", retain).await;
    assert_eq!(retained.ok()["data"].as_object().unwrap().len(), 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_with_a_large_specification_is_stored() {
    let test = TestServer::new().await;
    let variables: Vec<Value> =
        (0..5000).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(100)})).collect();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": variables}]},
            },
        },
    });
    test.http().post(DEPLOYMENTS, &deployment).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_of_a_megabyte_and_a_half_is_stored() {
    let test = TestServer::new().await;
    let properties: Map<String, Value> = (0..11_000)
        .map(|n| {
            let description = "What this property is for, in a sentence that is as long as such sentences are.";
            (format!("property{n}"), json!({"type": "string", "maxLength": 63, "description": description}))
        })
        .collect();
    let definition = definition(&json!({"type": "object", "properties": properties}));
    assert!(1_300_000 < definition.to_string().len());
    test.http().post(DEFINITIONS, &definition).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_another_version_would_multiply_are_not_read_in_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let defaults: Map<String, Value> =
        (0..20).map(|n| (format!("p{n}"), json!({"type": "string", "default": "x"}))).collect();
    let list = |item: Value| json!({"type": "object", "properties": {"items": {"type": "array", "items": item}}});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut both = definition(&list(any));
    let second = definition(&list(json!({"type": "object", "properties": defaults})));
    let mut second = second["spec"]["versions"][0].clone();
    (second["name"], second["storage"]) = (json!("v2"), json!(false));
    both["spec"]["versions"].as_array_mut().unwrap().push(second);
    http.post(DEFINITIONS, &both).await.ok();
    http.post(KITES, &kite(&json!({"items": vec![json!({}); 200_000]}))).await.ok();
    assert_eq!(http.get(&format!("{KITES}/k")).await.code, 200);
    // v2 has the defaults only when an object is written in it, and this object would then be refused.
    let v2 = KITES.replace("/v1/", "/v2/");
    let mut object = kite(&json!({"items": vec![json!({}); 200_000]}));
    object["apiVersion"] = json!("example.com/v2");
    object["metadata"]["name"] = json!("other");
    assert_too_large(&http.post(&v2, &object).await, "MiB of memory");
}
