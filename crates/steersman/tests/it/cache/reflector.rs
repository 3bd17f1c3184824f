//! How a watch starts, goes on, and comes back.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steersman::cache::{Indexer, Informer, Outcome, Running, Selection};
use steersman::reflector::{InitialList, Reflector, ReflectorOptions, delta_fifo};
use steersman::{InformerFactory, LookupError, ObjectKey, Scope};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server, Verb, bookmark, eventually, settle};

const WAIT: Duration = Duration::from_secs(600);

fn start(server: &Server, options: ReflectorOptions) -> (Informer<ConfigMap>, Running) {
    let factory = InformerFactory::new(server.client()).options(options);
    let informer = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    (informer, running)
}

fn paged() -> ReflectorOptions {
    ReflectorOptions::default().initial(InitialList::Paged)
}

/// The objects in the cache, as `key=value`, in order.
fn cached(informer: &Informer<ConfigMap>) -> Vec<String> {
    let objects = informer.lister().list().unwrap();
    let mut shown: Vec<String> = objects
        .iter()
        .map(|object| format!("{}={}", ObjectKey::of(&**object), object.data.as_ref().unwrap()["value"]))
        .collect();
    shown.sort();
    shown
}

async fn until_cached(informer: &Informer<ConfigMap>, expected: &[&str]) {
    eventually(&format!("{expected:?}, but {:?}", cached(informer)), || cached(informer) == expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_fills_the_cache_and_goes_on_as_the_watch() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, ReflectorOptions::default());
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/y", "2");
    server.delete("a/x");
    until_cached(&informer, &["a/y=2"]).await;
    assert_eq!(server.seen().len(), 1, "{:?}", server.seen());
    assert_eq!(informer.staleness(), None);
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_not_kept_unless_asked_for() {
    let server = Server::new();
    server.put("a/x", "1");
    for (prune, is_kept) in [(ReflectorOptions::default().prune, false), (vec![], true)] {
        let (informer, _running) = start(&server, ReflectorOptions::default().prune(prune));
        informer.wait_synced(WAIT).await.unwrap();
        assert_eq!(informer.lister().list().unwrap()[0].metadata.managed_fields.is_some(), is_kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_and_watched() {
    let server = Server::new().without_streaming_lists();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, ReflectorOptions::default());
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/y", "2");
    until_cached(&informer, &["a/x=1", "a/y=2"]).await;
    let lines: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines[1], "GET /api/v1/configmaps?resourceVersion=0");
    assert!(lines[2].contains("watch=true") && lines[2].ends_with("resourceVersion=101"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_never_ends_is_given_up_for_a_list() {
    let server = Server::new().without_end_bookmark();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, ReflectorOptions::default());
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(cached(&informer), ["a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_ends_without_its_bookmark_is_followed_by_a_list() {
    let server = Server::new().without_end_bookmark();
    let lifetime = Duration::from_secs(60);
    let options = ReflectorOptions::default().watch_lifetime((lifetime, lifetime));
    let (informer, _running) = start(&server, options);
    // Events come often enough that the stream never stalls.
    for value in 1..=9 {
        server.put("a/x", &value.to_string());
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(informer.has_synced());
    assert_eq!(cached(&informer), ["a/x=9"]);
}

/// Makes the reflector list next.
async fn relist(server: &Server, informer: &Informer<ConfigMap>, value: &str) {
    server.end_watches();
    server.put("a/x", value);
    server.compact();
    until_cached(informer, &[&format!("a/x={value}")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_fails_on_the_way_is_followed_by_a_list_and_tried_again_later() {
    let bad_gateway = Fault::Status { code: 502, reason: "", retry_after: None };
    let internal = Fault::Status { code: 500, reason: "InternalError", retry_after: None };
    for fault in [Fault::Cut, Fault::Silence, bad_gateway, internal, Fault::Garbage("{\"type\":\"ADDED\",\"obj")] {
        let server = Server::new();
        server.put("a/x", "1");
        server.fail(Verb::Watch, fault.clone());
        let (informer, _running) = start(&server, ReflectorOptions::default());
        informer.wait_synced(WAIT).await.unwrap();
        let lines: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
        assert_eq!(lines[1], "GET /api/v1/configmaps?resourceVersion=0", "after {fault:?}");
        settle().await;
        relist(&server, &informer, "2").await;
        assert_eq!(server.n_seen("sendInitialEvents"), 2, "after {fault:?}: {:?}", server.seen());
    }
}

/// A reader may have seen objects of the broken list that are newer than the state that another server has at hand.
#[tokio::test(start_paused = true)]
async fn after_a_list_that_broke_off_the_newest_state_is_asked_for() {
    let event = concat!(
        r#"{"type":"ADDED","object":{"metadata":{"namespace":"a","name":"x","resourceVersion":"1","uid":"u"}}}"#,
        "\n"
    );
    let page = r#"{"metadata":{},"items":[{"metadata":{"namespace":"a","name":"x","resourceVersion":"1","uid":"u"}},"#;
    for (options, verb, broken) in [(ReflectorOptions::default(), Verb::Watch, event), (paged(), Verb::List, page)] {
        let server = Server::new();
        server.put("a/x", "1");
        server.fail(verb, Fault::Garbage(broken));
        let (informer, _running) = start(&server, options);
        informer.wait_synced(WAIT).await.unwrap();
        let lines: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
        assert_eq!(lines[1], "GET /api/v1/configmaps?limit=500");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_did_not_end_once_is_tried_again() {
    let server = Server::new().without_end_bookmark();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, ReflectorOptions::default());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    server.end_streaming_lists(true);
    relist(&server, &informer, "2").await;
    assert_eq!(server.n_seen("sendInitialEvents"), 2, "{:?}", server.seen());
    assert_eq!(server.n_seen("GET /api/v1/configmaps?limit=500"), 1, "{:?}", server.seen());
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_streaming_lists_never_end_is_asked_for_them_ever_more_seldom() {
    let server = Server::new().without_end_bookmark();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, ReflectorOptions::default());
    informer.wait_synced(WAIT).await.unwrap();
    for number in 0..40 {
        settle().await;
        relist(&server, &informer, &number.to_string()).await;
    }
    // The first one, and then one each after 0, 1, 3, 7 and 15 more lists.
    assert_eq!(server.n_seen("sendInitialEvents"), 6);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_breaks_is_resumed_without_a_relist() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    server.end_watches();
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
    server.break_watches();
    server.put("a/y", "3");
    until_cached(&informer, &["a/x=2", "a/y=3"]).await;
    assert_eq!(server.n_seen("GET /api/v1/configmaps?resourceVersion"), 1, "{:?}", server.seen());
    assert!(server.n_seen("resourceVersion=102") >= 1, "resumed at the version of the last event: {:?}", server.seen());
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_version_that_a_watch_resumes_from() {
    let server = Server::new();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    server.say(&bookmark(777, json!({})));
    settle().await;
    assert_eq!(informer.indexer().resource_version(), "777");
    server.end_watches();
    eventually("a watch from the bookmark", || server.n_seen("resourceVersion=777") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_costs_one_relist_and_missed_deletions_are_found() {
    for options in [paged(), ReflectorOptions::default()] {
        let server = Server::new();
        server.put("a/x", "1");
        server.put("a/y", "1");
        let (informer, _running) = start(&server, options);
        informer.wait_synced(WAIT).await.unwrap();
        settle().await;
        server.end_watches();
        server.delete("a/x");
        server.compact();
        until_cached(&informer, &["a/y=1"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_may_also_be_an_http_status() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    server.fail(Verb::Watch, Fault::Status { code: 410, reason: "Expired", retry_after: None });
    server.end_watches();
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
    eventually("a relist", || server.n_seen("GET /api/v1/configmaps?resourceVersion=101") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_is_repeated_at_once_for_the_newest_state() {
    let server = Server::new();
    server.put("a/x", "1");
    server.fail(Verb::List, Fault::Status { code: 410, reason: "Expired", retry_after: None });
    let started = Instant::now();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(server.seen()[1].line, "GET /api/v1/configmaps");
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_in_time_is_listed_anew() {
    let server = Server::new();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    // The next relist asks for a version that this server will not reach.
    server.say(&bookmark(5_000, json!({})));
    settle().await;
    server.put("a/x", "1");
    server.fail(Verb::Watch, Fault::Status { code: 410, reason: "Expired", retry_after: None });
    server.end_watches();
    until_cached(&informer, &["a/x=1"]).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_cost_a_wait_and_no_relist() {
    let server = Server::new();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    let n_before = server.seen().len();
    let busy = Fault::Status { code: 429, reason: "TooManyRequests", retry_after: Some(40) };
    server.fail(Verb::Watch, busy);
    server.end_watches();
    server.put("a/x", "1");
    until_cached(&informer, &["a/x=1"]).await;
    let seen = server.seen().split_off(n_before);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn no_server_silences_a_watch_for_ever() {
    let server = Server::new();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    settle().await;
    let n_before = server.seen().len();
    server.fail(Verb::Watch, Fault::Status { code: 429, reason: "TooManyRequests", retry_after: Some(u32::MAX) });
    server.end_watches();
    server.put("a/x", "1");
    tokio::time::sleep(Duration::from_secs(360)).await;
    let seen = server.seen().split_off(n_before);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(300), "it is left alone for some time");
    assert_eq!(cached(&informer), ["a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_is_given_up_and_tried_again_later() {
    let server = Server::new();
    server.put("a/x", "1");
    for _ in 0..20 {
        let page = r#"{"kind": "ConfigMapList", "metadata": {"resourceVersion": "1", "continue": "on"}, "items": []}"#;
        server.fail(Verb::List, Fault::Garbage(page));
    }
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    let seen = server.seen();
    let n_at_once = seen.iter().filter(|request| request.at == seen[0].at).count();
    assert_eq!(n_at_once, 2, "{seen:?}");
    assert_eq!(cached(&informer), ["a/x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_noticed() {
    let server = Server::new();
    server.fail(Verb::List, Fault::Silence);
    server.fail(Verb::Watch, Fault::Silence);
    server.put("a/x", "1");
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
}

#[tokio::test(start_paused = true)]
async fn watches_are_asked_to_end_at_different_times() {
    let server = Server::new();
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    for _ in 0..10 {
        settle().await;
        server.end_watches();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let lifetimes: Vec<u64> = server
        .seen()
        .iter()
        .filter_map(|seen| seen.line.split_once("timeoutSeconds=")?.1.split('&').next()?.parse().ok())
        .collect();
    assert!(lifetimes.len() >= 10 && lifetimes.iter().all(|seconds| (300..=600).contains(seconds)), "{lifetimes:?}");
    assert!(lifetimes.windows(2).any(|pair| pair[0] != pair[1]), "{lifetimes:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_back_off_up_to_a_minute_and_are_named() {
    let server = Server::new();
    for _ in 0..12 {
        server.fail(Verb::List, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    }
    let (informer, _running) = start(&server, paged());
    let error = informer.wait_synced(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not synced after 30s: configmaps in all namespaces (the server answered 403 Forbidden: as scripted)"
    );
    informer.wait_synced(Duration::from_secs(3_600)).await.unwrap();
    let times: Vec<Instant> = server.seen().iter().map(|seen| seen.at).take(13).collect();
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_millis(800) && waits[0] < Duration::from_millis(1_700), "{waits:?}");
    assert!(waits[9] >= Duration::from_secs(30) && waits[9] <= Duration::from_secs(61), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn garbage_wedges_nothing() {
    let server = Server::new();
    server.put("a/x", "1");
    for text in ["", "<html>busy</html>", r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata""#] {
        server.fail(Verb::List, Fault::Garbage(text));
    }
    for text in ["\n\nnonsense\n", r#"{"type":"ADDED","object":{}}"#, "{\"kind\":\"Status\",\"code\":410}\n"] {
        server.fail(Verb::Watch, Fault::Garbage(text));
    }
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    eventually("a working watch", || server.n_watches() == 1).await;
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
    server.say("nonsense");
    server.put("a/x", "3");
    until_cached(&informer, &["a/x=3"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_an_error_of_its_own_and_nobody_elses() {
    for options in [paged(), ReflectorOptions::default()] {
        let server = Server::new();
        let bad = json!({"metadata": {"namespace": "a", "name": "bad"}, "data": "not a map"});
        server.put_raw("/api/v1/configmaps", bad.clone());
        server.put("a/x", "1");
        let (informer, _running) = start(&server, options);
        informer.wait_synced(WAIT).await.unwrap();
        let lister = informer.lister();
        let key = ObjectKey::namespaced("a", "bad");
        assert!(matches!(lister.get(&key), Err(LookupError::Undecodable { .. })));
        assert_eq!(lister.len().unwrap(), 2);
        server.put("a/bad", "good now");
        until_cached(&informer, &["a/bad=good now", "a/x=1"]).await;
        server.put_raw("/api/v1/configmaps", bad);
        server.put("a/x", "2");
        until_cached(&informer, &["a/bad=good now", "a/x=2"]).await;
        assert!(matches!(lister.get(&key), Err(LookupError::Undecodable { .. })));
        server.delete("a/bad");
        eventually("gone", || matches!(lister.get(&key), Err(LookupError::NotFound { .. }))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_not_served_is_waited_for_and_may_vanish_again() {
    let server = Server::new();
    server.serve("/api/v1/configmaps", false);
    let (informer, _running) = start(&server, ReflectorOptions::default());
    let error = informer.wait_synced(Duration::from_secs(60)).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
    server.serve("/api/v1/configmaps", true);
    server.put("a/x", "1");
    let started = Instant::now();
    informer.wait_synced(WAIT).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(4));
    server.serve("/api/v1/configmaps", false);
    server.end_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cached(&informer), ["a/x=1"], "a missing type deletes nothing");
    assert!(informer.staleness().is_some_and(|age| age >= Duration::from_secs(59)));
    server.serve("/api/v1/configmaps", true);
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
    assert_eq!(informer.staleness(), None);
}

#[tokio::test(start_paused = true)]
async fn a_selection_is_what_the_server_is_asked_for() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("b/y", "1");
    let factory = InformerFactory::new(server.client());
    let selection = Selection::new(Scope::Namespace("a".into())).labels("app=x").fields("metadata.name!=z");
    let informer = factory.informer::<ConfigMap>(selection);
    let _running = factory.start();
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(cached(&informer), ["a/x=1"]);
    let line = &server.seen()[0].line;
    let expected = "GET /api/v1/namespaces/a/configmaps?labelSelector=app%3Dx&fieldSelector=metadata.name%21%3Dz&";
    assert!(line.starts_with(expected), "{line}");
}

#[tokio::test(start_paused = true)]
async fn lists_from_the_store_come_in_pages() {
    let server = Server::new();
    for number in 0..7 {
        server.put(&format!("a/x{number}"), "1");
    }
    // A version that cannot be served makes the reflector ask for the newest state, from the store.
    server.fail(Verb::List, Fault::Status { code: 410, reason: "Expired", retry_after: None });
    server.fail(Verb::List, Fault::Status { code: 500, reason: "InternalError", retry_after: None });
    let (informer, _running) = start(&server, paged().page_limit(3));
    informer.wait_synced(WAIT).await.unwrap();
    assert_eq!(informer.lister().len().unwrap(), 7);
    let lines: Vec<String> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(
        lines[2..5],
        [
            "GET /api/v1/configmaps?limit=3",
            "GET /api/v1/configmaps?limit=3&continue=3",
            "GET /api/v1/configmaps?limit=3&continue=6",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_parts_can_be_put_together_by_hand() {
    let server = Server::new();
    server.put("a/x", "1");
    let cache = Indexer::<ConfigMap>::new();
    let (sender, mut deltas) = delta_fifo(8);
    let stop = CancellationToken::new();
    let options = ReflectorOptions::default();
    let reflector = Reflector::new(server.client(), &(), Scope::All.into(), options, cache.clone());
    let reflecting = tokio::spawn(reflector.run(sender, stop.clone()));
    let (mut batch, mut outcomes) = (Vec::new(), Vec::new());
    while !cache.is_filled() {
        assert!(deltas.pop(&mut batch, 8).await > 0, "the reflector ended");
        cache.apply(&mut batch, &mut outcomes);
    }
    assert!(matches!(outcomes[..], [Outcome::Added(..), Outcome::Filled]), "{outcomes:?}");
    assert_eq!(cache.len(), 1);
    // Nobody takes these deltas: the queue fills, and the watch is not read.
    for number in 0..100 {
        server.put(&format!("a/y{number}"), "1");
    }
    settle().await;
    let mut n_read = 0;
    while n_read < 100 {
        let n_popped = deltas.pop(&mut batch, 1_000).await;
        assert!(n_popped <= 8, "{n_popped} were waiting");
        n_read += n_popped;
    }
    stop.cancel();
    reflecting.await.unwrap();
    assert_eq!(deltas.pop(&mut batch, 8).await, 0, "the reflector is gone");
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_live_and_be_silent_without_end() {
    let server = Server::new();
    server.put("a/x", "1");
    let (idle_timeout, watch_lifetime) = (Duration::MAX, (Duration::MAX, Duration::MAX));
    let (informer, _running) =
        start(&server, ReflectorOptions::default().idle_timeout(idle_timeout).watch_lifetime(watch_lifetime));
    informer.wait_synced(WAIT).await.unwrap();
    tokio::time::sleep(Duration::from_secs(7 * 24 * 3_600)).await;
    server.put("a/x", "2");
    until_cached(&informer, &["a/x=2"]).await;
    assert_eq!(server.n_seen("watch=true"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_deletes_nothing() {
    let server = Server::new();
    server.put("a/x", "1");
    let (informer, _running) = start(&server, paged());
    informer.wait_synced(WAIT).await.unwrap();
    for text in ["{}", r#"{"kind":"Status","metadata":{},"status":"Success"}"#] {
        server.fail(Verb::List, Fault::Garbage(text));
    }
    let n_lists = server.n_seen("GET /api/v1/configmaps?resourceVersion");
    server.compact();
    server.end_watches();
    eventually("the answer", || server.n_seen("GET /api/v1/configmaps?resourceVersion") > n_lists).await;
    assert_eq!(cached(&informer), ["a/x=1"]);
    eventually("a working watch", || server.n_watches() == 1).await;
    assert_eq!(cached(&informer), ["a/x=1"]);
}
