//! The events of handlers, and their times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{Expression, Selector};
use parking_lot::Mutex;
use steersman::cache::{Arrival, Change, Deleted, HandlerOptions, handler_fn};
use steersman::{InformerFactory, LookupError, ObjectKey, Scope};

use crate::server::{Fault, Server, Verb, eventually, settle};

const WAIT: Duration = Duration::from_secs(600);

/// A handler that records its events.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn handler(&self) -> impl steersman::cache::EventHandler<ConfigMap> + use<> {
        let log = self.clone();
        handler_fn(move |change: Change<'_, ConfigMap>| log.0.lock().push(describe(&change)))
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn value(object: &ConfigMap) -> String {
    object.data.as_ref().map(|data| data["value"].clone()).unwrap_or_default()
}

fn describe(change: &Change<'_, ConfigMap>) -> String {
    let key = change.key().map(|key| key.to_string()).unwrap_or_default();
    match change {
        Change::Added(object, Arrival::Initial) => format!("initial {key}={}", value(object)),
        Change::Added(object, Arrival::Later) => format!("added {key}={}", value(object)),
        Change::Deleted(Deleted::Final(object)) => format!("deleted {key}={}", value(object)),
        Change::Deleted(Deleted::Tombstone { last_known, .. }) => {
            format!("vanished {key}={}", last_known.as_ref().map(|object| value(object)).unwrap_or_default())
        }
        Change::Undecodable(_) => format!("undecodable {key}"),
        Change::Updated { new, .. } if change.is_resync() => format!("resync {key}={}", value(new)),
        Change::Updated { old, new } => {
            let old = old.object().map_or_else(|| "?".to_owned(), |old| value(old).to_string());
            format!("updated {key}={old}>{}", value(new))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_hear_the_initial_state_and_then_every_change_with_the_state_before() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let log = Log::default();
    informer.add_handler(log.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(log.take(), ["initial a/x=1"], "synced means that the handler has heard of it");
    server.put("a/y", "1");
    server.put("a/x", "2");
    server.delete("a/y");
    settle().await;
    assert_eq!(log.take(), ["added a/y=1", "updated a/x=1>2", "deleted a/y=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_could_not_be_added_holds_up_nobody() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let log = Log::default();
    informer.add_handler(log.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let outside = informer.clone();
    let added = std::thread::spawn(move || {
        outside.add_handler_with(handler_fn(|_: Change<'_, ConfigMap>| {}), HandlerOptions::default().events_max(1))
    });
    assert!(added.join().is_err(), "there is no runtime to run it on");
    for number in 0..10 {
        server.put("a/x", &number.to_string());
        settle().await;
    }
    assert_eq!(log.take().last().unwrap(), "updated a/x=8>9");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_missed_while_away_is_a_tombstone_with_the_last_known_state() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("a/y", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let log = Log::default();
    informer.add_handler(log.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    log.take();
    server.end_watches();
    server.delete("a/x");
    server.put("a/y", "2");
    server.compact();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["updated a/y=1>2", "vanished a/x=1"], "what a list does not name is gone at its end");
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_and_made_again_while_away_is_a_deletion_and_an_addition() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let log = Log::default();
    informer.add_handler(log.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    log.take();
    server.end_watches();
    server.delete("a/x");
    server.put("a/x", "2");
    server.compact();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["vanished a/x=1", "added a/x=2"]);
}

#[tokio::test(start_paused = true)]
async fn one_watch_serves_everybody_who_asks_for_the_same() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let running = factory.start();
    for _ in 0..3 {
        let informer = factory.informer::<ConfigMap>(Scope::All);
        informer.wait_synced(WAIT).await.unwrap();
    }
    assert_eq!(server.n_watches(), 1);
    let other = factory.informer::<ConfigMap>(Scope::Namespace("a".into()));
    other.wait_synced(WAIT).await.unwrap();
    assert_eq!(server.n_watches(), 2);
    running.shutdown().await;
    assert_eq!(server.n_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_hears_of_every_object_exactly_once_however_busy_it_is() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let mut mirrors = Vec::new();
    for number in 0..50 {
        server.put(&format!("a/x{number}"), "1");
        let mirror = Arc::new(Mutex::new(BTreeMap::new()));
        let seen = Arc::clone(&mirror);
        informer.add_handler(handler_fn(move |change: Change<'_, ConfigMap>| {
            if let Change::Added(object, _) = change {
                *seen.lock().entry(ObjectKey::of(&**object)).or_insert(0) += 1;
            }
        }));
        mirrors.push(mirror);
        if number % 7 == 0 {
            settle().await;
        }
    }
    settle().await;
    for mirror in mirrors {
        let mirror = mirror.lock();
        assert_eq!(mirror.len(), 50);
        assert!(mirror.values().all(|n_adds| *n_adds == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_synced_when_it_has_heard_of_everything() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let log = Log::default();
    let registration = informer.add_handler(log.handler());
    assert!(!registration.has_synced());
    registration.wait_synced(WAIT).await.unwrap();
    assert_eq!(log.take(), ["initial a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_hears_nothing_more() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let (gone, stays) = (Log::default(), Log::default());
    let registration = informer.add_handler(gone.handler());
    informer.add_handler(stays.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    registration.remove().await;
    server.put("a/x", "1");
    settle().await;
    assert_eq!(gone.take(), [""; 0]);
    assert_eq!(stays.take(), ["added a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_costs_one_event_of_that_handler() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let (log, heard) = (Log::default(), Log::default());
    let mut inner = log.handler();
    informer.add_handler(handler_fn(move |change: Change<'_, ConfigMap>| {
        assert_ne!(change.key().unwrap().name(), "bad", "scripted");
        if let Change::Added(object, arrival) = change {
            steersman::cache::EventHandler::on_add(&mut inner, object, arrival);
        }
    }));
    informer.add_handler(heard.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/bad", "1");
    server.put("a/x", "1");
    settle().await;
    assert_eq!(log.take(), ["added a/x=1"]);
    assert_eq!(heard.take(), ["added a/bad=1", "added a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_repeats_the_cache_to_those_who_want_it_without_asking_the_server() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let (often, never) = (Log::default(), Log::default());
    let options = HandlerOptions::default().resync(Duration::from_secs(60));
    informer.add_handler_with(often.handler(), options);
    informer.add_handler(never.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let n_requests = server.seen().len();
    tokio::time::sleep(Duration::from_secs(125)).await;
    assert_eq!(often.take(), ["initial a/x=1", "resync a/x=1", "resync a/x=1"]);
    assert_eq!(never.take(), ["initial a/x=1"]);
    assert_eq!(server.seen().len(), n_requests);
}

#[tokio::test(start_paused = true)]
async fn reads_go_on_while_the_server_is_away() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let lister = informer.lister();
    running.shutdown().await;
    drop(server);
    assert_eq!(value(&lister.get(&ObjectKey::namespaced("a", "x")).unwrap()), "1");
    let error = lister.get(&ObjectKey::namespaced("a", "y")).unwrap_err();
    assert!(matches!(&error, LookupError::NotFound { .. }));
    assert_eq!(error.to_string(), r#"configmaps "a/y" not found"#);
}

#[tokio::test(start_paused = true)]
async fn a_lister_reads_by_namespace_label_and_index() {
    let server = Server::new();
    for (key, app) in [("a/x", "web"), ("a/y", "db"), ("b/z", "web")] {
        let (namespace, name) = key.split_once('/').unwrap();
        let metadata = serde_json::json!({"namespace": namespace, "name": name, "labels": {"app": app}});
        server.put_raw("/api/v1/configmaps", serde_json::json!({"metadata": metadata}));
    }
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let by_first_letter =
        informer.add_index(|object| object.metadata.name.as_ref().and_then(|name| name.chars().next()));
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let lister = informer.lister();
    let names = |objects: Vec<Arc<ConfigMap>>| {
        let mut names: Vec<String> = objects.iter().map(|object| ObjectKey::of(&**object).to_string()).collect();
        names.sort();
        names
    };
    let web: Selector = Expression::Equal("app".into(), "web".into()).into();
    assert_eq!(names(lister.list_in("a").unwrap()), ["a/x", "a/y"]);
    assert_eq!(names(lister.select(&web).unwrap()), ["a/x", "b/z"]);
    assert_eq!(names(lister.select_in("a", &web).unwrap()), ["a/x"]);
    assert_eq!(names(by_first_letter.get(&'z').unwrap()), ["b/z"]);
}

#[tokio::test(start_paused = true)]
async fn a_lister_knows_of_no_object_and_of_no_absence_before_the_first_list() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let (lister, web) = (informer.lister(), Selector::from(Expression::Equal("app".into(), "web".into())));
    let by_name = informer.add_metadata_index(|metadata| metadata.name.clone());
    let reads = || -> Vec<(&str, Result<usize, LookupError>)> {
        vec![
            ("get", lister.get(&ObjectKey::namespaced("a", "x")).map(|_| 1)),
            ("find", lister.find(&ObjectKey::namespaced("a", "x")).map(|found| found.iter().len())),
            ("contains", lister.contains(&ObjectKey::namespaced("a", "x")).map(usize::from)),
            ("list", lister.list().map(|found| found.len())),
            ("list_in", lister.list_in("a").map(|found| found.len())),
            ("select", lister.select(&Selector::default()).map(|found| found.len())),
            ("select_in", lister.select_in("a", &Selector::default()).map(|found| found.len())),
            ("select by label", lister.select(&web).map(|found| found.len() + 1)),
            ("an index", by_name.get("x").map(|found| found.len())),
            ("keys", lister.keys().map(|found| found.len())),
            ("len", lister.len()),
            ("is_empty", lister.is_empty().map(|is_empty| usize::from(!is_empty))),
        ]
    };
    let _running = factory.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    for (read, found) in reads() {
        let error = found.unwrap_err();
        assert!(matches!(error, LookupError::NotSynced { .. }), "{read}: {error}");
        let text = "the cache of configmaps is not filled yet: wait for its informer to sync, or read again later";
        assert_eq!(error.to_string(), text);
    }
    server.serve("/api/v1/configmaps", true);
    informer.wait_synced(WAIT).await.unwrap();
    for (read, found) in reads() {
        assert_eq!(found.unwrap(), 1, "{read}");
    }
    let gone = lister.get(&ObjectKey::namespaced("a", "y")).unwrap_err();
    assert!(matches!(gone, LookupError::NotFound { .. }));
    assert!(lister.find(&ObjectKey::namespaced("a", "y")).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn ones_own_write_can_be_waited_for() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let lister = informer.lister();
    let key = ObjectKey::namespaced("a", "x");
    let version = server.put("a/x", "2");
    lister.wait_for(&key, &version, WAIT).await.unwrap();
    assert_eq!(value(&lister.get(&key).unwrap()), "2");
    let error = lister.wait_for(&key, "5000", Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), r#"the cache did not reach version 5000 of "a/x" within 5s: it is at "102""#);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_object_survives_a_relist_as_the_same_arc() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let lister = informer.lister();
    let key = ObjectKey::namespaced("a", "x");
    let before = lister.get(&key).unwrap();
    server.compact();
    server.end_watches();
    server.put("a/y", "1");
    eventually("the relist", || lister.len().unwrap() == 2).await;
    assert!(Arc::ptr_eq(&before, &lister.get(&key).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_type_known_only_at_run_time_can_be_watched() {
    let server = Server::new();
    server.serve("/apis/samplecrd.k8s.io/v1/networks", true);
    let network = serde_json::json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network",
        "metadata": {"namespace": "a", "name": "x", "managedFields": [{}]}, "spec": {"cidr": "192.168.0.0/16"},
    });
    server.put_raw("/apis/samplecrd.k8s.io/v1/networks", network);
    let gvk = kube::core::GroupVersionKind::gvk("samplecrd.k8s.io", "v1", "Network");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, "networks");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer_with::<kube::core::DynamicObject>(&resource, Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let object = informer.lister().get(&ObjectKey::namespaced("a", "x")).unwrap();
    assert_eq!(object.data["spec"]["cidr"], "192.168.0.0/16");
    assert_eq!(object.metadata.managed_fields, None);
    assert_eq!(informer.resource(), "networks.samplecrd.k8s.io");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_synced_is_named() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    let factory = InformerFactory::new(server.client());
    drop(factory.informer::<ConfigMap>(Scope::Namespace("a".into())));
    drop(factory.informer::<k8s_openapi::api::coordination::v1::Lease>(Scope::All));
    let _running = factory.start();
    let error = factory.wait_synced(Duration::from_secs(20)).await.unwrap_err();
    let what = "configmaps in namespace a (the server answered 404 NotFound: the server could not find the requested resource)";
    assert_eq!(error.what, [what]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_several_namespaces_watches_each_and_has_one_cache() {
    let server = Server::new();
    for key in ["a/x", "b/x", "b/y", "c/x"] {
        server.put(key, "1");
    }
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::namespaces(["b", "a"]));
    let by_name = informer.add_metadata_index(|metadata| metadata.name.clone());
    let log = Log::default();
    informer.add_handler(log.handler());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!((server.n_seen("/namespaces/a/configmaps?watch"), server.n_seen("/api/v1/configmaps")), (1, 0));
    let lister = informer.lister();
    assert_eq!((lister.len().unwrap(), by_name.get("x").unwrap().len()), (3, 2));
    assert_eq!(lister.list_in("b").unwrap().len(), 2);
    for read in
        [lister.get(&key("c/x")).map(drop), lister.list_in("c").map(drop), lister.contains(&key("c/x")).map(drop)]
    {
        let error = read.unwrap_err();
        assert!(matches!(error, LookupError::NotSelected { .. }));
        let text = "nothing is known of configmaps in namespace c: they are watched in namespaces a, b";
        assert_eq!(error.to_string(), text);
    }
    assert!(matches!(lister.get(&key("a/y")), Err(LookupError::NotFound { .. })));
    // An object deleted in one namespace without a watch is deleted in that namespace only.
    log.take();
    server.end_watches();
    server.delete("b/x");
    server.put("a/x", "2");
    server.compact();
    let mut heard = Vec::new();
    eventually("both relist", || {
        heard.extend(log.take());
        heard.len() == 2
    })
    .await;
    heard.sort();
    assert_eq!(heard, ["updated a/x=1>2", "vanished b/x=1"]);
    assert_eq!(lister.len().unwrap(), 2);
    let version = server.put("b/y", "2");
    lister.wait_for(&key("b/y"), &version, WAIT).await.unwrap();
    assert!(!lister.has_seen(&key("a/x"), &version), "of a it covers what it was told");
}

#[tokio::test(start_paused = true)]
async fn one_namespace_that_cannot_be_listed_keeps_the_cache_from_being_filled_and_is_named() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("b/x", "1");
    let forbidden = Fault::Status { code: 403, reason: "Forbidden", retry_after: None };
    // The faults hit the first watch, and the list in its place.
    server.fail(Verb::Watch, forbidden.clone());
    server.fail(Verb::List, forbidden);
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::namespaces(["a", "b"]));
    let _running = factory.start();
    let error = informer.wait_synced(Duration::from_millis(100)).await.unwrap_err().to_string();
    assert!(error.contains("configmaps in namespaces a, b (in namespace a: "), "{error}");
    assert!(informer.staleness().is_some());
    assert!(matches!(informer.lister().get(&key("b/x")), Err(LookupError::NotSynced { .. })));
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(informer.lister().len().unwrap(), 2);
}

fn key(text: &str) -> ObjectKey {
    text.parse().unwrap()
}
