//! Objects that one client writes are in force as soon as another client can read them: roles, policies, webhooks,
//! definitions, flow schemas, quotas.
//!
//! One client writes; another reads until it sees the write, by GET or by a watch depending on the seed, and relies on
//! it at once. Neither waits for the writer's answer.

use crate::support::{Http, TestServer, text};
use http::Method;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const CONFIGS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Whether an object exists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Gone,
    There,
}

/// Returns as soon as a client can read that an object exists or is gone.
async fn seen(http: &Http, collection: &str, name: &str, state: State, seed: u64) {
    let path = format!("{collection}/{name}");
    if seed.is_multiple_of(2) {
        let want = if state == State::There { 200 } else { 404 };
        while http.get(&path).await.code != want {}
        return;
    }
    // The watch begins with the events of existing objects, and then a bookmark.
    let query = format!(
        "fieldSelector=metadata.name={name}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = http.watch(&format!("{collection}?{query}")).await;
    let mut is_there = State::Gone;
    while let Some(event) = watch.next().await {
        match text(&event, "/type") {
            "ADDED" | "MODIFIED" => is_there = State::There,
            "DELETED" => is_there = State::Gone,
            // All existing objects have been sent.
            _ => {}
        }
        if is_there == state {
            return;
        }
    }
    panic!("the watch of {path} has ended");
}

/// One client creates an object and deletes it again, round by round; another one sees each change and checks that it
/// is in force.
async fn check(
    test: &TestServer,
    n_rounds: u64,
    collection: &'static str,
    object: impl Fn(u64) -> Value,
    is_in_force: impl AsyncFn(u64) -> bool,
) {
    let (writer, reader) = (test.http(), test.http());
    for seed in 0..n_rounds {
        let object = object(seed);
        let name = text(&object, "/metadata/name").to_owned();
        for state in [State::There, State::Gone] {
            let writing = tokio::spawn({
                let (writer, object, path) = (writer.clone(), object.clone(), format!("{collection}/{name}"));
                async move {
                    match state {
                        State::There => writer.post(collection, &object).await,
                        State::Gone => writer.delete(&path).await,
                    }
                }
            });
            seen(&reader, collection, &name, state, seed / 2).await;
            let is_in_force = is_in_force(seed).await;
            assert_eq!(is_in_force, state == State::There, "seed {seed}: {name} was seen: {state:?}");
            writing.await.unwrap().ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_binding_that_another_has_read_decides() {
    let test = TestServer::new().await;
    let role = json!({
        "metadata": {"name": "reads"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    test.http().post(roles, &role).await.ok();
    let jane = test.http_as("jane");
    let binding = |_| {
        json!({
            "metadata": {"name": "janes"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        })
    };
    let lists = async |_| jane.get(&format!("{NAMESPACE}/configmaps")).await.code == 200;
    check(&test, 1_000, RBAC, binding, lists).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_policys_binding_that_another_has_read_is_evaluated() {
    let test = TestServer::new().await;
    let http = test.http();
    let policy = json!({
        "metadata": {"name": "no"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
            ]},
            "validations": [{"expression": "false"}],
        },
    });
    http.post(&format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.ok();
    let binding = |_| json!({"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}});
    let refuses = async |_| http.post(CONFIGS, &json!({"metadata": {"name": "c"}})).await.code == 422;
    check(&test, 500, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", binding, refuses)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_webhook_that_another_has_read_is_called() {
    let test = TestServer::new().await;
    let http = test.http();
    // Nothing listens there, so a call fails at once.
    let configuration = |_| {
        json!({
            "metadata": {"name": "no"},
            "webhooks": [{
                "name": "no.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            }],
        })
    };
    let calls = async |_| http.post(CONFIGS, &json!({"metadata": {"name": "c"}})).await.code == 500;
    let collection = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    check(&test, 250, collection, configuration, calls).await;
    let collection = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    check(&test, 250, collection, configuration, calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schema_that_another_has_read_is_the_one_that_objects_have() {
    const ROUNDS: u64 = 150;
    let test = TestServer::new().await;
    let (writer, reader) = (test.http(), test.http());
    let schema = |maximum: u64| json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": maximum}}});
    let definition = json!({
        "metadata": {"name": "carts.shop.example"},
        "spec": {
            "group": "shop.example", "scope": "Namespaced", "names": {"kind": "Cart", "plural": "carts"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema(0)}}],
        },
    });
    writer.post(DEFINITIONS, &definition).await.ok();
    let path = format!("{DEFINITIONS}/carts.shop.example");
    for seed in 1..=ROUNDS {
        let change = json!([
            {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema(seed)},
        ]);
        let writing = tokio::spawn({
            let (writer, path) = (writer.clone(), path.clone());
            async move { writer.json_patch(&path, &change).await }
        });
        let maximum = "/spec/versions/0/schema/openAPIV3Schema/properties/n/maximum";
        while reader.get(&path).await.json().pointer(maximum) != Some(&json!(seed)) {}
        let cart = json!({"apiVersion": "shop.example/v1", "kind": "Cart", "metadata": {"name": "c"}, "n": seed});
        let carts = "/apis/shop.example/v1/namespaces/default/carts?dryRun=All";
        let created = reader.post(carts, &cart).await;
        assert_eq!(created.code, 201, "seed {seed}: {}", created.body_text());
        writing.await.unwrap().ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flow_schema_that_another_has_read_classifies() {
    let test = TestServer::new().await;
    let jane = test.http_as("jane");
    let schema = |_| {
        json!({
            "metadata": {"name": "janes"},
            "spec": {
                "matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "workload-low"},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "jane"}}],
                    "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
                }],
            },
        })
    };
    let before = jane.get("/api").await.header("x-kubernetes-pf-flowschema-uid").unwrap().to_owned();
    let is_another = async |_| {
        let answer = jane.send(Method::GET, "/api", "application/json", "").await;
        answer.header("x-kubernetes-pf-flowschema-uid") != Some(&*before)
    };
    check(&test, 200, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema, is_another).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_that_another_has_read_counts() {
    const ROUNDS: u64 = 500;
    let test = TestServer::new().await;
    let (writer, reader) = (test.http(), test.http());
    let quotas = format!("{NAMESPACE}/resourcequotas");
    let hard = json!({"count/configmaps": "0"});
    for seed in 0..ROUNDS {
        let name = format!("q{seed}");
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
        writer.post(&quotas, &quota).await.ok();
        let path = format!("{quotas}/{name}");
        let status = json!({"status": {"hard": hard, "used": {"count/configmaps": "0"}}});
        let writing = tokio::spawn({
            let (writer, path) = (writer.clone(), path.clone());
            async move { writer.merge(&format!("{path}/status"), &status).await }
        });
        while reader.get(&path).await.json()["status"]["hard"] != hard {}
        let created = reader.post(CONFIGS, &json!({"metadata": {"name": "c"}})).await;
        assert_eq!(created.code, 403, "seed {seed}: {}", created.body_text());
        writing.await.unwrap().ok();
        writer.delete(&path).await.ok();
    }
}
