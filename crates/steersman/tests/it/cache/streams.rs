//! The items of an informer's streams, and the states that waits for conditions see.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steersman::cache::{Changes, EventKind, Found, HandlerOptions, Informer};
use steersman::reflector::{Reflector, ReflectorOptions};
use steersman::wait::{AwaitError, Condition, LastSeen, await_condition, conditions};
use steersman::{InformerFactory, ObjectKey, Scope, predicates};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server, Verb, settle};

const WAIT: Duration = Duration::from_secs(600);

fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get("value")).map_or("", String::as_str)
}

fn has_value(wanted: &'static str) -> impl Condition<ConfigMap> {
    let is_met = move |object: Option<&ConfigMap>| object.is_some_and(|object| value(object) == wanted);
    is_met.described_by(|object: &ConfigMap| format!("with the value {:?}", value(object)))
}

/// The items that can be read without a wait.
fn ready<T>(stream: &mut (impl futures::Stream<Item = T> + Unpin)) -> Vec<T> {
    std::iter::from_fn(|| stream.next().now_or_never().flatten()).collect()
}

fn describe(changes: &mut Changes<ConfigMap>) -> Vec<String> {
    let each = ready(changes).into_iter().map(|event| {
        let text = |state: Option<std::sync::Arc<ConfigMap>>| state.map(|state| value(&state).to_owned());
        let key = event.key().map(ToString::to_string).unwrap_or_default();
        format!(
            "{:?} {key} {}>{}",
            event.kind(),
            text(event.old()).unwrap_or_default(),
            text(event.object()).unwrap_or_default()
        )
    });
    each.collect()
}

async fn synced(informer: &Informer<ConfigMap>) {
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_what_is_there_and_then_every_change_of_the_one_watch() {
    let server = Server::new();
    server.put("a/x", "1");
    for factory in [InformerFactory::new(server.client()), InformerFactory::new(server.client()).compact()] {
        let n_watches = server.n_seen("watch=true");
        let informer = factory.informer::<ConfigMap>(Scope::All);
        let mut early = informer.changes();
        let running = factory.start();
        // The order also holds for a stream that nobody has read yet.
        synced(&informer).await;
        let mut late = informer.changes();
        server.put("a/x", "2");
        server.put("a/y", "1");
        server.delete("a/y");
        server.put_raw("/api/v1/configmaps", json!({"metadata": {"namespace": "a", "name": "z"}, "data": 7}));
        server.delete("a/z");
        settle().await;
        let initial = "Added(Initial) a/x >1";
        let changes = ["Updated a/x 1>2", "Added(Later) a/y >1", "Deleted a/y >1"];
        let heard = describe(&mut early);
        assert_eq!(heard[..4], [&[initial], &changes[..]].concat());
        assert_eq!(describe(&mut late), heard);
        assert_eq!(server.n_seen("watch=true"), n_watches + 1, "{:?}", server.seen());
        server.put("a/x", "1");
        settle().await;
        running.shutdown().await;
        assert_eq!(describe(&mut early), ["Updated a/x 2>1"]);
        assert!(early.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn adapters_yield_states_and_keys_of_what_passes() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let mut applied = informer.changes().applied();
    let mut touched = informer.changes().touched();
    let changed = predicates::updated(|old: &ConfigMap, new: &ConfigMap| value(old) != value(new));
    let mut keys = informer.changes().when(|change| change.kind() != EventKind::Deleted).when(changed).keys();
    let _running = factory.start();
    synced(&informer).await;
    server.put("a/x", "1");
    server.put("a/x", "1");
    server.put("a/x", "2");
    server.delete("a/x");
    settle().await;
    let values = |objects: Vec<std::sync::Arc<ConfigMap>>| -> Vec<String> {
        objects.iter().map(|object| value(object).to_owned()).collect()
    };
    assert_eq!(values(ready(&mut applied)), ["1", "1", "2"]);
    assert_eq!(values(ready(&mut touched)), ["1", "1", "2", "2"]);
    assert_eq!(ready(&mut keys).len(), 2, "the addition, and the one update that changed something");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_holds_the_cache_up_until_it_is_dropped() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let unread = informer.changes_with(HandlerOptions::default().events_max(2));
    let _running = factory.start();
    synced(&informer).await;
    for round in 0..10 {
        server.put("a/x", &round.to_string());
        settle().await;
    }
    let key = ObjectKey::namespaced("a", "x");
    assert_ne!(value(&informer.lister().get(&key).unwrap()), "9");
    drop(unread);
    settle().await;
    assert_eq!(value(&informer.lister().get(&key).unwrap()), "9");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_does_not_hold_up_the_end() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let unread = informer.changes_with(HandlerOptions::default().events_max(2));
    let running = factory.start();
    synced(&informer).await;
    for round in 0..10 {
        server.put("a/x", &round.to_string());
        settle().await;
    }
    let key = ObjectKey::namespaced("a", "x");
    assert_ne!(value(&informer.lister().get(&key).unwrap()), "9", "the cache waits for the reader");
    tokio::time::timeout(WAIT, running.shutdown()).await.expect("it ends all the same");
    assert_eq!(value(&informer.lister().get(&key).unwrap()), "9", "what was read of the watch is there");
    let last = unread.applied().collect::<Vec<_>>().await;
    assert_eq!(last.last().map(|object| value(object)), Some("9"));
}

#[tokio::test(start_paused = true)]
async fn the_states_of_one_object_are_all_that_the_cache_shows_of_it() {
    let server = Server::new();
    server.put("a/other", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let mut states = informer.watch_object(&ObjectKey::namespaced("a", "x"));
    assert!(states.next().now_or_never().is_none(), "nothing is known yet");
    let _running = factory.start();
    synced(&informer).await;
    server.put("a/x", "1");
    server.put("a/other", "2");
    server.delete("a/x");
    server.put("a/x", "2");
    server.put_raw("/api/v1/configmaps", json!({"metadata": {"namespace": "a", "name": "x"}, "data": 7}));
    settle().await;
    let seen = |found: Vec<Found<ConfigMap>>| -> Vec<String> {
        let each = found.into_iter().map(|found| match found {
            Found::Absent => "absent".to_owned(),
            Found::Object(object) => value(&object).to_owned(),
            Found::Undecodable(_) => "undecodable".to_owned(),
        });
        each.collect()
    };
    assert_eq!(seen(ready(&mut states)), ["absent", "1", "absent", "2", "undecodable"]);
    // A stream that begins now does not present the previous state as the current one.
    let mut late = informer.watch_object(&ObjectKey::namespaced("a", "x"));
    assert_eq!(seen(ready(&mut late)), ["undecodable"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_on_a_shared_cache_ends_with_the_state_that_meets_it_even_if_that_is_soon_over() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let _running = factory.start();
    synced(&informer).await;
    let key = ObjectKey::namespaced("a", "x");
    let waiting = tokio::spawn({
        let (informer, key) = (informer.clone(), key.clone());
        async move { informer.await_condition(&key, has_value("2"), WAIT).await }
    });
    settle().await;
    for value in ["1", "2", "3"] {
        server.put("a/x", value);
    }
    let met = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(value(&met), "2");
    assert_eq!(value(&informer.lister().get(&key).unwrap()), "3");
    assert_eq!(server.n_watches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_with_a_client_watches_the_one_object_and_leaves_no_watch_behind() {
    let server = Server::new();
    let version = server.put("a/x", "1");
    let uid = server.get("/api/v1/configmaps", "a/x").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (client, key) = (server.client(), ObjectKey::namespaced("a", "x"));
    let found = await_condition(&client, &key, conditions::exists::<ConfigMap>(), WAIT).await.unwrap().unwrap();
    assert_eq!(found.metadata.resource_version.as_ref(), Some(&version));
    assert_eq!(server.n_seen("/api/v1/namespaces/a/configmaps?"), 1, "{:?}", server.seen());
    assert_eq!(server.n_seen("fieldSelector=metadata.name%3Dx"), 1, "{:?}", server.seen());
    let waiting =
        tokio::spawn(
            async move { await_condition::<ConfigMap>(&client, &key, conditions::is_deleted(&uid), WAIT).await },
        );
    settle().await;
    assert!(!waiting.is_finished());
    server.delete("a/x");
    assert!(waiting.await.unwrap().unwrap().is_none());
    settle().await;
    assert_eq!(server.n_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_wait_says_what_was_seen_last() {
    let server = Server::new();
    let (client, key) = (server.client(), ObjectKey::namespaced("a", "x"));
    let wait = |condition| await_condition::<ConfigMap>(&client, &key, condition, Duration::from_secs(30));
    let error = wait(has_value("2")).await.unwrap_err();
    let text = r#"configmaps "a/x" did not become as awaited within 30s: it does not exist"#;
    assert_eq!(error.to_string(), text);
    server.put("a/x", "1");
    let error = wait(has_value("2")).await.unwrap_err();
    let text = r#"configmaps "a/x" did not become as awaited within 30s: last seen at version 101, with the value "1""#;
    assert_eq!(error.to_string(), text);
    for verb in [Verb::Watch, Verb::List] {
        for _ in 0..100 {
            server.fail(verb, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
        }
    }
    let error = wait(has_value("2")).await.unwrap_err();
    let AwaitError::TimedOut { last: LastSeen::Nothing { why }, .. } = &error else { panic!("{error}") };
    assert!(why.contains("403 Forbidden: as scripted"), "{error}");
    server.heal();
    server.put_raw("/api/v1/configmaps", json!({"metadata": {"namespace": "a", "name": "x"}, "data": 7}));
    let error = wait(has_value("2")).await.unwrap_err();
    assert!(matches!(error, AwaitError::TimedOut { last: LastSeen::Undecodable { .. }, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn of_an_object_in_a_namespace_that_is_not_watched_nothing_is_said() {
    let server = Server::new();
    server.put("b/x", "1");
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::Namespace("a".to_owned()));
    let _running = factory.start();
    synced(&informer).await;
    let elsewhere = ObjectKey::namespaced("b", "x");
    let error = informer.await_condition(&elsewhere, conditions::is_deleted("u"), WAIT).await.unwrap_err();
    assert!(matches!(error, AwaitError::NotSelected { .. }));
    assert_eq!(error.to_string(), r#""b/x" cannot be awaited: configmaps are watched in namespace a"#);
    assert_eq!(ready(&mut informer.watch_object(&elsewhere)).len(), 0);
    assert_eq!(ready(&mut informer.watch_object(&ObjectKey::namespaced("a", "x"))).len(), 1, "that it is absent");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_informer_has_stopped() {
    let server = Server::new();
    let factory = InformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    synced(&informer).await;
    let waiting = tokio::spawn(async move {
        informer.await_condition(&ObjectKey::namespaced("a", "x"), conditions::exists(), WAIT).await
    });
    settle().await;
    running.shutdown().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, AwaitError::Stopped { last: LastSeen::Absent, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_deltas_of_a_reflector_are_a_stream_that_ends_with_it() {
    let server = Server::new();
    server.put("a/x", "1");
    let (sender, mut deltas) = steersman::reflector::delta_fifo(16);
    let options = ReflectorOptions::default();
    let reflector = Reflector::<ConfigMap>::new(server.client(), &(), Scope::All.into(), options, Default::default());
    let stop = CancellationToken::new();
    let task = tokio::spawn(reflector.run(sender, stop.clone()));
    settle().await;
    assert_eq!(ready(&mut deltas).len(), 3, "the begin of the list, the object, its end");
    stop.cancel();
    task.await.unwrap();
    assert!(deltas.next().await.is_none());
}
