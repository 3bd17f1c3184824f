//! A cache of bytes: reads give the same as from a typed cache, and only objects that are read are decoded.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use steersman::cache::{CacheMode, Change, Event, EventHandler, Informer, Running, Selection, handler_fn};
use steersman::controller::Watch;
use steersman::queue::WorkQueue;
use steersman::reflector::ReflectorOptions;
use steersman::{Action, Controller, InformerFactory, LookupError, ObjectKey, Scope, index_by};
use tokio_util::sync::CancellationToken;

use crate::cache::informer::Log;
use crate::server::{Server, settle};

const WAIT: Duration = Duration::from_secs(600);

/// The number of objects decoded on this test's thread.
fn decoded() -> usize {
    DECODED.with(|decoded| decoded.load(Ordering::Relaxed))
}

thread_local! {
    static DECODED: AtomicUsize = const { AtomicUsize::new(0) };
}

/// A ConfigMap that counts how many times it is decoded. Certain data makes its decoder panic.
#[derive(Clone)]
struct Counted {
    inner: ConfigMap,
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DECODED.with(|decoded| decoded.fetch_add(1, Ordering::Relaxed));
        let inner = ConfigMap::deserialize(deserializer)?;
        assert!(inner.data.iter().flatten().all(|(_, value)| value != "panic"), "scripted");
        Ok(Self { inner })
    }
}

impl Resource for Counted {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.inner.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.inner.meta_mut()
    }
}

fn compact(server: &Server) -> InformerFactory {
    let options = ReflectorOptions::default().cache(CacheMode::COMPACT);
    InformerFactory::new(server.client()).options(options)
}

async fn start(server: &Server) -> (Informer<Counted>, Running) {
    let factory = compact(server);
    let informer = factory.informer::<Counted>(Scope::All);
    let running = factory.start();
    informer.wait_synced(WAIT).await.expect("the server is well");
    (informer, running)
}

/// A cache of bytes with a handler that records its events.
async fn start_logged(server: &Server) -> (Informer<ConfigMap>, Log, Running) {
    let factory = compact(server);
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let log = Log::default();
    informer.add_handler(log.handler());
    let running = factory.start();
    informer.wait_synced(WAIT).await.expect("the server is well");
    (informer, log, running)
}

fn labelled(server: &Server, name: &str, app: &str) {
    let metadata = json!({"namespace": "a", "name": name, "labels": {"app": app}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": format!("uid-{app}"), "controller": true},
    ]});
    server.put_raw("/api/v1/configmaps", json!({"metadata": metadata, "data": {"value": name}}));
}

fn key(text: &str) -> ObjectKey {
    text.parse().expect("a key")
}

#[tokio::test(start_paused = true)]
async fn handlers_hear_what_they_would_hear_from_a_typed_cache() {
    let server = Server::new();
    server.put("a/x", "1");
    let (_informer, log, _running) = start_logged(&server).await;
    server.put("a/y", "1");
    server.put("a/x", "2");
    server.delete("a/y");
    settle().await;
    assert_eq!(log.take(), ["initial a/x=1", "added a/y=1", "updated a/x=1>2", "deleted a/y=1"]);
    server.end_watches();
    server.delete("a/x");
    server.compact();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["vanished a/x=2"]);
}

#[tokio::test(start_paused = true)]
async fn a_work_queue_is_fed_without_decoding_anything() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = compact(&server);
    let informer = factory.informer::<Counted>(Scope::All);
    let queue: WorkQueue = WorkQueue::new("counted", steersman::queue::RateLimiter::default());
    informer.add_handler(queue.enqueuer());
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/y", "1");
    settle().await;
    assert_eq!(queue.len(), 2);
    assert_eq!(decoded(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_state_before_a_change_is_decoded_for_who_asks() {
    let server = Server::new();
    server.put("a/x", "1");
    let options = ReflectorOptions::default().cache(CacheMode::Compact { decoded_max: 0 });
    let factory = InformerFactory::new(server.client()).options(options);
    let informer = factory.informer::<Counted>(Scope::All);
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let handler = {
        let heard = Arc::clone(&heard);
        handler_fn(move |change: Change<'_, Counted>| {
            let Change::Updated { old, new } = change else { return };
            let value = |object: &Counted| object.inner.data.as_ref().unwrap()["value"].clone();
            let before = old.metadata().unwrap().resource_version.clone().unwrap();
            assert_eq!(before, old.resource_version());
            let old = (value(new) == "3").then(|| value(old.object().unwrap()));
            heard.lock().push(format!("{old:?} {}", value(new)));
        })
    };
    informer.add_handler(handler);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(decoded(), 1);
    server.put("a/x", "2");
    settle().await;
    assert_eq!(decoded(), 2);
    server.put("a/x", "3");
    settle().await;
    assert_eq!(decoded(), 4);
    assert_eq!(*heard.lock(), ["None 2", "Some(\"2\") 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_and_what_it_owns_decode_nothing_by_themselves() {
    let server = Server::new();
    server.put("a/parent", "1");
    let metadata = json!({"namespace": "a", "name": "child", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "1", "controller": true},
    ]});
    let runs = Arc::<Mutex<Vec<String>>>::default();
    async fn reconcile(key: ObjectKey, runs: &Arc<Mutex<Vec<String>>>) -> Result<Action, Infallible> {
        runs.lock().push(key.to_string());
        Ok(Action::AwaitChange)
    }
    let scope = Selection::new(Scope::All).fields("metadata.name=parent");
    let controller = Controller::<Counted>::of(scope, reconcile, Arc::clone(&runs)).owns::<Counted>();
    let stop = CancellationToken::new();
    let factory = compact(&server);
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { controller.run(&factory, stop).await }
    });
    settle().await;
    runs.lock().clear();
    server.put_raw("/api/v1/configmaps", json!({"metadata": metadata}));
    settle().await;
    assert!(runs.lock().contains(&"a/parent".to_owned()), "{runs:?}");
    assert_eq!(decoded(), 0);
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_predicate_and_a_map_share_one_decoding() {
    async fn reconcile(_: ObjectKey, (): &()) -> Result<Action, Infallible> {
        Ok(Action::AwaitChange)
    }
    let server = Server::new();
    let options = ReflectorOptions::default().cache(CacheMode::Compact { decoded_max: 0 });
    let factory = InformerFactory::new(server.client()).options(options);
    let watch = Watch::<Counted>::new(Scope::All).when(|_| true);
    let controller = Controller::<Counted>::new(reconcile, ()).watches(watch, |object| vec![ObjectKey::of(object)]);
    let stop = CancellationToken::new();
    let story = async {
        settle().await;
        server.put("a/x", "1");
        settle().await;
        assert_eq!(decoded(), 1);
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(controller.run(&factory, stop.clone()), story);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_is_decoded_when_it_is_read_and_again_when_it_changed() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server).await;
    let lister = informer.lister();
    assert_eq!(decoded(), 0);
    let first = lister.get(&key("a/x")).unwrap();
    let second = lister.get(&key("a/x")).unwrap();
    assert!(Arc::ptr_eq(&first, &second), "what has been decoded is remembered");
    assert_eq!(decoded(), 1);
    server.put("a/x", "2");
    settle().await;
    let third = lister.get(&key("a/x")).unwrap();
    assert_eq!(third.inner.data.as_ref().unwrap()["value"], "2");
    assert_eq!(decoded(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_holds_is_not_decoded_again() {
    let server = Server::new();
    for number in 0..100 {
        server.put(&format!("a/x{number}"), "1");
    }
    let options = ReflectorOptions::default().cache(CacheMode::Compact { decoded_max: 4 });
    let factory = InformerFactory::new(server.client()).options(options);
    let informer = factory.informer::<Counted>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let lister = informer.lister();
    let held = lister.list().unwrap();
    assert_eq!((held.len(), decoded()), (100, 100));
    let again = lister.list().unwrap();
    assert!(held.iter().zip(&again).all(|(held, again)| Arc::ptr_eq(held, again)));
    assert_eq!(decoded(), 100);
    drop((held, again));
    lister.list().unwrap();
    assert!(decoded() > 190, "no more than a few were kept, and {} have been decoded", decoded());
}

#[tokio::test(start_paused = true)]
async fn an_index_by_the_whole_object_decodes_each_state_once_and_so_do_handlers() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server).await;
    let by_value = informer.add_index(|counted| counted.inner.data.clone().unwrap_or_default().into_values());
    let heard = Arc::<Mutex<Vec<String>>>::default();
    for _ in 0..2 {
        let heard = Arc::clone(&heard);
        informer.add_handler(handler_fn(move |change: Change<'_, Counted>| {
            heard.lock().extend(change.object().map(|object| object.inner.name_any()));
        }));
    }
    settle().await;
    assert_eq!(decoded(), 1);
    server.put("a/x", "2");
    settle().await;
    assert_eq!(decoded(), 2);
    assert!(by_value.get("1").unwrap().is_empty());
    assert_eq!(by_value.get("2").unwrap().len(), 1);
    server.delete("a/x");
    settle().await;
    assert!(by_value.get("2").unwrap().is_empty());
    assert_eq!(heard.lock().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn whether_objects_are_decoded_when_they_arrive_is_one_setter() {
    let server = Server::new();
    server.put("a/x", "1");
    for (factory, expected) in
        [(compact(&server), 0), (compact(&server).typed(), 1), (compact(&server).typed().compact(), 1)]
    {
        let informer = factory.informer::<Counted>(Scope::All);
        let _running = factory.start();
        informer.wait_synced(WAIT).await.unwrap();
        assert_eq!(decoded(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_selection_decodes_only_what_it_selects() {
    let server = Server::new();
    for number in 0..20 {
        labelled(&server, &format!("x{number}"), if number % 10 == 0 { "web" } else { "db" });
    }
    let (informer, _running) = start(&server).await;
    let web = Selector::from(Expression::Equal("app".to_owned(), "web".to_owned()));
    assert_eq!(informer.lister().select(&web).unwrap().len(), 2);
    assert_eq!(informer.lister().select_in("a", &web).unwrap().len(), 2);
    assert_eq!(informer.lister().select_in("b", &web).unwrap().len(), 0);
    assert_eq!(decoded(), 2);
}

#[tokio::test(start_paused = true)]
async fn indexes_by_metadata_decode_nothing_but_it() {
    let server = Server::new();
    labelled(&server, "x", "web");
    let (informer, _running) = start(&server).await;
    let by_app = informer.add_metadata_index(index_by::label("app"));
    let by_owner = informer.add_metadata_index(index_by::controller_uid);
    labelled(&server, "y", "db");
    labelled(&server, "x", "db");
    settle().await;
    let mut found = by_app.keys("db").unwrap();
    found.sort();
    assert_eq!(found, [key("a/x"), key("a/y")]);
    assert!(by_app.keys("web").unwrap().is_empty());
    assert_eq!(by_owner.keys("uid-db").unwrap().len(), 2);
    assert_eq!(decoded(), 0);
    assert_eq!(by_app.get("db").unwrap().len(), 2);
    assert_eq!(decoded(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_an_error_for_its_reader_and_its_handler() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, log, _running) = start_logged(&server).await;
    server.put_raw("/api/v1/configmaps", json!({"metadata": {"namespace": "a", "name": "x"}, "data": 7}));
    settle().await;
    let error = informer.lister().get(&key("a/x")).unwrap_err();
    assert!(matches!(error, LookupError::Undecodable { .. }), "{error}");
    assert_eq!(informer.lister().keys().unwrap(), [key("a/x")], "it exists");
    assert!(informer.lister().list().unwrap().is_empty());
    server.put("a/x", "3");
    settle().await;
    assert_eq!(log.take(), ["initial a/x=1", "undecodable a/x", "updated a/x=?>3"]);
}

#[tokio::test(start_paused = true)]
async fn members_that_are_pruned_are_not_held() {
    let server = Server::new();
    let metadata =
        json!({"namespace": "a", "name": "x", "managedFields": [{"manager": "m"}], "annotations": {"a": "b"}});
    server.put_raw("/api/v1/configmaps", json!({"metadata": metadata, "data": {"value": "1"}}));
    let prune = vec![vec!["metadata".to_owned(), "managedFields".to_owned()], vec!["data".to_owned()]];
    let options = ReflectorOptions::default().cache(CacheMode::COMPACT).prune(prune);
    let factory = InformerFactory::new(server.client()).options(options);
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    let object = informer.lister().get(&key("a/x")).unwrap();
    assert_eq!(object.metadata.managed_fields, None);
    assert_eq!(object.data, None);
    assert_eq!(object.metadata.annotations.as_ref().unwrap()["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_the_bytes_of_what_did_not_change() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("a/y", "1");
    let (informer, _running) = start(&server).await;
    let lister = informer.lister();
    let before = lister.get(&key("a/x")).unwrap();
    server.end_watches();
    server.put("a/y", "2");
    server.compact();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(Arc::ptr_eq(&before, &lister.get(&key("a/x")).unwrap()));
    assert_eq!(lister.get(&key("a/y")).unwrap().inner.data.as_ref().unwrap()["value"], "2");
    assert_eq!(decoded(), 2);
}

/// A handler that takes events without their objects.
struct Kinds(Arc<Mutex<Vec<String>>>);

impl EventHandler<Counted> for Kinds {
    fn on_event(&mut self, event: &Event<'_, Counted>) {
        let versions =
            [event.old(), event.object()].map(|object| object.map(|object| !object.resource_version().is_empty()));
        let name = event.object().map(|object| object.metadata().expect("metadata").name.clone().unwrap_or_default());
        self.0.lock().push(format!("{:?} {:?} {versions:?} {name:?}", event.kind(), event.key()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_shows_key_kind_and_metadata_without_decoding() {
    let server = Server::new();
    server.put("a/x", "1");
    let factory = compact(&server);
    let informer = factory.informer::<Counted>(Scope::All);
    let heard = Arc::<Mutex<Vec<String>>>::default();
    informer.add_handler(Kinds(Arc::clone(&heard)));
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/x", "2");
    server.delete("a/x");
    settle().await;
    assert_eq!(
        *heard.lock(),
        [
            r#"Added(Initial) Some("a/x") [None, Some(true)] Some("x")"#,
            r#"Updated Some("a/x") [Some(true), Some(true)] Some("x")"#,
            r#"Deleted Some("a/x") [None, Some(true)] Some("x")"#,
        ]
    );
    assert_eq!(decoded(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_decoder_that_panics_costs_one_object() {
    let server = Server::new();
    server.put("a/x", "panic");
    server.put("a/y", "1");
    for factory in [compact(&server), InformerFactory::new(server.client())] {
        server.put("a/x", "panic");
        let informer = factory.informer::<Counted>(Scope::All);
        let by_name = informer.add_index(|counted| vec![counted.inner.name_any()]);
        let _running = factory.start();
        informer.wait_synced(WAIT).await.unwrap();
        let lister = informer.lister();
        assert!(matches!(lister.get(&key("a/x")), Err(LookupError::Undecodable { .. })));
        assert_eq!((lister.list().unwrap().len(), by_name.get("y").unwrap().len()), (1, 1));
        server.put("a/x", "1");
        settle().await;
        assert!(lister.get(&key("a/x")).is_ok());
        assert_eq!(by_name.get("x").unwrap().len(), 1);
    }
}
