//! The answers, without a socket.

use futures::FutureExt;
use http_body_util::BodyExt;

use super::*;

/// One check that passes and one that fails, in each list.
fn health() -> Health {
    let health = Health::new();
    health.live("ping", || Ok::<(), String>(()));
    health.ready("informer-sync", || Err("configmaps is not synced"));
    health.ready("a b", || Ok::<(), String>(()));
    health
}

fn ask(method: &str, uri: &str, accept: &str) -> (u16, String, String) {
    let request = Request::builder().method(method).uri(uri).header(ACCEPT, accept).body(()).unwrap();
    let response = answer(&request, &health(), Some(&Metrics::new()));
    let status = response.status().as_u16();
    let content_type = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    (status, content_type, String::from_utf8(body.to_vec()).unwrap())
}

#[track_caller]
fn check(uri: &str, status: u16, body: &str) {
    let answer = ask("GET", uri, "*/*");
    assert_eq!((answer.0, &*answer.2), (status, body), "{uri}");
}

#[test]
fn a_list_says_ok_or_which_check_failed() {
    check("/healthz", 200, "ok");
    check("/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n");
    let failed = "[-]informer-sync failed: reason withheld\n[+]a b ok\nreadyz check failed\n";
    check("/readyz", 500, failed);
    check("/readyz?verbose=1", 500, failed);
}

#[test]
fn a_single_check_gives_its_reason() {
    check("/healthz/ping", 200, "ok");
    check("/readyz/a%20b", 200, "ok");
    check("/readyz/informer-sync", 500, "internal server error: configmaps is not synced\n");
    check("/readyz/ping", 404, "404 page not found\n");
    check("/other", 404, "404 page not found\n");
}

#[test]
fn an_excluded_check_does_not_count() {
    check("/readyz?exclude=informer-sync", 200, "ok");
    check(
        "/readyz?verbose&exclude=informer-sync&exclude=typo",
        200,
        "[+]a b ok\n[+]informer-sync excluded: ok\n\
         warn: some health checks cannot be excluded: no matches for \"typo\"\nreadyz check passed\n",
    );
}

#[test]
fn metrics_come_in_the_format_that_is_accepted() {
    let (status, content_type, body) = ask("GET", "/metrics", "*/*");
    assert_eq!((status, &*content_type, &*body), (200, "text/plain; version=0.0.4; charset=utf-8", ""));
    let (_, content_type, body) = ask("GET", "/metrics", "application/openmetrics-text; version=1.0.0");
    assert_eq!((&*content_type, &*body), ("application/openmetrics-text; version=1.0.0; charset=utf-8", "# EOF\n"));
}

#[test]
fn a_check_that_panics_fails_and_the_others_are_told() {
    let health = Health::new();
    health.live("broken", || -> Result<(), String> { panic!("scripted") });
    health.live("ping", || Ok::<(), String>(()));
    assert!(!health.is_live() && health.is_ready());
    let expected = [("broken", Err("the check panicked".to_owned())), ("ping", Ok(()))];
    let outcomes = health.run(Probe::Live, &[]);
    assert!(outcomes.iter().map(|outcome| (&*outcome.name, outcome.result.clone())).eq(expected));
}

#[test]
fn nothing_can_be_written() {
    assert_eq!(ask("POST", "/healthz", "*/*").0, 405);
    assert_eq!(ask("HEAD", "/healthz", "*/*").0, 200);
}
