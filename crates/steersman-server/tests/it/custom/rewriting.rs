//! Stored objects whose definition has changed are rewritten in the background, while other clients write.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite, spec};
use crate::store::engine::{Engine, puts};
use crate::support::{Http, TestServer, serve, text, version};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman_machinery::GroupResource;
use steersman_server::authz::Authorization;
use steersman_server::user::User;
use steersman_storage::{At, Page, Scope, Store};
use tokio::sync::watch;

const KITES_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kites.example.com";

/// The next schema: instead of `length` it has `color`, with a default.
fn next_spec() -> Value {
    json!({"type": "object", "properties": {"color": {"type": "string", "default": "red"}}})
}

/// Changes the schema of the definition.
async fn change(http: &Http, spec: &Value) -> Value {
    let current = http.get(KITES_DEFINITION).await.ok();
    let mut next = definition(spec);
    next["metadata"]["resourceVersion"] = version(&current).to_string().into();
    http.put(KITES_DEFINITION, &next).await.ok()
}

/// The definition's status, as soon as it satisfies the condition.
async fn until(http: &Http, from: &Value, is_it: impl Fn(&Value, &Value) -> bool) -> Value {
    let mut definitions = http.watch(&format!("{DEFINITIONS}?resourceVersion={}", version(from))).await;
    loop {
        let event = definitions.next().await.unwrap();
        let conditions = event["object"]["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == "StoredObjectsCurrent");
        if condition.is_some_and(|condition| is_it(&event["object"], condition)) {
            return event["object"].clone();
        }
    }
}

fn is_completed(definition: &Value, condition: &Value) -> bool {
    condition["status"] == "True" && condition["observedGeneration"] == definition["metadata"]["generation"]
}

/// The stored kites by name.
fn stored(store: &Store) -> BTreeMap<String, Value> {
    let kites = GroupResource::new("example.com", "kites");
    let list = store.list(&kites, &Scope::All, At::Latest, Page::ALL).unwrap();
    let object = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap();
    let objects = list.objects.iter().map(|one| (one.key.name.to_string(), object(one.json())));
    objects.collect()
}

async fn with_kites(test: &TestServer, count: i64) {
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    for index in 0..count {
        http.post(KITES, &kite(&format!("k{index:03}"), index)).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn stored_objects_get_the_form_of_the_changed_definition() {
    let test = TestServer::new().await;
    let http = test.http();
    with_kites(&test, 100).await;
    let changed = change(&http, &next_spec()).await;
    let progress = until(&http, &changed, |_, condition| condition["status"] == "False").await;
    let message = progress["status"]["conditions"].as_array().unwrap().last().unwrap()["message"].clone();
    assert_eq!(message, "64 of 100 stored objects have been checked");
    let done = until(&http, &changed, is_completed).await;
    assert_eq!(done["metadata"]["generation"], 2);
    for (name, object) in stored(&test.store) {
        assert_eq!(object["spec"], json!({"color": "red"}), "{name}");
        assert_eq!(object["metadata"]["generation"], 1, "{name}");
    }
    // A later change has its own condition.
    let changed = change(&http, &spec()).await;
    until(&http, &changed, is_completed).await;
    assert!(stored(&test.store).values().all(|object| object["spec"] == json!({})));
}

#[tokio::test(start_paused = true)]
async fn objects_that_need_nothing_are_left_alone() {
    let test = TestServer::new().await;
    let http = test.http();
    with_kites(&test, 3).await;
    let before = stored(&test.store);
    let longer = json!({"spec": {"names": {"shortNames": ["kt"]}}});
    let changed = http.merge(KITES_DEFINITION, &longer).await.ok();
    until(&http, &changed, is_completed).await;
    assert_eq!(stored(&test.store), before);
}

#[tokio::test(start_paused = true)]
async fn fields_that_become_selectable_can_be_told_without_reading_the_object() {
    let test = TestServer::new().await;
    let http = test.http();
    with_kites(&test, 3).await;
    let kites = GroupResource::new("example.com", "kites");
    let lengths = || {
        let list = test.store.list(&kites, &Scope::All, At::Latest, Page::ALL).unwrap();
        list.objects.iter().map(|one| one.meta().field("spec.length").map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(lengths(), [None, None, None]);
    let select =
        json!([{"op": "add", "path": "/spec/versions/0/selectableFields", "value": [{"jsonPath": ".spec.length"}]}]);
    let changed = http.json_patch(KITES_DEFINITION, &select).await.ok();
    until(&http, &changed, is_completed).await;
    assert_eq!(lengths(), ["0", "1", "2"].map(|text| Some(text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn no_object_is_left_in_an_old_version() {
    let test = TestServer::new().await;
    let http = test.http();
    with_kites(&test, 3).await;
    let current = http.get(KITES_DEFINITION).await.ok();
    let mut versions = current["spec"]["versions"].as_array().unwrap().clone();
    let mut newer = versions[0].clone();
    newer["name"] = json!("v2");
    versions[0]["storage"] = json!(false);
    versions.push(newer);
    let changed = http.merge(KITES_DEFINITION, &json!({"spec": {"versions": versions}})).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let done = until(&http, &changed, is_completed).await;
    assert_eq!(done["status"]["storedVersions"], json!(["v2"]));
    assert!(stored(&test.store).values().all(|object| object["apiVersion"] == "example.com/v2"));
    // Now the old version can be removed, which is refused while objects may be stored in it.
    let versions = json!([versions[1]]);
    http.merge(KITES_DEFINITION, &json!({"spec": {"versions": versions}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_server_has_rewritten_is_not_rewritten_again() {
    const BEFORE_THE_STOP: usize = 30;
    let (sender, open) = watch::channel(true);
    let rewritten = Arc::new(AtomicUsize::new(0));
    let engine = Engine::new({
        let rewritten = rewritten.clone();
        move |txn| {
            let is_held =
                puts(txn, "/kites/") && !*open.borrow() && BEFORE_THE_STOP <= rewritten.fetch_add(1, Ordering::Relaxed);
            let mut open = open.clone();
            Box::pin(async move {
                if is_held {
                    open.wait_for(|open| *open).await.unwrap();
                }
                Ok(())
            })
        }
    });
    let test = TestServer::on(Arc::new(engine)).await;
    let http = test.http();
    with_kites(&test, 100).await;
    sender.send_replace(false);
    let changed = change(&http, &next_spec()).await;
    while rewritten.load(Ordering::Relaxed) <= BEFORE_THE_STOP {
        tokio::task::yield_now().await;
    }
    test.server.stop().await;
    let halfway = stored(&test.store);
    let is_new = |object: &Value| object["spec"]["color"] == "red";
    assert_eq!(halfway.values().filter(|object| is_new(object)).count(), BEFORE_THE_STOP);

    sender.send_replace(true);
    let next = serve(&test.store, Authorization::default()).await;
    until(&Http(next.service_as(User::master("admin"))), &changed, is_completed).await;
    for (name, object) in stored(&test.store) {
        assert!(is_new(&object), "{name}");
        let before = &halfway[&name];
        assert_eq!(is_new(before), before == &object, "{name} was rewritten twice, or not at all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_at_the_same_time_is_not_overwritten() {
    let test = TestServer::new().await;
    let http = test.http();
    with_kites(&test, 200).await;
    let changed = change(&http, &next_spec()).await;
    let writes = async {
        for index in 0..200 {
            let blue = json!({"spec": {"color": format!("blue{index}")}});
            http.merge(&format!("{KITES}/k{index:03}"), &blue).await.ok();
        }
    };
    let (_, ()) = tokio::join!(until(&http, &changed, is_completed), writes);
    for (index, object) in stored(&test.store).values().enumerate() {
        assert_eq!(text(object, "/spec/color"), format!("blue{index}"));
    }
}
