//! A key does not run before the caches have its own writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::consistency::{ConsistencyStore, StaleCache};
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::reflector::ReflectorOptions;
use steersman::{InformerFactory, LookupError, ObjectKey, ReconcileError, Scope};
use tokio::time::Instant;

use crate::server::{Fault, Server, Verb, settle};

fn config_map(name: &str, version: &str) -> ConfigMap {
    config_map_in("a", name, version)
}

fn config_map_in(namespace: &str, name: &str, version: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    object
}

#[tokio::test(start_paused = true)]
async fn a_key_is_ready_when_the_cache_has_its_writes_and_others_are_not_held_up() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let config_maps = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
    let store = ConsistencyStore::new().covers(&config_maps.lister());
    let (owner, other) = (ObjectKey::namespaced("a", "owner"), ObjectKey::namespaced("a", "other"));

    server.fail(Verb::Watch, Fault::Silence);
    server.end_watches();
    settle().await;
    let (first, second) = (server.put("a/x", "1"), server.put("a/y", "1"));
    store.wrote_at(&owner, &config_map("y", &second));
    store.wrote_at(&owner, &config_map("x", &first));
    let stale = store.ensure_ready(&owner).unwrap_err();
    assert_eq!(
        stale.to_string(),
        format!(r#"the cache of configmaps has not seen version {second} yet, in which "a/y" was written"#)
    );
    assert!(store.ensure_ready(&other).is_ok());

    server.heal();
    tokio::time::timeout(
        Duration::from_secs(3_600),
        config_maps.lister().wait_for(&ObjectKey::namespaced("a", "y"), &second, Duration::MAX),
    )
    .await
    .unwrap()
    .unwrap();
    assert!(store.ensure_ready(&owner).is_ok());
    assert!(store.is_empty());
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_keys_wait_for_in_vain_is_listed_anew_once_after_five_minutes_and_a_metric_tells() {
    let server = Server::new();
    let day = Duration::from_secs(24 * 3_600);
    // Nothing else gives the watch up.
    let options = ReflectorOptions::default().idle_timeout(day).watch_lifetime((day, day));
    let (factory, metrics) = (InformerFactory::new(server.client()).options(options), Metrics::new());
    metrics.observe_informers("test", &factory);
    let config_maps = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
    let store = ConsistencyStore::new().covers(&config_maps.lister());
    let owners = ["first", "second", "third"].map(|name| ObjectKey::namespaced("a", name));
    let n_lists = server.n_seen("sendInitialEvents");

    server.stall_watches();
    let version = server.put("a/x", "1");
    owners.iter().for_each(|owner| store.wrote_at(owner, &config_map("x", &version)));
    let started = Instant::now();
    // As reconcilers that come back each second.
    while owners.iter().any(|owner| store.ensure_ready(owner).is_err()) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(started.elapsed() < Duration::from_secs(400), "the keys wait for ever");
    }
    assert!((300..310).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!((server.n_seen("sendInitialEvents") - n_lists, server.n_watches()), (1, 1));
    let text = metrics.encode(MetricsFormat::Prometheus);
    let line = text.lines().find(|line| line.contains(r#"reason="stale""#)).unwrap();
    assert!(line.starts_with("steersman_informer_relists_total{") && line.ends_with("} 1"), "{line}");
    // The new watch works.
    let version = server.put("a/x", "2");
    let key = ObjectKey::namespaced("a", "x");
    config_maps.lister().wait_for(&key, &version, Duration::from_secs(5)).await.unwrap();
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_compared_or_is_in_no_cache_holds_up_nobody() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let config_maps = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
    let owner = ObjectKey::namespaced("a", "owner");
    let store = ConsistencyStore::new().covers(&config_maps.lister());
    for version in ["", "0", "0999999", "99999x", "next"] {
        store.wrote_at(&owner, &config_map("x", version));
        assert_eq!(store.ensure_ready(&owner), Ok(()), "{version:?}");
    }
    let without_cache = ConsistencyStore::new();
    without_cache.wrote_at(&owner, &config_map("x", "999999"));
    assert_eq!(without_cache.ensure_ready(&owner), Ok(()));
    store.wrote_at(&owner, &config_map("x", "999999"));
    assert!(store.ensure_ready(&owner).is_err());
    store.clear(&owner);
    assert_eq!(store.ensure_ready(&owner), Ok(()));
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_ready_when_the_cache_no_longer_has_what_it_deleted() {
    let server = Server::new();
    for name in ["gone", "going", "again"] {
        server.put(&format!("a/{name}"), "1");
    }
    let factory = InformerFactory::new(server.client());
    let config_maps = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
    let (lister, owner) = (config_maps.lister(), ObjectKey::namespaced("a", "owner"));
    let store = ConsistencyStore::new().covers(&lister);
    let object = |name: &str| lister.get(&ObjectKey::namespaced("a", name)).unwrap();
    let objects = ["gone", "going", "again"].map(object);
    objects.iter().for_each(|object| store.deleted(&owner, &**object));
    let mut is_going = serde_json::to_value(&*objects[1]).unwrap();
    is_going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let steps: [&dyn Fn(); 3] =
        [&|| server.delete("a/gone"), &|| drop(server.put_raw("/api/v1/configmaps", is_going.clone())), &|| {
            server.delete("a/again");
            server.put("a/again", "2");
        }];
    for step in steps {
        let stale = store.ensure_ready(&owner).unwrap_err();
        assert!(stale.to_string().contains("which was deleted"), "{stale}");
        step();
        settle().await;
    }
    assert_eq!(store.ensure_ready(&owner), Ok(()));
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_several_namespaces_is_asked_about_each() {
    let server = Server::new();
    for key in ["a/x", "b/x", "c/x"] {
        server.put(key, "1");
    }
    let factory = InformerFactory::new(server.client());
    let config_maps = factory.informer::<ConfigMap>(Scope::namespaces(["a", "b"]));
    let _running = factory.start();
    config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
    let store = ConsistencyStore::new().covers(&config_maps.lister());
    let owner = ObjectKey::namespaced("a", "owner");
    // Nothing has changed in `a`, so its watch has not reached the later versions.
    let (earlier, later) = (server.put("b/x", "2"), server.put("b/x", "3"));
    settle().await;
    store.wrote_at(&owner, &config_map_in("b", "x", &later));
    assert_eq!(store.ensure_ready(&owner), Ok(()));
    store.wrote_at(&owner, &config_map_in("a", "x", &earlier));
    store.wrote_at(&owner, &config_map_in("b", "x", &later));
    let stale = store.ensure_ready(&owner).unwrap_err();
    assert!(matches!(&stale, StaleCache::Write { version, .. } if *version == earlier), "{stale}");
    store.clear(&owner);
    // The cache does not watch this namespace, so nothing waits for the write.
    store.wrote_at(&owner, &config_map_in("c", "x", &server.put("c/x", "2")));
    settle().await;
    assert_eq!(store.ensure_ready(&owner), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_holds_up_nobody() {
    for is_compact in [false, true] {
        let server = Server::new();
        server.put("a/x", "1");
        let factory = InformerFactory::new(server.client());
        let factory = if is_compact { factory.compact() } else { factory };
        let config_maps = factory.informer::<ConfigMap>(Scope::All);
        let _running = factory.start();
        config_maps.wait_synced(Duration::from_secs(60)).await.unwrap();
        let (lister, owner, key) =
            (config_maps.lister(), ObjectKey::namespaced("a", "owner"), ObjectKey::namespaced("a", "x"));
        let store = ConsistencyStore::new().covers(&lister);
        store.deleted(&owner, &*lister.get(&key).unwrap());
        assert!(store.ensure_ready(&owner).is_err());
        // The object is being deleted, and a finalizer keeps it for ever.
        let mut going = server.get("/api/v1/configmaps", "a/x").unwrap();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        going["metadata"]["finalizers"] = "no list".into();
        going["data"] = 7.into();
        let version = server.put_raw("/api/v1/configmaps", going);
        store.wrote_at(&owner, &config_map("x", &version));
        settle().await;
        assert!(matches!(lister.get(&key), Err(LookupError::Undecodable { .. })));
        assert_eq!(store.ensure_ready(&owner), Ok(()), "compact: {is_compact}");
        lister.wait_for(&key, &version, Duration::from_secs(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_holds_its_key_back_for_a_time() {
    let (store, owner) = (ConsistencyStore::new(), ObjectKey::namespaced("a", "owner"));
    store.unanswered(&owner, Duration::from_secs(30));
    store.unanswered(&owner, Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let stale = store.ensure_ready(&owner).unwrap_err();
    assert_eq!(stale, StaleCache::Unanswered { left: Duration::from_secs(10), waited: Duration::ZERO });
    assert_eq!(stale.retry_after(), Some(Duration::from_secs(10)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(store.ensure_ready(&owner), Ok(()));
}
