//! Events as the server gets them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::events::{EVENTS_MAX, EventRecorder, EventType};
use steersman::metrics::{Metrics, MetricsFormat};
use tokio::time::Instant;

use crate::server::{Fault, Server, Verb, settle};

const EVENTS: &str = "/api/v1/events";

fn object(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some("uid-1".to_owned());
    object
}

fn summaries(server: &Server) -> Vec<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let events = server.list(EVENTS);
    let mut summaries: Vec<String> = events
        .iter()
        .map(|event| {
            let about = &event["involvedObject"];
            format!(
                "{} {} {} {}x {}/{}: {}",
                text(&event["type"]),
                text(&event["reason"]),
                text(&event["source"]["component"]),
                event["count"],
                text(&about["kind"]),
                text(&about["name"]),
                text(&event["message"])
            )
        })
        .collect();
    summaries.sort();
    summaries
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_one_object_with_a_count() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    for _ in 0..3 {
        recorder.event(&object("x"), EventType::Normal, "Created", "it was created");
    }
    recorder.event(&object("y"), EventType::Warning, "Broken", "it is broken");
    recorder.flush().await;
    assert_eq!(
        summaries(&server),
        ["Normal Created tester 3x ConfigMap/x: it was created", "Warning Broken tester 1x ConfigMap/y: it is broken"]
    );
    assert_eq!(server.n_seen("POST /api/v1/namespaces/a/events"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_on_the_server_begins_anew() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    recorder.event(&object("x"), EventType::Normal, "Created", "it was created");
    recorder.flush().await;
    server.fail(Verb::Write, Fault::Status { code: 404, reason: "NotFound", retry_after: None });
    recorder.event(&object("x"), EventType::Normal, "Created", "it was created");
    recorder.flush().await;
    assert_eq!(server.n_seen("POST"), 2);
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_a_server_that_is_away_and_not_for_one_that_refuses() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    server.fail(Verb::Write, Fault::Cut);
    server.fail(Verb::Write, Fault::Status { code: 503, reason: "ServiceUnavailable", retry_after: None });
    let started = Instant::now();
    recorder.event(&object("x"), EventType::Normal, "Created", "it was created");
    recorder.flush().await;
    // The first wait is shorter.
    let waited = started.elapsed();
    assert_eq!(summaries(&server).len(), 1);
    assert!((10..=20).contains(&waited.as_secs()), "{waited:?}");
    server.fail(Verb::Write, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    recorder.event(&object("y"), EventType::Normal, "Created", "it was created");
    recorder.flush().await;
    assert_eq!((summaries(&server).len(), started.elapsed()), (1, waited));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_events_and_holds_up_nobody() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    server.fail(Verb::Write, Fault::Silence);
    let started = Instant::now();
    for _ in 0..EVENTS_MAX + 10 {
        recorder.event(&object("x"), EventType::Normal, "Created", "it was created");
    }
    assert_eq!((recorder.n_dropped(), started.elapsed()), (10, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_holds_up_a_flush_only_for_a_while() {
    let server = Server::new();
    for _ in 0..12 {
        server.fail(Verb::Write, Fault::Silence);
    }
    let recorder = EventRecorder::new(server.client(), "tester");
    recorder.event(&object("x"), EventType::Normal, "Created", "lost");
    tokio::time::timeout(Duration::from_secs(12 * 40), recorder.flush()).await.unwrap();
    recorder.event(&object("y"), EventType::Normal, "Created", "heard");
    recorder.flush().await;
    assert_eq!(summaries(&server), ["Normal Created tester 1x ConfigMap/y: heard"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_sent_holds_up_no_other() {
    for fault in [Fault::Silence, Fault::Status { code: 500, reason: "InternalError", retry_after: None }] {
        let server = Server::new();
        let recorder = EventRecorder::new(server.client(), "tester");
        server.fail(Verb::Write, fault);
        recorder.event(&object("x"), EventType::Normal, "Created", "late");
        settle().await;
        let start = Instant::now();
        recorder.event(&object("y"), EventType::Normal, "Created", "at once");
        settle().await;
        assert_eq!(summaries(&server), ["Normal Created tester 1x ConfigMap/y: at once"]);
        // A repetition in the meantime is counted on the same event.
        recorder.event(&object("x"), EventType::Normal, "Created", "late");
        recorder.flush().await;
        assert!(start.elapsed() <= Duration::from_secs(41), "{:?}", start.elapsed());
        assert_eq!(summaries(&server)[1], "Normal Created tester 2x ConfigMap/x: late");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_events_are_counted_by_what_became_of_them() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    let metrics = Metrics::new();
    metrics.observe_events(&recorder);
    recorder.event(&object("x"), EventType::Normal, "Created", "fine");
    recorder.flush().await;
    server.fail(Verb::Write, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    recorder.event(&object("x"), EventType::Normal, "Created", "refused");
    recorder.flush().await;
    for _ in 0..12 {
        server.fail(Verb::Write, Fault::Cut);
    }
    recorder.event(&object("x"), EventType::Normal, "Created", "unanswered");
    recorder.flush().await;
    // A refusal counts as one even as the answer to the last try.
    for _ in 0..11 {
        server.fail(Verb::Write, Fault::Cut);
    }
    server.fail(Verb::Write, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    recorder.event(&object("x"), EventType::Normal, "Created", "refused in the end");
    recorder.flush().await;
    for _ in 0..EVENTS_MAX + 2 {
        recorder.event(&object("x"), EventType::Normal, "Created", "fine");
    }
    let text = metrics.encode(MetricsFormat::Prometheus);
    for (outcome, n) in [("queue_full", 2), ("refused", 2), ("sent", 1), ("unanswered", 1)] {
        let line = format!(r#"steersman_events_total{{component="tester",outcome="{outcome}"}} {n}"#);
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_not_tried_again() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    let mut nowhere = object("x");
    nowhere.metadata.namespace = Some("no namespace".to_owned());
    recorder.event(&nowhere, EventType::Normal, "Created", "lost");
    recorder.event(&object("y"), EventType::Normal, "Created", "heard");
    let start = Instant::now();
    recorder.flush().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(summaries(&server), ["Normal Created tester 1x ConfigMap/y: heard"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_name_is_none_for_events_has_events() {
    let server = Server::new();
    let recorder = EventRecorder::new(server.client(), "tester");
    let long = "x".repeat(253);
    for name in ["system:admin", &long, "fine.name"] {
        recorder.event(&object(name), EventType::Normal, "Created", "it was created");
    }
    recorder.flush().await;
    let mut names: Vec<String> =
        server.list(EVENTS).iter().map(|event| event["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort_by_key(|name| name.contains('.'));
    let is_plain = |name: &String| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(names[..2].iter().all(is_plain) && names[2].starts_with("fine.name."), "{names:?}");
}
