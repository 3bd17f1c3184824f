//! CustomResourceDefinitions: in force when their write is answered, and gone when their objects are.

use crate::store::engine::{Engine, puts, says};
use crate::support::{Http, TestServer, serve, text, version};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_server::DefinitionWork;
use steersman_server::authz::Authorization;
use steersman_server::user::User;
use steersman_storage::kv;
use tokio::sync::watch;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const KITES: &str = "/apis/example.com/v1/namespaces/default/kites";

pub(crate) fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "kites.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "kites", "singular": "kite", "kind": "Kite", "listKind": "KiteList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

pub(crate) fn spec() -> Value {
    json!({"type": "object", "properties": {"length": {"type": "integer"}}})
}

pub(crate) fn kite(name: &str, length: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": name}, "spec": {"length": length}})
}

/// Deletes the definition and waits for its end.
pub(crate) async fn until_gone(http: &Http) {
    let from = version(&http.get(DEFINITIONS).await.ok());
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={from}")).await;
    http.delete(&format!("{DEFINITIONS}/kites.example.com")).await.ok();
    while text(&definitions.next().await.unwrap(), "/type") != "DELETED" {}
}

async fn test() -> TestServer {
    let test = TestServer::new().await;
    test.http().post(DEFINITIONS, &definition(&spec())).await.ok();
    test
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_many_definitions_can_be_created_as_soon_as_these_are() {
    let test = TestServer::new().await;
    let writers: Vec<_> = (0..16)
        .map(|index| {
            let http = test.http();
            tokio::spawn(async move {
                let group = format!("g{index}.example.com");
                let mut definition = definition(&spec());
                definition["metadata"]["name"] = format!("kites.{group}").into();
                definition["spec"]["group"] = group.clone().into();
                http.post(DEFINITIONS, &definition).await.ok();
                let mut kite = kite("red", 1);
                kite["apiVersion"] = format!("{group}/v1").into();
                http.post(&format!("/apis/{group}/v1/namespaces/default/kites"), &kite).await.ok();
                let served = http.get(&format!("/apis/{group}/v1")).await.ok();
                assert_eq!(served["resources"][0]["name"], "kites");
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn a_changed_schema_is_in_force_for_the_next_request() {
    let test = test().await;
    let http = test.http();
    for bound in [10, 5, 20, 1] {
        let spec = json!({"type": "object", "properties": {"length": {"type": "integer", "maximum": bound}}});
        let current = http.get(&format!("{DEFINITIONS}/kites.example.com")).await.ok();
        let mut next = definition(&spec);
        next["metadata"]["resourceVersion"] = version(&current).to_string().into();
        http.put(&format!("{DEFINITIONS}/kites.example.com"), &next).await.ok();
        let name = format!("k{bound}");
        assert_eq!(http.post(KITES, &kite(&name, bound + 1)).await.refusal(), (422, "Invalid".to_owned()));
        http.post(KITES, &kite(&name, bound)).await.ok();
    }
}

/// As upstream, which does not decode the result of an apply again.
#[tokio::test]
async fn a_null_that_is_not_allowed_is_dropped_unless_it_is_applied() {
    let http = test().await.http();
    let spec = json!({"type": "object", "properties": {
        "color": {"type": "string"},
        "length": {"type": "integer", "default": 3},
        "tail": {"type": "string", "nullable": true},
    }});
    http.merge(
        &format!("{DEFINITIONS}/kites.example.com"),
        &json!({"spec": {"versions": definition(&spec)["spec"]["versions"]}}),
    )
    .await
    .ok();
    let mut red = kite("red", 1);
    red["spec"] = json!({"color": null, "length": null, "tail": null});
    let wanted = json!({"length": 3, "tail": null});
    assert_eq!(http.post(KITES, &red).await.ok()["spec"], wanted);
    let path = format!("{KITES}/red?fieldManager=m&force=true");
    let apply = |kite: &Value| http.send(Method::PATCH, &path, "application/apply-patch+yaml", kite.to_string());
    let answer = apply(&red).await;
    assert_eq!(answer.refusal(), (422, "Invalid".to_owned()), "{}", answer.body_text());
    assert!(answer.body_text().contains("spec.color: Invalid value: \\\"null\\\""), "{}", answer.body_text());
    red["spec"].as_object_mut().unwrap().remove("color");
    assert_eq!(apply(&red).await.ok()["spec"], wanted);
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_the_finalizers_of_its_objects_and_then_ends_their_watches() {
    let test = test().await;
    let http = test.http();
    let mut held = kite("held", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let created = version(&http.post(KITES, &held).await.ok());
    http.post(KITES, &kite("free", 1)).await.ok();
    let listed = version(&http.get(KITES).await.ok());
    let mut kites = http.watch(&format!("{KITES}?resourceVersion={listed}")).await;
    let path = format!("{DEFINITIONS}/kites.example.com");
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={created}")).await;

    http.delete(&path).await.ok();
    let first: BTreeSet<_> = [kites.next_name().await.unwrap(), kites.next_name().await.unwrap()].into();
    let pair = |word: &str, name: &str| (word.to_owned(), name.to_owned());
    assert_eq!(first, [pair("DELETED", "free"), pair("MODIFIED", "held")].into());
    assert_eq!(http.post(KITES, &kite("new", 1)).await.refusal(), (405, "MethodNotAllowed".to_owned()));
    let terminating = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|condition| condition["type"] == "Terminating" && condition["status"] == "True")
    };
    assert!(terminating(&http.get(&path).await.ok()));

    http.merge(&format!("{KITES}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(kites.next_name().await.unwrap(), pair("DELETED", "held"));
    while text(&definitions.next().await.unwrap(), "/type") != "DELETED" {}
    let begun = tokio::time::Instant::now();
    assert_eq!(kites.next().await, None);
    assert_eq!(begun.elapsed().as_secs(), 0);
    assert_eq!(http.get(&path).await.refusal(), (404, "NotFound".to_owned()));
    assert_eq!(http.get(KITES).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_comes_back_begins_empty() {
    let test = test().await;
    let http = test.http();
    for round in 0..3 {
        http.post(KITES, &kite("red", 1)).await.ok();
        until_gone(&http).await;
        http.post(DEFINITIONS, &definition(&spec())).await.ok();
        assert_eq!(http.get(KITES).await.ok()["items"], json!([]), "round {round}");
    }
}

#[tokio::test]
async fn a_watch_outlives_changes_of_its_definition() {
    let test = test().await;
    let http = test.http();
    let from = version(&http.get(KITES).await.ok());
    let mut kites = http.watch(&format!("{KITES}?resourceVersion={from}")).await;
    let longer = json!({"spec": {"names": {"shortNames": ["kt"]}}});
    http.merge(&format!("{DEFINITIONS}/kites.example.com"), &longer).await.ok();
    http.post(KITES, &kite("red", 1)).await.ok();
    assert_eq!(kites.next_name().await.unwrap(), ("ADDED".to_owned(), "red".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on_after_a_restart() {
    let test = test().await;
    let mut held = kite("held", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.http().post(KITES, &held).await.ok();
    let from = version(&test.http().delete(&format!("{DEFINITIONS}/kites.example.com")).await.ok());
    test.server.stop().await;

    let next = serve(&test.store, Authorization::default()).await;
    let http = Http(next.service_as(User::master("admin")));
    http.merge(&format!("{KITES}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={from}&timeoutSeconds=60")).await;
    let words: Vec<_> = definitions.rest().await.iter().map(|event| text(event, "/type").to_owned()).collect();
    assert_eq!(words.last().map(String::as_str), Some("DELETED"));
}

/// A definition in another group.
fn of_group(group: &str) -> Value {
    let mut definition = definition(&spec());
    definition["metadata"]["name"] = format!("kites.{group}").into();
    definition["spec"]["group"] = group.into();
    definition
}

/// Type, status and reason of the conditions of a definition.
async fn conditions(http: &Http, name: &str) -> Vec<String> {
    let definition = http.get(&format!("{DEFINITIONS}/{name}")).await.ok();
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let words =
        |condition: &Value| ["/type", "/status", "/reason"].map(|key| text(condition, key).to_owned()).join(" ");
    conditions.map(words).collect()
}

#[tokio::test]
async fn a_definition_costs_the_same_however_many_there_are() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut before = test.server.definition_work();
    for index in 0..50 {
        let created = http.post(DEFINITIONS, &of_group(&format!("g{}.example.com", index))).await;
        assert_eq!(created.code, 201);
        let work = test.server.definition_work();
        let added = DefinitionWork { compiled: work.compiled - before.compiled, parsed: work.parsed - before.parsed };
        assert_eq!(added, DefinitionWork { compiled: 1, parsed: 1 }, "definition {index}");
        before = work;
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    http.merge(&format!("{DEFINITIONS}/kites.g7.example.com"), &labels).await.ok();
    let work = test.server.definition_work();
    assert_eq!(work, DefinitionWork { compiled: before.compiled, parsed: before.parsed + 1 });
}

#[tokio::test(start_paused = true)]
async fn a_built_in_kind_is_not_given_to_a_definition_of_its_name() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let test = TestServer::new().await;
    let http = test.http();
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    http.post(ROLES, &role("before")).await.ok();
    let mut rival = of_group("rbac.authorization.k8s.io");
    rival["metadata"] = json!({
        "name": "clusterroles.rbac.authorization.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
    });
    rival["spec"]["names"] = json!({"plural": "clusterroles", "kind": "ClusterRole"});
    rival["spec"]["scope"] = json!("Cluster");
    let created = http.post(DEFINITIONS, &rival).await.ok();
    assert_eq!(
        conditions(&http, "clusterroles.rbac.authorization.k8s.io").await,
        [
            "KubernetesAPIApprovalPolicyConformant True ApprovedAnnotation",
            "NamesAccepted False ListKindConflict",
            "Established False NotAccepted",
        ]
    );
    http.post(ROLES, &role("after")).await.ok();
    let unknown = json!({"metadata": {"name": "unknown"}, "rules": [{"verbs": []}]});
    assert_eq!(http.post(ROLES, &unknown).await.refusal(), (422, "Invalid".to_owned()));

    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={}", version(&created))).await;
    http.delete(&format!("{DEFINITIONS}/clusterroles.rbac.authorization.k8s.io")).await.ok();
    while text(&definitions.next().await.unwrap(), "/type") != "DELETED" {}
    for name in ["before", "after"] {
        http.get(&format!("{ROLES}/{name}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_took_a_built_in_kind_once_lets_go_of_it() {
    let test = TestServer::new().await;
    let mut role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kept"}});
    role["rules"] = json!([]);
    let role = test.http().post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.ok();
    // The definition in the form in which an older server, which accepted such names, stored it.
    let mut rival = of_group("rbac.authorization.k8s.io");
    let names = json!({"plural": "clusterroles", "singular": "clusterrole", "kind": "ClusterRole", "listKind": "ClusterRoleList"});
    rival["metadata"] = json!({
        "name": "clusterroles.rbac.authorization.k8s.io", "uid": "1", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
        "deletionTimestamp": "2026-01-02T00:00:00Z",
    });
    rival["spec"]["names"] = names.clone();
    rival["status"] = json!({
        "acceptedNames": names, "storedVersions": ["v1"],
        "conditions": [{"type": "Established", "status": "True"}, {"type": "Terminating", "status": "True"}],
    });
    test.server.stop().await;
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let key = ObjectKey::cluster("clusterroles.rbac.authorization.k8s.io");
    let stored = test.store.create(&definitions, &key, rival.to_string().into()).await.unwrap();

    let next = serve(&test.store, Authorization::default()).await;
    let http = Http(next.service_as(User::master("admin")));
    let mut events = http.watch(&format!("{DEFINITIONS}?resourceVersion={}", stored.revision)).await;
    let mut last = Value::Null;
    while text(&last, "/type") != "DELETED" {
        last = events.next().await.unwrap();
    }
    let kept = http.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/kept").await.ok();
    assert_eq!(kept["metadata"]["uid"], role["metadata"]["uid"]);
    assert!(kept["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_let_go_is_given_to_the_definition_that_waits_for_it() {
    let test = test().await;
    let http = test.http();
    let mut dragons = definition(&spec());
    dragons["metadata"]["name"] = json!("dragons.example.com");
    dragons["spec"]["names"] = json!({"plural": "dragons", "kind": "Kite"});
    let created = http.post(DEFINITIONS, &dragons).await.ok();
    let named = |word: &str| vec![format!("NamesAccepted {word}")];
    let accepted = |conditions: Vec<String>| conditions[..1].to_vec();
    assert_eq!(accepted(conditions(&http, "dragons.example.com").await), named("False ListKindConflict"));
    assert_eq!(http.get("/apis/example.com/v1/dragons").await.code, 404);

    let mut events = http.watch(&format!("{DEFINITIONS}?resourceVersion={}", version(&created))).await;
    http.delete(&format!("{DEFINITIONS}/kites.example.com")).await.ok();
    while text(&events.next().await.unwrap(), "/type") != "DELETED" {}
    while text(&events.next().await.unwrap(), "/object/status/conditions/1/status") != "True" {}
    assert_eq!(accepted(conditions(&http, "dragons.example.com").await), named("True NoConflicts"));
    assert_eq!(http.get("/apis/example.com/v1/dragons").await.ok()["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_writer_of_a_definition_waits_for_as_long_as_it_takes() {
    let (sender, open) = watch::channel(false);
    let engine = Engine::new(move |txn| {
        let is_status = puts(txn, "customresourcedefinitions") && says(txn, "InitialNamesAccepted");
        let mut open = open.clone();
        Box::pin(async move {
            if is_status {
                open.wait_for(|open| *open).await.unwrap();
            }
            Ok(())
        })
    });
    let test = TestServer::on(Arc::new(engine)).await;
    let http = test.http();
    let mut creation = tokio::spawn({
        let http = http.clone();
        async move { http.post(DEFINITIONS, &definition(&spec())).await }
    });
    let early = tokio::time::timeout(Duration::from_secs(30), &mut creation).await;
    assert!(early.is_err(), "answered though the definition is not in force: {early:?}");
    sender.send_replace(true);
    creation.await.unwrap().ok();
    http.post(KITES, &kite("red", 1)).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_put_in_force_is_not_answered_as_if_it_were() {
    let (sender, broken) = watch::channel(true);
    let engine = Engine::new(move |txn| {
        let is_status = puts(txn, "customresourcedefinitions") && says(txn, "InitialNamesAccepted");
        let fails = is_status && *broken.borrow();
        Box::pin(std::future::ready(if fails { Err(kv::Error::Busy) } else { Ok(()) }))
    });
    let test = TestServer::on(Arc::new(engine)).await;
    let http = test.http();
    let refused = http.post(DEFINITIONS, &definition(&spec())).await;
    assert_eq!(refused.refusal(), (500, "InternalError".to_owned()));
    assert!(text(&refused.json(), "/message").contains("was stored, but is not in force"), "{refused:?}");
    assert_eq!(conditions(&http, "kites.example.com").await, [""; 0]);

    let stored = http.get(&format!("{DEFINITIONS}/kites.example.com")).await.ok();
    let mut events = http.watch(&format!("{DEFINITIONS}?resourceVersion={}", version(&stored))).await;
    sender.send_replace(false);
    assert_eq!(events.next().await.unwrap()["object"]["status"]["conditions"][1]["status"], "True");
    http.post(KITES, &kite("red", 1)).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_read_again_and_not_in_force_is_not_answered_as_if_it_were() {
    let (reached_sender, mut reached) = watch::channel(false);
    let (open_sender, open) = watch::channel(false);
    let engine = Engine::new(move |txn| {
        let is_status = says(txn, "InitialNamesAccepted");
        let (is_kites, fails) = (is_status && puts(txn, "kites"), is_status && puts(txn, "dragons"));
        let (reached, mut open) = (reached_sender.clone(), open.clone());
        Box::pin(async move {
            if is_kites {
                reached.send_replace(true);
                open.wait_for(|open| *open).await.unwrap();
            }
            if fails { Err(kv::Error::Busy) } else { Ok(()) }
        })
    });
    let test = TestServer::on(Arc::new(engine)).await;
    let create = |definition: Value| {
        let http = test.http();
        tokio::spawn(async move { http.post(DEFINITIONS, &definition).await })
    };
    let kites = create(definition(&spec()));
    reached.wait_for(|reached| *reached).await.unwrap();
    let before = test.store.revision();
    let mut dragons = definition(&spec());
    dragons["metadata"]["name"] = json!("dragons.example.com");
    dragons["spec"]["names"] = json!({"plural": "dragons", "kind": "Dragon"});
    let dragons = create(dragons);
    test.store.wait_for(before.next(), tokio::time::Instant::now() + Duration::from_secs(60)).await.unwrap();
    // The events are compacted before they are followed, so every definition is read again.
    test.store.compact(test.store.revision()).await.unwrap();
    open_sender.send_replace(true);
    kites.await.unwrap().ok();
    let refused = dragons.await.unwrap();
    assert_eq!(refused.refusal(), (500, "InternalError".to_owned()));
    assert!(text(&refused.json(), "/message").contains("was stored, but is not in force"), "{refused:?}");
}
