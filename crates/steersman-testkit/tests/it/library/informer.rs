//! Informers against the real server, with its own events instead of scripted ones.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use serde_json::json;
use steersman::reflector::{InitialList, ReflectorOptions};
use steersman::{InformerFactory, Lister, ObjectKey, Scope};
use steersman_testkit::ControlPlane;

use crate::{configs, create};

const WAIT: Duration = Duration::from_secs(60);

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Waits until `lister` has the write in `written`.
async fn seen(lister: &Lister<ConfigMap>, written: &ConfigMap) {
    let version = written.metadata.resource_version.as_ref().unwrap();
    lister.wait_for(&ObjectKey::of(written), version, WAIT).await.unwrap();
}

async fn label(api: &Api<ConfigMap>, name: &str, value: &str) -> ConfigMap {
    let patch = json!({"metadata": {"labels": {"color": value}}, "data": {"color": value}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

#[tokio::test]
async fn an_informer_of_metadata_gets_no_more_than_that() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    create(&api, "a").await;
    label(&api, "a", "red").await;
    for initial in [InitialList::Paged, InitialList::Streaming] {
        let options = ReflectorOptions::default().initial(initial).prune(Vec::new());
        let factory = InformerFactory::new(plane.client()).options(options).compact();
        let resource = ApiResource::erase::<ConfigMap>(&());
        let typed = factory.informer::<PartialObjectMeta<ConfigMap>>(Scope::All);
        let dynamic = factory.informer_with::<PartialObjectMeta<DynamicObject>>(&resource, Scope::All);
        let _running = factory.start();
        factory.wait_synced(WAIT).await.unwrap();
        let object = typed.lister().get(&key("a")).unwrap();
        assert_eq!(object.types.as_ref().unwrap().kind, "PartialObjectMetadata");
        assert_eq!(object.metadata.labels.as_ref().unwrap()["color"], "red");
        assert_eq!(dynamic.lister().get(&key("a")).unwrap().metadata, object.metadata);
    }
}

#[tokio::test]
async fn both_kinds_of_cache_follow_the_server() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    create(&api, "a").await;
    let factories = [InformerFactory::new(plane.client()), InformerFactory::new(plane.client()).compact()];
    for factory in &factories {
        let informer = factory.informer::<ConfigMap>(Scope::Namespace("default".to_owned()));
        let _running = factory.start();
        factory.wait_synced(WAIT).await.unwrap();
        let lister = informer.lister();
        for color in ["red", "blue"] {
            seen(&lister, &label(&api, "a", color).await).await;
            assert_eq!(lister.get(&key("a")).unwrap().data.as_ref().unwrap()["color"], color);
        }
        seen(&lister, &create(&api, "b").await).await;
        let deleted = api.delete("b", &DeleteParams::default()).await.unwrap();
        assert!(deleted.is_right(), "nothing holds it back");
        // The next write comes after the deletion.
        seen(&lister, &label(&api, "a", "green").await).await;
        assert_eq!(lister.get(&key("b")).unwrap_err().to_string(), "configmaps \"default/b\" not found");
        assert!(informer.synced().now_or_never().is_some());
    }
}
