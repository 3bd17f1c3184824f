//! CustomResourceDefinitions: in force when their writer is answered, and gone when their objects are.

use crate::support::{Http, World, serve, text, version};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use steersman_server::authz::Masters;
use steersman_server::user::User;

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

async fn world() -> World {
    let world = World::new().await;
    world.http().post(DEFINITIONS, &definition(&spec())).await.ok();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_many_definitions_can_be_created_as_soon_as_these_are() {
    let world = World::new().await;
    let writers: Vec<_> = (0..16)
        .map(|index| {
            let http = world.http();
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
    let world = world().await;
    let http = world.http();
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

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_the_finalizers_of_its_objects_and_then_ends_their_watches() {
    let world = world().await;
    let http = world.http();
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
    let world = world().await;
    let http = world.http();
    for round in 0..3 {
        http.post(KITES, &kite("red", 1)).await.ok();
        until_gone(&http).await;
        http.post(DEFINITIONS, &definition(&spec())).await.ok();
        assert_eq!(http.get(KITES).await.ok()["items"], json!([]), "round {round}");
    }
}

#[tokio::test]
async fn a_watch_outlives_changes_of_its_definition() {
    let world = world().await;
    let http = world.http();
    let from = version(&http.get(KITES).await.ok());
    let mut kites = http.watch(&format!("{KITES}?resourceVersion={from}")).await;
    let longer = json!({"spec": {"names": {"shortNames": ["kt"]}}});
    http.merge(&format!("{DEFINITIONS}/kites.example.com"), &longer).await.ok();
    http.post(KITES, &kite("red", 1)).await.ok();
    assert_eq!(kites.next_name().await.unwrap(), ("ADDED".to_owned(), "red".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on_after_a_restart() {
    let world = world().await;
    let mut held = kite("held", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.http().post(KITES, &held).await.ok();
    let from = version(&world.http().delete(&format!("{DEFINITIONS}/kites.example.com")).await.ok());
    world.server.stop().await;

    let next = serve(&world.store, Arc::new(Masters)).await;
    let http = Http(next.service_as(User::master("admin")));
    http.merge(&format!("{KITES}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={from}&timeoutSeconds=60")).await;
    let words: Vec<_> = definitions.rest().await.iter().map(|event| text(event, "/type").to_owned()).collect();
    assert_eq!(words.last().map(String::as_str), Some("DELETED"));
}
