//! A cache read with the methods of `kube::Api`, beside `kube::Api` itself.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ResourceExt, VersionMatch};
use serde_json::json;
use steersman::cache::{CacheMode, ReadError, Reader};
use steersman::reflector::ReflectorOptions;
use steersman::{InformerFactory, LookupError, Scope};

use crate::server::Server;

const WAIT: Duration = Duration::from_secs(600);

/// Written once for both, like code that is moved from one to the other.
macro_rules! reads {
    ($api:expr) => {{
        let api = $api;
        let absent = api.get("z").await.unwrap_err();
        let kube::Error::Api(status) = &absent else { panic!("{absent}") };
        let list = api.list(&ListParams::default()).await.unwrap();
        (
            api.get("x").await.unwrap().data,
            api.get_opt("x").await.unwrap().map(|config| config.name_any()),
            api.get_opt("z").await.unwrap().is_none(),
            (status.code, status.reason.clone()),
            list.items
                .iter()
                .map(|config| format!("{:?}/{}", config.namespace(), config.name_any()))
                .collect::<Vec<_>>(),
            list.metadata.resource_version,
        )
    }};
}

fn put(server: &Server, namespace: &str, name: &str, app: &str) {
    let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": app}});
    server.put_raw("/api/v1/configmaps", json!({"metadata": metadata, "data": {"value": app}}));
}

fn names(list: &kube::api::ObjectList<ConfigMap>) -> Vec<String> {
    list.iter().map(|config| format!("{}/{}", config.namespace().unwrap(), config.name_any())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_read_with_the_methods_of_kube_api() {
    for cache in [CacheMode::Typed, CacheMode::COMPACT] {
        let server = Server::new();
        for (namespace, name, app) in [("a", "y", "web"), ("a", "x", "db"), ("b", "x", "web")] {
            put(&server, namespace, name, app);
        }
        let factory = InformerFactory::new(server.client()).options(ReflectorOptions::default().cache(cache));
        let lister = factory.informer::<ConfigMap>(Scope::All).lister();
        let _running = factory.start();
        factory.wait_synced(WAIT).await.unwrap();
        let n_requests = server.seen().len();
        let read = reads!(Reader::namespaced(&lister, "a"));
        assert_eq!(server.seen().len(), n_requests, "nothing was asked of the server");
        assert_eq!(read, reads!(Api::<ConfigMap>::namespaced(server.client(), "a")));
        let all = Reader::all(&lister);
        let select = |labels: &str, fields: &str| all.list(&ListParams::default().labels(labels).fields(fields));
        assert_eq!(names(&all.list(&ListParams::default().limit(1)).await.unwrap()), ["a/x", "a/y", "b/x"]);
        assert_eq!(names(&select("app in (web, other)", "").await.unwrap()), ["a/y", "b/x"]);
        assert_eq!(names(&select("app=web", "metadata.namespace=b").await.unwrap()), ["b/x"]);
        let metadata = Reader::namespaced(&lister, "a").get_metadata("x").await.unwrap();
        assert_eq!((metadata.name_any(), metadata.labels()["app"].as_str()), ("x".to_owned(), "db"));
        assert!(all.get_metadata_opt("x").await.unwrap().is_none(), "no cluster-scoped object has this name");
        let listed = Reader::namespaced(&lister, "a").list_metadata(&ListParams::default().labels("app=web")).await;
        assert_eq!(listed.unwrap().items.iter().map(|item| item.name_any()).collect::<Vec<_>>(), ["y"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_cache_cannot_answer_is_refused_with_a_sentence() {
    let server = Server::new();
    put(&server, "a", "x", "web");
    let factory = InformerFactory::new(server.client());
    let lister = factory.informer::<ConfigMap>(Scope::Namespace("a".to_owned())).lister();
    let reader = Reader::namespaced(&lister, "a");
    let early = reader.get("x").await.unwrap_err();
    let kube::Error::Service(early) = &early else { panic!("{early}") };
    assert!(matches!(early.downcast_ref(), Some(LookupError::NotSynced { .. })));
    let _running = factory.start();
    factory.wait_synced(WAIT).await.unwrap();
    let refused = async |params: ListParams| match reader.list(&params).await {
        Err(kube::Error::Service(error)) => error.downcast_ref::<ReadError>().unwrap().to_string(),
        other => panic!("{other:?}"),
    };
    let all = ListParams::default();
    assert_eq!(
        refused(all.clone().fields("status.phase=Running")).await,
        r#"a cache selects by metadata.name and metadata.namespace, not by "status.phase": use an index, or ask the server"#
    );
    assert_eq!(
        refused(all.clone().continue_token("t")).await,
        r#"a cache gives whole lists, and has no use for the continue token "t": list without it"#
    );
    assert_eq!(
        refused(all.clone().at("9000")).await,
        r#"the cache is at version "101", and "9000" was asked for: wait for it, or ask the server"#
    );
    assert_eq!(
        refused(all.clone().at("101").matching(VersionMatch::Exact)).await,
        r#"a cache moves on, and gives no list at exactly version "101": ask it for one that is not older, or ask the server"#
    );
    assert!(refused(all.clone().labels("app in web")).await.contains("want ( and values"));
    assert_eq!(reader.list(&all.at("101")).await.unwrap().items.len(), 1);
    let elsewhere = Reader::namespaced(&lister, "b").get_opt("x").await.unwrap_err();
    let kube::Error::Service(elsewhere) = &elsewhere else { panic!("{elsewhere}") };
    assert!(matches!(elsewhere.downcast_ref(), Some(LookupError::NotSelected { .. })));
}
