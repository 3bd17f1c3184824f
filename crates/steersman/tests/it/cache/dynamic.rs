//! Functions for typed objects also work with types that are known at run time only.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use steersman::events::{EventRecorder, EventType};
use steersman::patch::{Force, Lock};
use steersman::write::{OperationResult, create_or_update_with, update_with};
use steersman::{ObjectKey, finalizers, owners, patch, status};

use crate::server::Server;

const THINGS: &str = "/apis/example.com/v1/things";
const FINALIZER: &str = "example.com/cleanup";

/// A server of custom objects, and their resource.
fn things() -> (Server, ApiResource) {
    let server = Server::new();
    server.serve(THINGS, true);
    (server, ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things"))
}

fn put(server: &Server, spec: Value) -> DynamicObject {
    server.put_raw(THINGS, json!({"metadata": {"namespace": "a", "name": "x"}, "spec": spec}));
    read(server)
}

fn read(server: &Server) -> DynamicObject {
    serde_json::from_value(server.get(THINGS, "a/x").unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_object_gets_and_loses_a_finalizer() {
    let (server, resource) = things();
    let client = server.client();
    let stale = put(&server, json!({"size": 1}));
    put(&server, json!({"size": 2}));
    let added = finalizers::add_with(&client, &resource, &stale, FINALIZER).await.unwrap();
    assert!(finalizers::contains(&added, FINALIZER));
    assert_eq!(added.data["spec"]["size"], 2, "it was read again after the conflict");
    finalizers::remove_with(&client, &resource, &added, FINALIZER).await.unwrap();
    assert!(!finalizers::contains(&read(&server), FINALIZER));
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_object_is_applied_patched_and_updated() {
    let (server, resource) = things();
    let client = server.client();
    let key = ObjectKey::namespaced("a", "x");
    let wanted = json!({"spec": {"size": 1}});
    patch::apply_with::<DynamicObject>(&client, &resource, &key, "tester", Force::Yes, &wanted).await.unwrap();
    let old = read(&server);
    let types = old.types.clone().unwrap();
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("example.com/v1", "Thing"));
    let mut new = old.clone();
    new.data["spec"]["size"] = 2.into();
    patch::merge_from_with(&client, &resource, &old, &new, Lock::Yes).await.unwrap().unwrap();
    let stale = old;
    let grow = |thing: &mut DynamicObject| thing.data["spec"]["grown"] = true.into();
    let updated = update_with(&client, &resource, &stale, grow).await.unwrap();
    assert!(matches!(updated, OperationResult::Updated(_)));
    assert_eq!(read(&server).data["spec"], json!({"size": 2, "grown": true}));
    let unchanged = create_or_update_with(&client, &resource, stale, grow).await.unwrap();
    assert!(matches!(unchanged, OperationResult::Unchanged(_)));
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_dynamic_object_is_written_where_its_type_has_it() {
    for (resources, route) in
        [(&["things", "things/status"][..], status::Route::Subresource), (&["things"], status::Route::Object)]
    {
        let (server, resource) = things();
        let resources: Vec<Value> = resources
            .iter()
            .map(|name| json!({"name": name, "singularName": "", "kind": "Thing", "namespaced": true, "verbs": []}))
            .collect();
        let list = json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": resources});
        server.document("/apis/example.com/v1", list);
        let thing = put(&server, json!({}));
        let writer = status::Writer::<DynamicObject>::new_with(server.client(), resource);
        assert_eq!(writer.route().await.unwrap(), route);
        writer.write(&thing, &json!({"size": 7})).await.unwrap();
        assert_eq!(read(&server).data["status"], json!({"size": 7}));
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_dynamic_object_names_its_kind() {
    let (server, resource) = things();
    let thing = put(&server, json!({}));
    let recorder = EventRecorder::new(server.client(), "tester");
    recorder.event_with(&thing, &resource, EventType::Normal, "Grown", "it is larger now");
    recorder.flush().await;
    let events = server.list("/api/v1/events");
    let about = &events[0]["involvedObject"];
    assert_eq!((&about["apiVersion"], &about["kind"]), (&json!("example.com/v1"), &json!("Thing")));
    assert_eq!((&about["name"], &about["uid"]), (&json!("x"), &json!(thing.metadata.uid)));
}

#[test]
fn a_dynamic_object_owns_and_its_key_is_found() {
    let (server, resource) = things();
    let thing = put(&server, json!({}));
    let mut child = ConfigMap::default();
    child.meta_mut().namespace = Some("a".to_owned());
    child.meta_mut().name = Some("child".to_owned());
    assert_eq!(owners::set_controller_with(&thing, &resource, &mut child), Ok(true));
    let owner = owners::controller_of(&child).unwrap();
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("example.com/v1", "Thing"));
    let known = [ObjectKey::namespaced("a", "x")];
    let find = |keys: &[ObjectKey]| {
        owners::controller_key_with::<DynamicObject, _>(&child, &resource, |key| keys.contains(key))
    };
    assert_eq!((find(&known), find(&[])), (Some(ObjectKey::namespaced("a", "x")), None));
    assert!(owners::remove_owner_with(&thing, &resource, &mut child));
    assert_eq!(owners::set_owner_with(&thing, &resource, &mut child), Ok(true));
    assert!(owners::is_owned_by(&thing, &child) && owners::controller_of(&child).is_none());
}
