//! The server's metrics at `/metrics`.

use crate::support::{CONFIGS, TestServer, config};
use serde_json::json;

/// The value of the metric with this name and all of these labels; `None` if there is none.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_meant = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    text.lines().find(is_meant)?.rsplit(' ').next()?.parse().ok()
}

async fn scrape(test: &TestServer) -> String {
    let answer = test.http().get("/metrics").await;
    assert_eq!(answer.code, 200);
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    String::from_utf8(answer.bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn requests_are_counted_under_upstreams_names() {
    let test = TestServer::new().await;
    let http = test.http();
    let stored = |text: &str| value(text, "apiserver_storage_objects", &[r#"resource="configmaps""#]);
    test.store.sync().await.unwrap();
    let n_own = stored(&scrape(&test).await).unwrap_or_default();
    http.post(CONFIGS, &config("a")).await.ok();
    http.post(CONFIGS, &config("b")).await.ok();
    assert_eq!(http.post(CONFIGS, &config("a")).await.code, 409);
    assert_eq!(http.post(&format!("{CONFIGS}?dryRun=All"), &config("c")).await.code, 201);
    http.merge(&format!("{CONFIGS}/a"), &json!({"data": {"x": "y"}})).await.ok();
    http.get(CONFIGS).await.ok();
    let text = scrape(&test).await;
    let total = |labels: &[&str]| value(&text, "apiserver_request_total", labels);
    let post = [r#"verb="POST""#, r#"resource="configmaps""#, r#"scope="namespace""#];
    assert_eq!(total(&[&post[..], &[r#"code="201""#, r#"dry_run="""#]].concat()), Some(2.0), "{text}");
    assert_eq!(total(&[&post[..], &[r#"code="409""#]].concat()), Some(1.0));
    assert_eq!(total(&[&post[..], &[r#"code="201""#, r#"dry_run="All""#]].concat()), Some(1.0));
    assert_eq!(total(&[r#"verb="PATCH""#, r#"scope="resource""#, r#"code="200""#]), Some(1.0));
    assert_eq!(total(&[r#"verb="LIST""#, r#"resource="configmaps""#]), Some(1.0));
    let durations = value(&text, "apiserver_request_duration_seconds_count", &[&post[..], &[r#"dry_run="""#]].concat());
    assert_eq!(durations, Some(3.0));
    assert_eq!(stored(&text), Some(n_own + 2.0));
    assert_eq!(value(&text, "steersman_store_healthy", &[]), Some(1.0));
    assert!(value(&text, "steersman_store_revision", &[]) > Some(2.0));
}

#[tokio::test]
async fn open_watches_and_what_they_sent_are_counted() {
    let test = TestServer::new().await;
    let mut watch = test.http().watch(CONFIGS).await;
    let open = [r#"resource="configmaps""#, r#"verb="WATCH""#];
    assert_eq!(value(&scrape(&test).await, "apiserver_longrunning_requests", &open), Some(1.0));
    test.http().post(CONFIGS, &config("a")).await.ok();
    assert!(watch.next().await.is_some());
    let text = scrape(&test).await;
    assert_eq!(value(&text, "apiserver_watch_events_total", &[r#"resource="configmaps""#]), Some(1.0), "{text}");
    drop(watch);
    assert_eq!(value(&scrape(&test).await, "apiserver_longrunning_requests", &open), Some(0.0));
}

#[tokio::test]
async fn a_client_makes_up_no_labels() {
    let test = TestServer::new().await;
    for path in ["/apis/made.up/v1/things", "/made/up", "/api/v1/namespaces/default/made-up"] {
        assert_eq!(test.http().get(path).await.code, 404, "{path}");
    }
    let text = scrape(&test).await;
    assert!(!text.contains("made"), "{text}");
    // A user without the permission gets nothing.
    assert_eq!(test.http_as("bob").get("/metrics").await.code, 403);
}
