//! Bodies and patches: fields that are dropped, warned of and refused, and no error of a client is answered as an error
//! of the server.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite};
use crate::support::{Answer, CONFIGS, Http, TestServer, config, text};
use http::Method;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn world_with_kites() -> TestServer {
    let test = TestServer::new().await;
    let spec = json!({"type": "object", "properties": {
        "length": {"type": "integer"},
        "tails": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "lines": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    test.http().post(DEFINITIONS, &definition(&spec)).await.ok();
    test
}

fn warnings(answer: &Answer) -> Vec<&str> {
    answer.headers.get_all("warning").iter().filter_map(|warning| warning.to_str().ok()).collect()
}

fn message(answer: &Answer) -> String {
    text(&answer.json(), "/message").to_owned()
}

// === metadata of custom resources ===

#[tokio::test]
async fn the_metadata_of_a_custom_resource_is_checked_as_that_of_any_object() {
    let test = world_with_kites().await;
    let http = test.http();
    let with = |key: &str, value: Value| {
        let mut object = kite("k", 1);
        object["metadata"][key] = value;
        object
    };
    for (key, value, why) in [
        ("annotations", json!({"x": 1}), "metadata.annotations.x must be a string, not the number 1"),
        ("labels", json!({"n": 1}), "metadata.labels.n must be a string, not the number 1"),
        ("labels", json!([]), "metadata.labels must be an object, not a list"),
        ("finalizers", json!("x"), "metadata.finalizers must be a list, not the string \"x\""),
        ("ownerReferences", json!([1]), "metadata.ownerReferences[0] must be an object, not the number 1"),
        ("name", json!(1), "metadata.name must be a string, not the number 1"),
    ] {
        let refused = http.post(KITES, &with(key, value)).await;
        assert_eq!(refused.refusal(), (400, "BadRequest".to_owned()), "{key}");
        assert_eq!(message(&refused), format!("Kite in version \"v1\" cannot be handled as a Kite: {why}"));
    }
    http.post(KITES, &kite("k", 1)).await.ok();
    let path = format!("{KITES}/k");
    let patches = [
        (MERGE, 422, r#"{"metadata":{"labels":{"n":1}}}"#),
        (MERGE, 422, r#"{"metadata":{"annotations":{"n":[]}}}"#),
        (JSON_PATCH, 422, r#"[{"op":"add","path":"/metadata/labels","value":{"n":1}}]"#),
        (APPLY, 400, r#"{"apiVersion":"example.com/v1","kind":"Kite","metadata":{"name":"k","labels":{"n":1}}}"#),
    ];
    for (content_type, code, patch) in patches {
        let refused = http.send(Method::PATCH, &format!("{path}?fieldManager=m"), content_type, patch).await;
        assert_eq!(refused.code, code, "{patch}: {}", message(&refused));
    }
    assert!(http.get(&path).await.ok()["metadata"].get("labels").is_none());
}

#[tokio::test]
async fn unknown_metadata_of_a_custom_resource_is_dropped_and_told() {
    let test = world_with_kites().await;
    let http = test.http();
    let mut object = kite("k", 1);
    object["metadata"]["foo"] = json!(1);
    object["spec"]["bar"] = json!(1);
    object["spec"]["template"] =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"odd": 1, "labels": {"a": "b"}}, "x": 1});
    let refused = http.post(&format!("{KITES}?fieldValidation=Strict"), &object).await;
    assert_eq!(refused.code, 400);
    assert_eq!(
        message(&refused),
        "Kite in version \"v1\" cannot be handled as a Kite: strict decoding error: unknown field \"metadata.foo\", \
         unknown field \"spec.bar\", unknown field \"spec.template.metadata.odd\""
    );
    let warned = http.post(KITES, &object).await;
    let want = ["metadata.foo", "spec.bar", "spec.template.metadata.odd"];
    assert_eq!(warnings(&warned), want.map(|path| format!("299 - \"unknown field \\\"{path}\\\"\"")));
    let stored = warned.ok();
    assert!(stored["metadata"].get("foo").is_none());
    assert_eq!(
        stored["spec"],
        json!({"length": 1, "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "x": 1}})
    );
    object["metadata"]["name"] = json!("quiet");
    assert!(warnings(&http.post(&format!("{KITES}?fieldValidation=Ignore"), &object).await).is_empty());
}

#[tokio::test]
async fn the_metadata_of_an_embedded_resource_is_checked_too() {
    let test = world_with_kites().await;
    let mut object = kite("k", 1);
    object["spec"]["template"] = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}});
    let refused = test.http().post(KITES, &object).await;
    assert_eq!(refused.code, 400);
    assert!(message(&refused).ends_with("spec.template.metadata.labels.a must be a string, not the number 1"));
}

// === duplicate keys ===

#[tokio::test]
async fn keys_that_a_patch_has_twice_are_told_or_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let merge = r#"{"data":{"k":"1","k":"2"},"odd":1}"#;
    for (content_type, patch, warning) in [
        (MERGE, merge, r#"299 - "duplicate field \"data.k\"""#),
        (STRATEGIC, merge, r#"299 - "duplicate field \"data.k\"""#),
        (
            JSON_PATCH,
            r#"[{"op":"add","op":"add","path":"/data","value":{"k":"2"}}]"#,
            r#"299 - "duplicate field \"[0].op\"""#,
        ),
        (
            APPLY,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  k: \"1\"\n  k: \"2\"\n",
            r#"299 - "line 6: key \"k\" already set in map""#,
        ),
    ] {
        let path = |validation| format!("{CONFIGS}/c?fieldManager=m&force=true&fieldValidation={validation}");
        let path = |validation| match content_type {
            APPLY => path(validation),
            _ => path(validation).replace("&force=true", ""),
        };
        let refused = http.send(Method::PATCH, &path("Strict"), content_type, patch).await;
        let warned = http.send(Method::PATCH, &path("Warn"), content_type, patch).await;
        assert_eq!(warnings(&warned)[0], warning);
        assert_eq!(warned.ok()["data"]["k"], "2", "the last counts");
        let quiet = http.send(Method::PATCH, &path("Ignore"), content_type, patch).await;
        assert!(warnings(&quiet).is_empty());
        match content_type {
            APPLY => {
                assert_eq!(refused.code, 400);
                assert_eq!(
                    message(&refused),
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"k\" already set in map"
                );
            }
            JSON_PATCH => assert!(message(&refused).ends_with("strict decoding error: duplicate field \"[0].op\"")),
            _ => {
                assert_eq!(refused.refusal(), (422, "Invalid".to_owned()));
                let want = "strict decoding error: duplicate field \"data.k\", unknown field \"odd\"";
                assert!(message(&refused).ends_with(want), "{}", message(&refused));
            }
        }
    }
}

#[tokio::test]
async fn keys_that_a_yaml_body_has_twice_are_told_or_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    let body = "metadata: {name: c}\ndata:\n  k: \"1\"\n  k: \"2\"\n";
    let refused = http.send(Method::POST, &format!("{CONFIGS}?fieldValidation=Strict"), "application/yaml", body).await;
    assert_eq!(
        message(&refused),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  \
         line 4: key \"k\" already set in map"
    );
    let warned = http.send(Method::POST, CONFIGS, "application/yaml", body).await;
    assert_eq!(warnings(&warned), [r#"299 - "line 4: key \"k\" already set in map""#]);
    assert_eq!(warned.ok()["data"]["k"], "2");
}

// === mistakes ===

#[tokio::test]
async fn a_mistake_in_a_patch_is_the_clients() {
    let test = world_with_kites().await;
    let http = test.http();
    http.post("/api/v1/namespaces/default/pods", &pod()).await.ok();
    http.post(CONFIGS, &config("c")).await.ok();
    http.post(KITES, &kite("k", 1)).await.ok();
    let (pod, kite, config) =
        ("/api/v1/namespaces/default/pods/p".to_owned(), format!("{KITES}/k"), format!("{CONFIGS}/c"));
    let apply = |kind: &str, version: &str, rest: &str| format!("{{apiVersion: {version}, kind: {kind}, {rest}}}");
    let typed = "failed to create typed patch object (/";
    for (path, content_type, patch, want) in [
        (
            &pod,
            STRATEGIC,
            r#"{"spec":{"containers":[{"name":"c","$patch":"explode"}]}}"#.to_owned(),
            r#"unknown $patch directive "explode": want "delete" or "replace""#.to_owned(),
        ),
        (
            &pod,
            STRATEGIC,
            r#"{"spec":{"containers":[{"image":"x"}]}}"#.to_owned(),
            r#"an item of the list lacks its merge key "name": {"image":"x"}"#.to_owned(),
        ),
        (
            &config,
            APPLY,
            apply("ConfigMap", "v1", "metadata: {name: c}, dota: {k: v}"),
            format!("{typed}c; /v1, Kind=ConfigMap): .dota: field not declared in schema"),
        ),
        (
            &config,
            APPLY,
            apply("ConfigMap", "v1", "metadata: {name: c}, data: {k: 1}"),
            format!("{typed}c; /v1, Kind=ConfigMap): .data.k: expected string, got the number 1"),
        ),
        (
            &kite,
            APPLY,
            apply("Kite", "example.com/v1", "metadata: {name: k}, spec: {tails: [a, a]}"),
            format!("{typed}k; example.com/v1, Kind=Kite): .spec.tails: duplicate entries for key [=\"a\"]"),
        ),
        (
            &kite,
            APPLY,
            apply("Kite", "example.com/v1", "metadata: {name: k}, spec: {nope: 1}"),
            format!("{typed}k; example.com/v1, Kind=Kite): .spec.nope: field not declared in schema"),
        ),
    ] {
        let answer = http.send(Method::PATCH, &format!("{path}?fieldManager=m"), content_type, patch.clone()).await;
        assert_eq!(answer.refusal(), (400, "BadRequest".to_owned()), "{patch}");
        assert_eq!(message(&answer), want);
    }
    let versioned = json!({"metadata": {"name": "d", "resourceVersion": "1"}});
    assert_eq!(http.post(CONFIGS, &versioned).await.refusal(), (400, "BadRequest".to_owned()));
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["example.com/x"]}, "spec": {
        "containers": [
            {"name": "c", "image": "i", "args": ["x"], "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]},
            {"name": "d", "image": "i", "resources": {"limits": {"cpu": "1"}}},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "selector": {"a": "b"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "other", "port": 81}]}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn flown_kite() -> Value {
    let mut kite = kite("k", 1);
    kite["spec"] = json!({"length": 1, "tails": ["a", "b"], "lines": [{"name": "x", "n": 1}, {"name": "y"}], "open": {"any": [1, {"x": null}]},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}});
    kite
}

/// A random change at one path of a body: `way` selects the child at each level.
#[derive(Clone, Debug)]
struct Edit {
    way: Vec<prop::sample::Index>,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Put(String, Value),
    Remove,
    Replace(Value),
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![0_i64, 1, -1, 80, i64::MAX]).prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(vec!["", "a", "b", "c", "x", "delete", "replace", "merge", "http", "1", "no such"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(any_key(), inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/ports",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder",
        "metadata",
        "labels",
        "annotations",
        "finalizers",
        "managedFields",
        "ownerReferences",
        "name",
        "spec",
        "status",
        "containers",
        "ports",
        "port",
        "env",
        "lines",
        "tails",
        "template",
        "odd",
        "",
        "apiVersion",
        "kind",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "fieldsV1",
        "value",
        "op",
        "path",
        "from",
    ])
    .prop_map(str::to_owned)
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let change = prop_oneof![
        3 => (any_key(), any_value()).prop_map(|(key, value)| Change::Put(key, value)),
        1 => Just(Change::Remove),
        3 => any_value().prop_map(Change::Replace),
    ];
    let edit = (prop::collection::vec(any::<prop::sample::Index>(), 0..7), change);
    prop::collection::vec(edit.prop_map(|(way, change)| Edit { way, change }), 1..4)
}

fn edit(body: &mut Value, way: &[prop::sample::Index], change: &Change) {
    if let [step, rest @ ..] = way {
        let inner = match body {
            Value::Array(items) if !items.is_empty() => {
                let place = step.index(items.len());
                if rest.is_empty() && matches!(change, Change::Remove) {
                    items.remove(place);
                    return;
                }
                items.get_mut(place)
            }
            Value::Object(fields) if !fields.is_empty() => {
                let key = fields.keys().nth(step.index(fields.len())).cloned().unwrap_or_default();
                if rest.is_empty() && matches!(change, Change::Remove) {
                    fields.remove(&key);
                    return;
                }
                fields.get_mut(&key)
            }
            _ => None,
        };
        if let Some(inner) = inner {
            return edit(inner, rest, change);
        }
    }
    match (change, body) {
        (Change::Put(key, value), Value::Object(fields)) => {
            fields.insert(key.clone(), value.clone());
        }
        (Change::Put(_, value), Value::Array(items)) => items.push(value.clone()),
        (Change::Put(_, value) | Change::Replace(value), body) => *body = value.clone(),
        (Change::Remove, _) => {}
    }
}

/// A JSON patch that sets the parts of an object one by one.
fn as_json_patch(object: &Value) -> Value {
    json!([
        {"op": "test", "path": "/kind", "value": object["kind"]},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "c"}},
        {"op": "replace", "path": "/spec", "value": object["spec"]},
        {"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/name"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/annotations"},
        {"op": "remove", "path": "/metadata/labels"},
    ])
}

#[test]
fn no_change_of_a_body_or_patch_makes_the_server_fail() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = runtime.block_on(world_with_kites());
    let http = test.http();
    let objects = [
        ("/api/v1/namespaces/default/pods", pod()),
        ("/api/v1/namespaces/default/services", service()),
        ("/apis/apps/v1/namespaces/default/deployments", deployment()),
        (KITES, flown_kite()),
        (CONFIGS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}})),
        (
            DEFINITIONS,
            definition(&json!({"type": "object", "properties": {"length": {"type": "integer", "default": 1}}})),
        ),
    ];
    for (path, object) in objects.iter().filter(|(path, _)| *path != DEFINITIONS) {
        runtime.block_on(http.post(path, object)).ok();
    }
    let mut runner = TestRunner::default();
    let strategy = (prop::sample::select(objects.to_vec()), edits(), any::<bool>());
    let outcome = runner.run(&strategy, |((path, object), edits, is_strict)| {
        runtime.block_on(try_all(&http, path, &object, &edits, is_strict))
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

async fn try_all(
    http: &Http,
    collection: &str,
    object: &Value,
    edits: &[Edit],
    is_strict: bool,
) -> Result<(), TestCaseError> {
    let changed = |body: &Value| {
        let mut body = body.clone();
        edits.iter().for_each(|one| edit(&mut body, &one.way, &one.change));
        body.to_string()
    };
    let path = format!("{collection}/{}", text(object, "/metadata/name"));
    let validation = if is_strict { "Strict" } else { "Warn" };
    let query = format!("dryRun=All&fieldManager=m&fieldValidation={validation}");
    let whole = changed(object);
    for (method, path, content_type, body) in [
        (Method::POST, collection, JSON, whole.clone()),
        (Method::PUT, &path, JSON, whole.clone()),
        (Method::PATCH, &path, MERGE, whole.clone()),
        (Method::PATCH, &path, STRATEGIC, whole.clone()),
        (Method::PATCH, &path, APPLY, whole.clone()),
        (Method::PATCH, &path, JSON_PATCH, changed(&as_json_patch(object))),
        (Method::DELETE, &path, JSON, whole.clone()),
    ] {
        let answer = http.send(method.clone(), &format!("{path}?{query}"), content_type, body.clone()).await;
        let said = String::from_utf8_lossy(&answer.bytes);
        prop_assert!(answer.code < 500, "{method} {path} {content_type} {body}\n{said}");
        let is_go = ["map[", "interface {}", "&value.", "&{"].iter().any(|go| answer.code >= 400 && said.contains(go));
        prop_assert!(!is_go, "{method} {path} {content_type} {body}\n{said}");
    }
    Ok(())
}
