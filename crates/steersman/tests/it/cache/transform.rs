//! Objects that are changed before a cache holds them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use serde_json::json;
use steersman::cache::{CacheMode, Event, EventHandler};
use steersman::reflector::ReflectorOptions;
use steersman::{InformerFactory, LookupError, ObjectKey, Scope};

use crate::server::{Server, settle};

const WAIT: Duration = Duration::from_secs(600);
const COLLECTION: &str = "/api/v1/configmaps";

/// A handler that records how each object is held.
struct Held(Arc<Mutex<Vec<String>>>);

impl EventHandler<ConfigMap> for Held {
    fn on_event(&mut self, event: &Event<'_, ConfigMap>) {
        self.0.lock().push(format!("{:?}", event.object().unwrap()));
    }
}

/// Removes large fields, and also fields that must be kept.
fn strip(config: &mut ConfigMap) {
    let data = config.data.get_or_insert_default();
    assert_ne!(data.get("value").map(String::as_str), Some("panic"), "scripted");
    data.remove("large");
    config.metadata.annotations = None;
    config.metadata.name = None;
    config.metadata.resource_version = None;
}

fn put(server: &Server, name: &str, value: &str) -> String {
    let metadata = json!({"namespace": "a", "name": name, "annotations": {"large": "x".repeat(10_000)}});
    let data = json!({"value": value, "large": "y".repeat(10_000)});
    server.put_raw(COLLECTION, json!({"metadata": metadata, "data": data}))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("a", name)
}

#[tokio::test(start_paused = true)]
async fn what_a_transform_strips_is_not_held_however_objects_are_held() {
    for cache in [CacheMode::Typed, CacheMode::COMPACT] {
        let server = Server::new();
        put(&server, "x", "1");
        put(&server, "y", "panic");
        let options = ReflectorOptions::default().cache(cache);
        let factory = InformerFactory::new(server.client()).options(options).transform(strip);
        let informer = factory.informer::<ConfigMap>(Scope::All);
        let held = Arc::<Mutex<Vec<String>>>::default();
        let _running = factory.start();
        informer.wait_synced(WAIT).await.unwrap();
        let version = put(&server, "x", "2");
        let lister = informer.lister();
        lister.wait_for(&key("x"), &version, WAIT).await.unwrap();
        let object = lister.get(&key("x")).unwrap();
        let data = object.data.as_ref().unwrap();
        assert_eq!((data.len(), data["value"].as_str()), (1, "2"));
        assert_eq!(object.metadata.annotations, None);
        assert_eq!(object.metadata.resource_version.as_deref(), Some(&*version), "the cache knows objects by it");
        assert!(matches!(lister.get(&key("y")), Err(LookupError::Undecodable { .. })));
        // A relist recognizes the objects in the cache.
        server.end_watches();
        server.compact();
        settle().await;
        assert!(Arc::ptr_eq(&object, &lister.get(&key("x")).unwrap()), "{cache:?}");
        informer.add_handler(Held(Arc::clone(&held)));
        settle().await;
        if cache == CacheMode::COMPACT {
            let held = held.lock().join(" ");
            let n_bytes: usize = held.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            assert!(n_bytes < 300, "{held}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn types_known_at_run_time_are_transformed_and_other_types_are_not() {
    let server = Server::new();
    put(&server, "x", "1");
    let strip = |object: &mut DynamicObject| object.data = json!({"data": {"kept": "yes"}});
    let factory = InformerFactory::new(server.client()).compact().transform(strip);
    let resource = ApiResource::erase::<ConfigMap>(&());
    let dynamic = factory.informer_with::<DynamicObject>(&resource, Scope::All);
    let typed = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    factory.wait_synced(WAIT).await.unwrap();
    assert_eq!(dynamic.lister().get(&key("x")).unwrap().data, json!({"data": {"kept": "yes"}}));
    assert_eq!(typed.lister().get(&key("x")).unwrap().data.as_ref().unwrap()["value"], "1");
}
