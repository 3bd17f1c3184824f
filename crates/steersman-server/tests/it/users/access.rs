//! Authentication and authorization of requests, and the answers to refused ones.

use crate::support::{Answer, CONFIGS, Http, TestServer, config};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::Empty;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_server::authn::Peer;
use steersman_server::authz::{Attributes, Authorization, Authorizer, ResourceAttributes, Rules, Verdict};
use steersman_server::user::User;

fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

#[tokio::test]
async fn nobody_comes_in_without_a_name() {
    let test = TestServer::new().await;
    let door = Http(test.server.service());
    let empty = Empty::<Bytes>::new;
    for path in ["/api", "/version", CONFIGS, "/nonsense"] {
        assert_eq!(
            door.raw(get(path).body(empty()).unwrap()).await.refusal(),
            (401, "Unauthorized".to_owned()),
            "{path}"
        );
    }
    for header in ["Bearer wrong", "Bearer", "Basic c2VjcmV0", "secret"] {
        let request = get("/api").header("authorization", header).body(empty()).unwrap();
        assert_eq!(door.raw(request).await.code, 401, "{header}");
    }
    assert_eq!(door.raw(get("/api").header("authorization", "Bearer secret").body(empty()).unwrap()).await.code, 200);
}

#[tokio::test]
async fn a_request_cannot_say_who_it_is() {
    let test = TestServer::new().await;
    let with_peer = |path: &str| {
        let mut request = get(path).body(Empty::<Bytes>::new()).unwrap();
        request.extensions_mut().insert(Peer::new(User::master("intruder")));
        request
    };
    assert_eq!(Http(test.server.service()).raw(with_peer(CONFIGS)).await.code, 401);
    assert_eq!(test.http_as("bob").raw(with_peer(CONFIGS)).await.code, 403);
}

#[tokio::test]
async fn those_without_rights_see_what_is_served_and_no_more() {
    let test = TestServer::new().await;
    let http = test.http_as("bob");
    for path in
        ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/livez", "/readyz", "/version", "/openapi/v2"]
    {
        assert_eq!(http.get(path).await.code, 200, "{path}");
    }

    let object = format!("{CONFIGS}/c");
    for path in [
        CONFIGS,
        &object,
        "/api/v1/nodes",
        "/apis/apps/v1/deployments",
        "/",
        "/metrics",
        "/nonsense",
        "/apis/no.such/v1/things",
    ] {
        assert_eq!(http.get(path).await.refusal(), (403, "Forbidden".to_owned()), "{path}");
    }
    assert_eq!(http.get(&format!("{CONFIGS}?watch=true")).await.code, 403);
    assert_eq!(http.post(CONFIGS, &config("c")).await.code, 403);
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(http.send(method, &object, "application/json", "{}").await.code, 403);
    }
    assert_eq!(http.post("/api", &json!({})).await.code, 403);
    assert_eq!(test.http().get(&object).await.code, 404);
}

#[tokio::test]
async fn only_those_who_may_act_as_another() {
    let test = TestServer::new().await;
    let as_other = |path: &str, header: &'static str, value: &str| {
        get(path).header(header, value).body(Empty::<Bytes>::new()).unwrap()
    };
    let message = |answer: &Answer| answer.json()["message"].as_str().unwrap().to_owned();
    // An impersonated request has the rights of the other user.
    let jane = test.http().raw(as_other(CONFIGS, "impersonate-user", "jane")).await;
    assert!(jane.code == 403 && message(&jane).contains("User \"jane\" cannot list"), "{jane:?}");
    let bob = test.http_as("bob").raw(as_other("/api", "impersonate-user", "admin")).await;
    assert!(bob.code == 403 && message(&bob).contains("User \"bob\" cannot impersonate"), "{bob:?}");
    assert_eq!(test.http().raw(as_other(CONFIGS, "impersonate-group", "system:masters")).await.code, 400);
}

#[tokio::test]
async fn methods_that_there_are_not_are_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    for (method, path) in
        [(Method::OPTIONS, CONFIGS), (Method::PUT, CONFIGS), (Method::PATCH, CONFIGS), (Method::TRACE, CONFIGS)]
    {
        assert_eq!(
            http.send(method, path, "application/json", "").await.refusal(),
            (405, "MethodNotAllowed".to_owned())
        );
    }
    let head = http.send(Method::HEAD, CONFIGS, "application/json", "").await;
    assert_eq!((head.code, head.bytes.len()), (405, 0));
    let (head, got) = (http.send(Method::HEAD, "/api", "application/json", "").await, http.get("/api").await);
    assert_eq!((head.code, head.bytes.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(got.bytes.len().to_string().as_str()));
    assert_eq!(head.header("content-type"), got.header("content-type"));
}

/// An authorizer that panics on deletions.
#[derive(Debug)]
struct Nervous;

impl Authorizer for Nervous {
    fn authorize<'a>(&'a self, _: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        let is_deletion = matches!(attributes, Attributes::Resource(ResourceAttributes { verb: "delete", .. }));
        Box::pin(async move {
            assert!(!is_deletion, "a deletion");
            Verdict::ALLOW
        })
    }

    fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        Box::pin(async { Rules::default() })
    }
}

#[tokio::test]
async fn a_panic_in_the_middle_of_a_write_is_its_own_too() {
    static IS_BROKEN: AtomicBool = AtomicBool::new(false);
    fn clock() -> jiff::Timestamp {
        assert!(!IS_BROKEN.load(Ordering::Relaxed), "the clock is broken");
        jiff::Timestamp::now()
    }
    let test = TestServer::at(clock).await;
    IS_BROKEN.store(true, Ordering::Relaxed);
    for _ in 0..250 {
        assert_eq!(test.http().post(CONFIGS, &config("c")).await.refusal(), (500, "InternalError".to_owned()));
    }
    IS_BROKEN.store(false, Ordering::Relaxed);
    test.http().post(CONFIGS, &config("c")).await.ok();
}

#[tokio::test]
async fn a_panic_is_one_request_s_own() {
    let test = TestServer::with(steersman_storage::Options::default(), Authorization::Custom(Arc::new(Nervous))).await;
    let http = test.http();
    http.post(CONFIGS, &config("c")).await.ok();
    // More than the limit of requests in flight: each releases its permit.
    for _ in 0..250 {
        let answer = http.delete(&format!("{CONFIGS}/c")).await;
        assert_eq!(answer.refusal(), (500, "InternalError".to_owned()));
        assert!(answer.header("audit-id").is_some());
    }
    http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"n": "1"}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_no_body() {
    let test = TestServer::new().await;
    let endless =
        http_body_util::StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>());
    let request = get(CONFIGS).body(endless).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(1), test.http().raw(request)).await;
    assert_eq!(answer.unwrap().code, 200);
}
