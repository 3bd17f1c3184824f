//! A server for one test, and plain HTTP to it.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::sync::Arc;
pub(crate) use steersman_server::Options;
use steersman_server::authn::{self, Tokens};
use steersman_server::authz::{Authorization, Mode};
use steersman_server::user::User;
use steersman_server::{Body, RuntimeConfig, Server, Service};
use steersman_storage::kv::Kv;
use steersman_storage::{Limits, Memory, Store};
use tower::ServiceExt as _;

/// ConfigMaps of the namespace `default`.
pub(crate) const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) store: Store,
}

/// HTTP as one user.
#[derive(Clone)]
pub(crate) struct Http(pub(crate) Service);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// The events of a watch, in the order of their arrival.
pub(crate) struct Watch {
    body: Body,
    read: Vec<u8>,
}

// === impl TestServer ===

impl TestServer {
    pub(crate) async fn new() -> TestServer {
        TestServer::with(steersman_storage::Options::default(), Authorization::default()).await
    }

    /// A server with at most this many events of history for each resource.
    pub(crate) async fn with_events_max(events: usize) -> TestServer {
        let ring = Limits { events, ..Limits::default() };
        let history = steersman_storage::Options { ring, ..steersman_storage::Options::default() };
        TestServer::with(history, Authorization::default()).await
    }

    pub(crate) async fn with(history: steersman_storage::Options, authorization: Authorization) -> TestServer {
        let store = Store::open(Arc::new(Memory::new()), history).await.unwrap();
        TestServer { server: serve(&store, authorization).await, store }
    }

    /// A server with another clock.
    pub(crate) async fn at(clock: fn() -> jiff::Timestamp) -> TestServer {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let server = Server::start(Options { clock, ..options(&store, Authorization::default()) }).await.unwrap();
        TestServer { server, store }
    }

    /// A server with other authenticators.
    pub(crate) async fn authenticating(authentication: authn::Options) -> TestServer {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let server =
            Server::start(Options { authentication, ..options(&store, Authorization::default()) }).await.unwrap();
        TestServer { server, store }
    }

    pub(crate) async fn on(kv: Arc<dyn Kv>) -> TestServer {
        let store = Store::open(kv, steersman_storage::Options::default()).await.unwrap();
        TestServer { server: serve(&store, Authorization::default()).await, store }
    }

    /// A server with initializers.
    pub(crate) async fn initializing() -> TestServer {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let served = RuntimeConfig::default().with_initializers();
        TestServer::of(store.clone(), Options { runtime_config: served, ..options(&store, Authorization::default()) })
            .await
    }

    pub(crate) async fn of(store: Store, options: Options) -> TestServer {
        TestServer { server: Server::start(options).await.unwrap(), store }
    }

    pub(crate) fn http(&self) -> Http {
        Http(self.server.service_as(User::master("admin")))
    }

    pub(crate) fn http_as(&self, name: &str) -> Http {
        self.http_of(User::authenticated(name, []))
    }

    pub(crate) fn http_of(&self, user: User) -> Http {
        Http(self.server.service_as(user))
    }
}

/// Starts a server on a store.
pub(crate) async fn serve(store: &Store, authorization: Authorization) -> Server {
    Server::start(options(store, authorization)).await.unwrap()
}

/// Allows everything to everybody.
pub(crate) fn allow_all() -> Authorization {
    Authorization::Modes(vec![Mode::AlwaysAllow])
}

/// The options of a server that authenticates the token `secret` as alice.
pub(crate) fn options(store: &Store, authorization: Authorization) -> Options {
    Options {
        authentication: authn::Options { tokens: Tokens::parse("secret,alice,1").unwrap(), ..Default::default() },
        authorization,
        ..Options::new(store.clone())
    }
}

// === impl Http ===

impl Http {
    pub(crate) async fn send(&self, method: Method, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.raw(request.body(Full::new(body.into())).unwrap()).await
    }

    pub(crate) async fn raw<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let (head, body) = self.0.clone().oneshot(request).await.unwrap().into_parts();
        Answer { code: head.status.as_u16(), headers: head.headers, bytes: body.collect().await.unwrap().to_bytes() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "application/json", "").await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.raw(Request::get(path).header("accept", accept).body(Full::<Bytes>::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, "application/json", object.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::PUT, path, "application/json", object.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string()).await
    }

    pub(crate) async fn json_patch(&self, path: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/json-patch+json", patch.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "application/json", "").await
    }

    /// The body of an answer, not read yet.
    pub(crate) async fn unread(&self, path: &str) -> Body {
        self.unread_or_refused(path).await.unwrap_or_else(|refusal| panic!("{} {}", refusal.code, refusal.body_text()))
    }

    /// The same, or the answer of a request that failed.
    pub(crate) async fn unread_or_refused(&self, path: &str) -> Result<Body, Answer> {
        let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        if response.status() == 200 {
            return Ok(response.into_body());
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Err(Answer { code: parts.status.as_u16(), headers: parts.headers, bytes })
    }

    /// Opens a watch; `path` has the query, without `watch`.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    /// The same, with an `Accept` header.
    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = Request::get(format!("{path}{separator}watch=true")).header("accept", accept);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body(), read: Vec::new() }
    }
}

// === impl Answer ===

impl Answer {
    /// The object of a successful answer.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, String::from_utf8_lossy(&self.bytes));
        self.json()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    /// The body as text.
    pub(crate) fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The code and the reason of a `Status`.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.code, self.json()["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

// === impl Watch ===

impl Watch {
    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.read.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// The next piece of the body.
    pub(crate) async fn next_chunk(&mut self) -> Option<Bytes> {
        Some(self.body.frame().await?.unwrap().into_data().unwrap())
    }

    /// The next event as its type and the name of its object.
    pub(crate) async fn next_name(&mut self) -> Option<(String, String)> {
        let event = self.next().await?;
        Some((text(&event, "/type").to_owned(), text(&event, "/object/metadata/name").to_owned()))
    }

    /// All events up to the end.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

// === reading answers ===

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The version of an object or a list.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap()
}

pub(crate) fn names(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

pub(crate) fn config(name: &str) -> Value {
    serde_json::json!({"metadata": {"name": name}})
}
