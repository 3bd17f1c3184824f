//! The audit log: the events of a request, and their content.

use crate::support::{CONFIGS, Http, Options, TestServer, allow_all, config, options};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_server::audit::{Audit, Event, Policy, Sink};
use steersman_server::user::User;
use steersman_storage::{Memory, Store};
use tower::ServiceExt as _;

/// Stores events as lines, up to a number.
#[derive(Debug)]
struct Lines {
    lines: Mutex<Vec<Value>>,
    max: usize,
}

impl Sink for Lines {
    fn take(&self, event: Event) -> bool {
        let mut lines = self.lines.lock().unwrap();
        if self.max <= lines.len() {
            return false;
        }
        lines.push(serde_json::from_slice(&event.to_line()).unwrap());
        true
    }
}

impl Lines {
    /// The events so far, which are then forgotten.
    fn taken(&self) -> Vec<Value> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

async fn test(rules: &str, max: usize) -> (TestServer, Arc<Lines>) {
    let lines = Arc::new(Lines { lines: Mutex::default(), max });
    let policy = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap();
    let audit = Some(Audit::new(policy, lines.clone()));
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let test = TestServer::of(store.clone(), Options { audit, ..options(&store, allow_all()) }).await;
    lines.taken();
    (test, lines)
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn metadata_say_who_did_what_and_how_it_ended() {
    let (test, lines) = test("rules: [{level: Metadata}]", 100).await;
    let from = Some([192, 0, 2, 7].into());
    let user = User::authenticated("alice", ["team".to_owned()]);
    let http = Http(test.server.service_as(user).with_source(from));
    let request = Request::get(format!("{CONFIGS}/none?pretty=1"))
        .header("user-agent", "kubectl/v1.36.0")
        .header("audit-id", "given")
        .header("x-forwarded-for", "198.51.100.1, 198.51.100.2");
    assert_eq!(http.raw(request.body(Empty::new()).unwrap()).await.code, 404);
    let events = lines.taken();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let mut last = events[1].clone();
    let times = ["requestReceivedTimestamp", "stageTimestamp"].map(|key| last[key].as_str().unwrap().to_owned());
    assert!(times.iter().all(|time| time.len() == "2026-01-01T00:00:00.000000Z".len()), "{times:?}");
    assert!(times[0] <= times[1]);
    for key in ["requestReceivedTimestamp", "stageTimestamp"] {
        last.as_object_mut().unwrap().remove(key);
    }
    let want = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "given",
        "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/default/configmaps/none?pretty=1", "verb": "get",
        "user": {"username": "alice", "groups": ["team", "system:authenticated"]},
        "sourceIPs": ["198.51.100.1", "198.51.100.2", "192.0.2.7"], "userAgent": "kubectl/v1.36.0",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "none", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "status": "Failure", "message": "configmaps \"none\" not found",
            "reason": "NotFound", "details": {"name": "none", "kind": "configmaps"}, "code": 404},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    });
    assert_eq!(last, want);
    assert!(events[0].get("responseStatus").is_none() && events[0].get("annotations").is_none());
}

#[tokio::test]
async fn bodies_are_logged_as_far_as_the_policy_says() {
    let rules = "omitStages: [RequestReceived]\nrules:\n- {level: Metadata, verbs: [create]}\n\
                 - {level: Request, verbs: [update]}\n- {level: RequestResponse, omitManagedFields: true}";
    let (test, lines) = test(rules, 100).await;
    let http = test.http();
    let made = http.post(CONFIGS, &config("c")).await.ok();
    let created = lines.taken();
    // Only the body has the name, not the path.
    assert_eq!((created.len(), &created[0]["objectRef"]["name"]), (1, &json!("c")));
    assert!(created[0].get("requestObject").is_none());
    http.put(&format!("{CONFIGS}/c"), &made).await.ok();
    let updated = lines.taken();
    assert_eq!(updated[0]["requestObject"], made);
    assert!(updated[0].get("responseObject").is_none());
    let yaml = "data: {a: b}";
    http.send(Method::PATCH, &format!("{CONFIGS}/c"), "application/merge-patch+json", r#"{"data":{"a":"b"}}"#)
        .await
        .ok();
    let patched = lines.taken();
    assert_eq!(patched[0]["requestObject"], json!({"data": {"a": "b"}}));
    assert_eq!(patched[0]["responseObject"]["data"], json!({"a": "b"}));
    assert!(patched[0]["responseObject"]["metadata"].get("managedFields").is_none());
    let apply = format!("{CONFIGS}/c?fieldManager=m&force=true");
    let applied = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n{yaml}\n");
    http.send(Method::PATCH, &apply, "application/apply-patch+yaml", applied).await.ok();
    assert_eq!(lines.taken()[0]["requestObject"]["data"], json!({"a": "b"}));
    let list = http.get(CONFIGS).await.ok();
    let listed = lines.taken();
    assert_eq!(listed[0]["responseObject"]["items"].as_array().unwrap().len(), list["items"].as_array().unwrap().len());
}

/// A protobuf field of bytes, short enough for a length of one byte.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[tokio::test]
async fn a_body_in_protobuf_is_logged_as_json() {
    let (test, lines) = test("omitStages: [RequestReceived]\nrules: [{level: RequestResponse}]", 100).await;
    let kind = field(1, &[field(1, b"v1"), field(2, b"ConfigMap")].concat());
    let object = field(2, &field(1, &field(1, b"c")));
    let body = [b"k8s\0".to_vec(), kind, object].concat();
    let media_type = "application/vnd.kubernetes.protobuf";
    let request = Request::post(CONFIGS).header("content-type", media_type).header("accept", media_type);
    let answer = test.http().raw(request.body(http_body_util::Full::new(body.into())).unwrap()).await;
    assert_eq!((answer.code, answer.header("content-type")), (201, Some(media_type)));
    let event = lines.taken().pop().unwrap();
    assert_eq!((&event["objectRef"]["name"], &event["requestObject"]["kind"]), (&json!("c"), &json!("ConfigMap")));
    assert!(event["responseObject"]["metadata"]["uid"].is_string(), "{event}");
}

#[tokio::test]
async fn a_watch_is_logged_when_it_starts_and_when_it_ends() {
    let (test, lines) = test("rules: [{level: RequestResponse}]", 100).await;
    let watch = test.http().watch(CONFIGS).await;
    let events = lines.taken();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted"]);
    assert_eq!(events[1]["responseStatus"]["code"], 200);
    drop(watch);
    let events = lines.taken();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert!(events[0].get("responseObject").is_none());
}

#[tokio::test]
async fn impersonation_refusals_and_strangers_are_logged() {
    let (test, lines) = test("rules: [{level: Metadata}]", 100).await;
    let request = Request::get("/version").header("impersonate-user", "jane").body(Empty::new()).unwrap();
    assert_eq!(test.http().raw(request).await.code, 200);
    let event = lines.taken().pop().unwrap();
    assert_eq!((&event["user"]["username"], &event["impersonatedUser"]["username"]), (&json!("admin"), &json!("jane")));
    assert!(event.get("objectRef").is_none());
    let stranger = Request::get("/version").header("authorization", "Bearer wrong").body(Empty::new()).unwrap();
    assert_eq!(Http(test.server.service()).raw(stranger).await.code, 401);
    let events = lines.taken();
    assert_eq!((stages(&events), &events[0]["responseStatus"]["code"]), (vec!["ResponseStarted"], &json!(401)));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_goes_away_has_an_end_too() {
    let (test, lines) = test("rules: [{level: Metadata}]", 100).await;
    let never = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>,
    >());
    let request = Request::post(CONFIGS).header("content-type", "application/json").body(never).unwrap();
    let Http(service) = test.http();
    assert!(tokio::time::timeout(Duration::from_secs(1), service.oneshot(request)).await.is_err());
    let events = lines.taken();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    assert_eq!(events[1]["responseStatus"]["code"], 499);
}

#[tokio::test]
async fn what_the_log_cannot_take_is_counted_and_holds_nobody_up() {
    let (test, lines) = test("rules: [{level: None, nonResourceURLs: [/metrics]}, {level: Metadata}]", 3).await;
    let http = test.http();
    for _ in 0..5 {
        assert_eq!(http.get("/version").await.code, 200);
    }
    assert_eq!(lines.taken().len(), 3);
    let metrics = String::from_utf8(http.get("/metrics").await.bytes.to_vec()).unwrap();
    for line in [
        "apiserver_audit_event_total 10",
        "apiserver_audit_error_total{plugin=\"log\"} 7",
        "apiserver_audit_level_total{level=\"Metadata\"} 5",
        "apiserver_audit_level_total{level=\"None\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn bodies_of_answers_that_are_read_slowly_have_a_bounded_memory_and_are_left_out_beyond_it() {
    const RULES: &str = "rules: [{level: RequestResponse, verbs: [list]}, {level: None}]";
    let (test, lines) = test(RULES, 100).await;
    let http = test.http();
    for n in 0..9 {
        let object = json!({"metadata": {"name": format!("c{n}")}, "data": {"a": "x".repeat(900_000)}});
        http.post(CONFIGS, &object).await.ok();
    }
    // Each has 8 MB, and is not at its end.
    let mut unread = Vec::new();
    for _ in 0..12 {
        let mut body = http.unread(CONFIGS).await;
        let mut n_bytes = 0;
        while n_bytes < 8_000_000 {
            n_bytes += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        unread.push(body);
    }
    drop(unread);
    let events: Vec<Value> = lines.taken().into_iter().filter(|event| event["stage"] == "ResponseComplete").collect();
    let is_truncated = |event: &Value| event["annotations"]["audit.k8s.io/truncated"] == "true";
    let n_truncated = events.iter().filter(|event| is_truncated(event)).count();
    assert_eq!(events.len(), 12);
    assert!((4..=8).contains(&n_truncated), "{n_truncated} of 12 answers of 8 MB find no room in 64 MiB");
    let metrics = http.get("/metrics").await.body_text();
    let dropped = format!("steersman_audit_bodies_dropped_total {n_truncated}\n");
    assert!(metrics.contains(&dropped), "{metrics}");
    // The memory is free again, so the next body is kept.
    http.get(CONFIGS).await.ok();
    assert!(!is_truncated(lines.taken().last().unwrap()));
}
