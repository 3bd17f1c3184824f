//! The options of an embedder: time limits, and headers for browsers.

use crate::support::{CONFIGS, Http, Options, TestServer, allow_all, options, text};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Empty;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman_server::{Timeouts, Web};
use steersman_storage::{Memory, Store};

async fn test(change: impl FnOnce(&mut Options)) -> TestServer {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let mut options = options(&store, allow_all());
    change(&mut options);
    TestServer::of(store, options).await
}

fn from_page(method: Method, path: &str) -> Request<Empty<Bytes>> {
    Request::builder().method(method).uri(path).header("origin", "https://ui.example.com").body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_let_in_reads_answers_and_asks_before_it_writes() {
    let origins = [r"^https://ui\.example\.com$".to_owned()];
    let test = test(|options| options.web = Web::new(&origins, &[]).unwrap()).await;
    // A browser sends its preflight without credentials.
    let nobody = Http(test.server.service());
    let asked = nobody.raw(from_page(Method::OPTIONS, CONFIGS)).await;
    assert_eq!(
        (asked.code, &asked.headers["access-control-allow-origin"]),
        (204, &"https://ui.example.com".parse().unwrap())
    );
    assert!(asked.headers["access-control-allow-methods"].to_str().unwrap().contains("PATCH"));
    assert!(asked.headers["access-control-allow-headers"].to_str().unwrap().contains("Authorization"));
    let refused = nobody.raw(from_page(Method::GET, CONFIGS)).await;
    assert_eq!((refused.code, refused.headers.contains_key("access-control-allow-origin")), (401, true));
    let read = test.http().raw(from_page(Method::GET, CONFIGS)).await;
    assert_eq!((read.code, &read.headers["access-control-allow-credentials"]), (200, &"true".parse().unwrap()));
    let other = test.http().get(CONFIGS).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn answers_say_that_the_server_is_to_be_reached_by_tls_if_that_is_wanted() {
    let directives = ["max-age=60".to_owned(), "includeSubDomains".to_owned()];
    let test = test(|options| options.web = Web::new(&[], &directives).unwrap()).await;
    let answer = test.http().get(CONFIGS).await;
    assert_eq!(answer.headers["strict-transport-security"], "max-age=60; includeSubDomains");
    let plain = TestServer::new().await.http().get(CONFIGS).await;
    assert!(!plain.headers.contains_key("strict-transport-security"));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_no_longer_than_it_may() {
    let request = Duration::from_secs(7);
    let test = test(|options| options.timeouts.request = request).await;
    let never =
        http_body_util::StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>());
    let begun = tokio::time::Instant::now();
    let answer = test.http().raw(Request::post(CONFIGS).body(never).unwrap()).await;
    assert_eq!((answer.code, text(&answer.json(), "/reason")), (504, "Timeout"));
    assert_eq!(begun.elapsed().as_secs(), request.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_the_least_time_and_before_twice_that() {
    let watch_min = Duration::from_secs(100);
    let test = test(|options| options.timeouts = Timeouts { watch_min, ..Timeouts::default() }).await;
    let begun = tokio::time::Instant::now();
    let mut watch = test.http().watch(CONFIGS).await;
    assert!(watch.rest().await.is_empty());
    let took = begun.elapsed();
    assert!((watch_min..=2 * watch_min).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_stays_as_long_as_is_wanted() {
    let events = "/api/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "a", "creationTimestamp": null}, "involvedObject": {"namespace": "default"},
        "lastTimestamp": "2020-01-01T00:00:00Z",
    });
    for (event_ttl, is_kept) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
        let test = test(|options| {
            options.event_ttl = event_ttl;
            // An Event's age also counts from its creation, and the paused time of the test does not move the clock.
            options.clock = || "2020-01-01T00:00:00Z".parse().unwrap();
        })
        .await;
        let http = test.http();
        http.post(events, &event).await.ok();
        drop(test.server);
        let mut options = options(&test.store, allow_all());
        options.event_ttl = event_ttl;
        let test = TestServer::of(test.store, options).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(
            test.http().get(&format!("{events}/a")).await.code,
            if is_kept { 200 } else { 404 },
            "{event_ttl:?}"
        );
    }
}
