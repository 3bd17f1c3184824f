//! A key does not run before the caches have what it wrote.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::{ConsistencyStore, InformerFactory, ObjectKey, Scope};

use crate::server::{Fault, Server, Verb, settle};

fn config_map(name: &str, version: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
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
    tokio::time::timeout(Duration::from_secs(3_600), config_maps.lister().wait_for(&stale.key, &second, Duration::MAX))
        .await
        .unwrap()
        .unwrap();
    assert!(store.ensure_ready(&owner).is_ok());
    assert!(store.is_empty());
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
