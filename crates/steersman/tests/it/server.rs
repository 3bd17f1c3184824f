//! A scripted API server inside the test: a `tower::Service` under `kube::Client::new`.
//!
//! It keeps objects of any resource, counts versions, lists, watches (streaming lists and bookmarks too), creates,
//! replaces, patches and deletes, well enough for the library. On command it misbehaves as a real server does rarely:
//! it refuses, breaks off, stays silent, sends garbage, drops old versions. It waits by a paused clock: every test that
//! starts one has `start_paused = true`, except those in `parallel`, which need no waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

type Chunk = Result<Frame<Bytes>, std::io::Error>;
type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// The kind of request that a fault applies to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    List,
    Watch,
    Write,
}

/// The effect of a fault on a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The connection fails.
    Cut,
    /// A successful status, then these bytes, then the end.
    Garbage(&'static str),
    /// No answer, ever.
    Silence,
    /// A refusal.
    Status { code: u16, reason: &'static str, retry_after: Option<u32> },
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// `GET /api/v1/configmaps?..`
    pub(crate) line: String,
}

#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
}

struct State {
    version: u64,
    /// Watches cannot start before this version.
    oldest: u64,
    /// By collection (`/api/v1/configmaps`), then by namespace and name.
    objects: BTreeMap<String, BTreeMap<(String, String), Value>>,
    /// All events, in order: version, collection, event.
    log: Vec<(u64, String, Value)>,
    watchers: Vec<Watcher>,
    faults: Vec<(Verb, VecDeque<Fault>)>,
    seen: Vec<Seen>,
    /// Answers to GETs of other paths, such as discovery.
    documents: BTreeMap<String, Value>,
    /// Whether `sendInitialEvents` is supported.
    has_streaming_lists: bool,
    /// Whether a streaming list ends with its bookmark.
    has_end_bookmark: bool,
    /// Collections that exist without objects.
    served: Vec<String>,
}

struct Watcher {
    collection: String,
    namespace: String,
    sender: mpsc::Sender<Chunk>,
}

struct Path {
    collection: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Server {
    /// Serves config maps, leases and events, all empty.
    pub(crate) fn new() -> Self {
        let served = [
            "/api/v1/configmaps",
            "/api/v1/events",
            "/apis/coordination.k8s.io/v1/leases",
            "/apis/apps/v1/deployments",
        ];
        let state = State {
            version: 100,
            oldest: 0,
            objects: BTreeMap::new(),
            log: Vec::new(),
            watchers: Vec::new(),
            faults: [Verb::List, Verb::Watch, Verb::Write].map(|verb| (verb, VecDeque::new())).into(),
            seen: Vec::new(),
            documents: BTreeMap::new(),
            has_streaming_lists: true,
            has_end_bookmark: true,
            served: served.map(str::to_owned).into(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(crate) fn without_streaming_lists(self) -> Self {
        self.state.lock().has_streaming_lists = false;
        self
    }

    pub(crate) fn without_end_bookmark(self) -> Self {
        self.state.lock().has_end_bookmark = false;
        self
    }

    /// Sets whether streaming lists end with their bookmark.
    pub(crate) fn end_streaming_lists(&self, has_end_bookmark: bool) {
        self.state.lock().has_end_bookmark = has_end_bookmark;
    }

    /// Lets the next request of this kind fail; each further call, the one after it.
    pub(crate) fn fail(&self, verb: Verb, fault: Fault) {
        self.faults(verb, |faults| faults.push_back(fault));
    }

    pub(crate) fn heal(&self) {
        for verb in [Verb::List, Verb::Watch, Verb::Write] {
            self.faults(verb, VecDeque::clear);
        }
    }

    fn faults<R>(&self, verb: Verb, edit: impl FnOnce(&mut VecDeque<Fault>) -> R) -> R {
        let mut state = self.state.lock();
        let (_, faults) = state.faults.iter_mut().find(|(of, _)| *of == verb).unwrap();
        edit(faults)
    }

    /// Stops and starts serving a collection, as when a CRD is deleted and created.
    pub(crate) fn serve(&self, collection: &str, is_served: bool) {
        let mut state = self.state.lock();
        state.served.retain(|served| served != collection);
        if is_served {
            state.served.push(collection.to_owned());
        }
    }

    pub(crate) fn document(&self, path: &str, document: Value) {
        self.state.lock().documents.insert(path.to_owned(), document);
    }

    /// Ends all watches, properly.
    pub(crate) fn end_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// The watches stay open, and no event comes through them any more.
    pub(crate) fn stall_watches(&self) {
        self.state.lock().watchers.iter_mut().for_each(|watcher| watcher.collection.clear());
    }

    /// Breaks all watches off, in the middle of a line.
    pub(crate) fn break_watches(&self) {
        for watcher in self.state.lock().watchers.drain(..) {
            drop(watcher.sender.try_send(Ok(Frame::data(Bytes::from_static(br#"{"type":"ADDED","obj"#)))));
            drop(watcher.sender.try_send(Err(std::io::ErrorKind::ConnectionReset.into())));
        }
    }

    /// Writes a line into all watches.
    pub(crate) fn say(&self, line: &str) {
        for watcher in &self.state.lock().watchers {
            watcher.send(line);
        }
    }

    /// Drops all versions before the current one. Running watches get an error event.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.oldest = state.version;
        state.log.clear();
    }

    pub(crate) fn n_watches(&self) -> usize {
        let mut state = self.state.lock();
        state.watchers.retain(|watcher| !watcher.sender.is_closed());
        state.watchers.len()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.lock().seen.clone()
    }

    /// The number of requests so far whose line contains `text`.
    pub(crate) fn n_seen(&self, text: &str) -> usize {
        self.state.lock().seen.iter().filter(|seen| seen.line.contains(text)).count()
    }

    /// Creates or replaces a config map; returns its version.
    pub(crate) fn put(&self, key: &str, value: &str) -> String {
        let (namespace, name) = key.split_once('/').unwrap();
        self.put_raw(
            "/api/v1/configmaps",
            json!({
                "metadata": {"namespace": namespace, "name": name, "managedFields": [{"manager": "somebody"}]},
                "data": {"value": value},
            }),
        )
    }

    /// Creates or replaces any object, which need not be decodable.
    pub(crate) fn put_raw(&self, collection: &str, object: Value) -> String {
        let version = self.state.lock().put(collection, object)["metadata"]["resourceVersion"].clone();
        version.as_str().unwrap().to_owned()
    }

    /// Deletes a config map.
    pub(crate) fn delete(&self, key: &str) {
        self.delete_from("/api/v1/configmaps", key);
    }

    /// As [`Server::delete`], but without an object it does nothing.
    pub(crate) fn delete_if_there(&self, key: &str) {
        if self.get("/api/v1/configmaps", key).is_some() {
            self.delete(key);
        }
    }

    pub(crate) fn delete_from(&self, collection: &str, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap();
        self.state.lock().delete(collection, namespace, name);
    }

    pub(crate) fn get(&self, collection: &str, key: &str) -> Option<Value> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.state.lock().objects.get(collection)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn list(&self, collection: &str) -> Vec<Value> {
        self.state.lock().objects.get(collection).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Config maps as `key -> (value, version)`.
    pub(crate) fn config_maps(&self) -> BTreeMap<String, (String, String)> {
        self.list("/api/v1/configmaps").iter().map(summarize).collect()
    }
}

pub(crate) fn summarize(object: &Value) -> (String, (String, String)) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &object["metadata"];
    let key = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
    (key, (text(&object["data"]["value"]), text(&meta["resourceVersion"])))
}

impl State {
    fn put(&mut self, collection: &str, mut object: Value) -> Value {
        self.version += 1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let objects = self.objects.entry(collection.to_owned()).or_default();
        let known = objects.get(&key);
        let event_type = if known.is_some() { "MODIFIED" } else { "ADDED" };
        object["metadata"]["uid"] =
            known.map_or_else(|| json!(format!("uid-{}", self.version)), |known| known["metadata"]["uid"].clone());
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        objects.insert(key, object.clone());
        self.publish(collection, event_type, object.clone());
        object
    }

    fn delete(&mut self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut object = self.objects.get_mut(collection)?.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.publish(collection, "DELETED", object.clone());
        Some(object)
    }

    fn publish(&mut self, collection: &str, event_type: &str, object: Value) {
        let event = json!({"type": event_type, "object": object});
        self.watchers.retain(|watcher| !watcher.sender.is_closed());
        let line = format!(r#"{{"type":"{event_type}","object":{object}}}"#);
        self.watchers.retain(|watcher| !watcher.wants(collection, &event) || watcher.send(&line));
        self.log.push((self.version, collection.to_owned(), event));
    }

    fn in_namespace(&self, path: &Path) -> Vec<Value> {
        let objects = self.objects.get(&path.collection).into_iter().flatten();
        objects
            .filter(|((namespace, _), _)| path.namespace.is_empty() || *namespace == path.namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }
}

impl Watcher {
    fn wants(&self, collection: &str, event: &Value) -> bool {
        let namespace = event["object"]["metadata"]["namespace"].as_str().unwrap_or_default();
        collection == self.collection && (self.namespace.is_empty() || self.namespace == namespace)
    }

    /// False: the client does not read, and must be cut off, as a real server would do.
    fn send(&self, line: &str) -> bool {
        let line = Bytes::from(format!("{line}\n"));
        // Two chunks, so that lines cross chunks.
        let (head, tail) = (line.slice(..line.len() / 2), line.slice(line.len() / 2..));
        [head, tail].into_iter().all(|chunk| self.sender.try_send(Ok(Frame::data(chunk))).is_ok())
    }
}

// === HTTP ===

impl tower::Service<Request<Body>> for Server {
    type Response = Answer;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Answer, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
            let line = format!("{} {}", parts.method, parts.uri);
            server.state.lock().seen.push(Seen { at: Instant::now(), line });
            let query: BTreeMap<String, String> = parts
                .uri
                .query()
                .unwrap_or_default()
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let is_watch = query.contains_key("watch");
            let path = Path::parse(parts.uri.path());
            let verb = match (&parts.method, is_watch) {
                (&Method::GET, true) => Some(Verb::Watch),
                (&Method::GET, false) if path.name.is_empty() => Some(Verb::List),
                (&Method::GET, false) => None,
                _ => Some(Verb::Write),
            };
            if let Some(fault) = verb.and_then(|verb| server.faults(verb, VecDeque::pop_front)) {
                return match fault {
                    Fault::Cut => Err(std::io::ErrorKind::ConnectionRefused.into()),
                    Fault::Garbage(text) => Ok(answer(200, text.to_owned())),
                    Fault::Silence => futures::future::pending().await,
                    Fault::Status { code, reason, retry_after } => {
                        let mut refusal = status(code, reason, "as scripted");
                        if let Some(seconds) = retry_after {
                            refusal.headers_mut().insert("retry-after", seconds.into());
                        }
                        Ok(refusal)
                    }
                };
            }
            if let Some(document) = server.state.lock().documents.get(parts.uri.path()) {
                return Ok(answer(200, document.to_string()));
            }
            if !server.state.lock().served.contains(&path.collection) {
                return Ok(status(404, "NotFound", "the server could not find the requested resource"));
            }
            Ok(match parts.method {
                Method::GET if is_watch => server.watch(&path, &query),
                Method::GET => server.read(&path, &query),
                _ => server.write(&parts, &path, &body),
            })
        }
        .boxed()
    }
}

impl Server {
    fn read(&self, path: &Path, query: &BTreeMap<String, String>) -> Answer {
        let state = self.state.lock();
        if !path.name.is_empty() {
            let object = state.objects.get(&path.collection).and_then(|objects| objects.get(&path.key()));
            return object.map_or_else(not_found, |object| answer(200, object.to_string()));
        }
        let wanted: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        if wanted > state.version {
            return status(504, "Timeout", "Too large resource version");
        }
        let all = state.in_namespace(path);
        // Only reads from the store have pages; the continue token is a position.
        let limit: usize = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let start: usize = query.get("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
        let page: Vec<&Value> = all.iter().skip(start).take(limit).collect();
        let next = if start + page.len() < all.len() { (start + page.len()).to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": state.version.to_string(), "continue": next});
        answer(200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page}).to_string())
    }

    fn watch(&self, path: &Path, query: &BTreeMap<String, String>) -> Answer {
        let mut state = self.state.lock();
        let is_streaming = query.contains_key("sendInitialEvents");
        if is_streaming && !state.has_streaming_lists {
            return status(
                422,
                "Invalid",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            );
        }
        let version: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::channel(10_000);
        let watcher = Watcher { collection: path.collection.clone(), namespace: path.namespace.clone(), sender };
        if is_streaming {
            for object in state.in_namespace(path) {
                watcher.send(&json!({"type": "ADDED", "object": object}).to_string());
            }
            if state.has_end_bookmark {
                watcher.send(&bookmark(state.version, json!({"k8s.io/initial-events-end": "true"})));
            }
            state.watchers.push(watcher);
        } else if version > 0 && version < state.oldest {
            let gone =
                json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
            watcher.send(&json!({"type": "ERROR", "object": gone}).to_string());
        } else {
            for (at, collection, event) in &state.log {
                if *at > version && watcher.wants(collection, event) {
                    watcher.send(&event.to_string());
                }
            }
            state.watchers.push(watcher);
        }
        let timeout: u64 = query.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(1_800);
        let end = tokio::time::sleep(Duration::from_secs(timeout));
        let chunks = futures::stream::unfold(receiver, |mut receiver| async {
            let chunk = receiver.recv().await?;
            Some((chunk, receiver))
        });
        let body = StreamBody::new(chunks.take_until(end));
        Response::new(body.boxed_unsync())
    }

    fn write(&self, parts: &http::request::Parts, path: &Path, body: &[u8]) -> Answer {
        let mut state = self.state.lock();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = if path.name.is_empty() { text(&body["metadata"]["name"]) } else { path.name.clone() };
        let key = (path.namespace.clone(), name);
        let current = state.objects.get(&path.collection).and_then(|objects| objects.get(&key)).cloned();
        let is_apply = parts.headers.get("content-type").is_some_and(|value| value == "application/apply-patch+yaml");
        let mut object = match (&parts.method, current) {
            (&Method::POST, Some(_)) => return status(409, "AlreadyExists", "it exists"),
            (&Method::POST, None) => body,
            (&Method::DELETE, Some(_)) => {
                let deleted = state.delete(&path.collection, &key.0, &key.1).unwrap_or_default();
                return answer(200, deleted.to_string());
            }
            (_, None) if is_apply => body,
            (_, None) => return not_found(),
            (_, Some(current)) => {
                for field in ["resourceVersion", "uid"] {
                    let asked = &body["metadata"][field];
                    if !asked.is_null() && *asked != current["metadata"][field] {
                        return status(409, "Conflict", "the object has been modified");
                    }
                }
                if parts.method == Method::PUT {
                    body
                } else {
                    let mut merged = current.clone();
                    let has_status = state.documents.values().any(|document| {
                        document["resources"].as_array().is_some_and(|resources| {
                            resources.iter().any(|resource| {
                                let plural = path.collection.rsplit('/').next().unwrap_or_default();
                                resource["name"] == format!("{plural}/status")
                            })
                        })
                    });
                    let mut patch = body;
                    match (path.subresource.as_str(), has_status) {
                        ("status", false) => return not_found(),
                        ("status", true) => patch = json!({"status": patch["status"]}),
                        (_, true) => drop(patch.as_object_mut().map(|patch| patch.remove("status"))),
                        (_, false) => {}
                    }
                    merge(&mut merged, &patch);
                    if merged == current {
                        return answer(200, current.to_string());
                    }
                    merged
                }
            }
        };
        object["metadata"]["name"] = json!(key.1);
        object["metadata"]["namespace"] = json!(key.0);
        let is_deleting = !object["metadata"]["deletionTimestamp"].is_null();
        let has_finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        let stored = state.put(&path.collection, object);
        if is_deleting && !has_finalizers {
            state.delete(&path.collection, &key.0, &key.1);
        }
        answer(200, stored.to_string())
    }
}

impl Path {
    /// Parses `/api/v1/namespaces/NS/PLURAL/NAME/SUB`, of which some parts may be absent. Only namespaced collections
    /// are served under a namespace.
    fn parse(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let n_prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
        let (prefix, rest) = parts.split_at(n_prefix.min(parts.len()));
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        Self {
            collection: format!("/{}/{}", prefix.join("/"), at(0)),
            namespace: namespace.to_owned(),
            name: at(1),
            subresource: at(2),
        }
    }

    fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

pub(crate) fn bookmark(version: u64, annotations: Value) -> String {
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}}).to_string()
}

fn not_found() -> Answer {
    status(404, "NotFound", "not found")
}

fn status(code: u16, reason: &str, message: &str) -> Answer {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message});
    answer(code, body.to_string())
}

fn answer(code: u16, text: String) -> Answer {
    // Several chunks, as from a network.
    let bytes = Bytes::from(text);
    let chunks: Vec<Chunk> = (0..bytes.len())
        .step_by(1_000)
        .map(|at| Ok(Frame::data(bytes.slice(at..bytes.len().min(at + 1_000)))))
        .collect();
    let body = StreamBody::new(futures::stream::iter(chunks)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let map = target.as_object_mut().unwrap();
    for (key, value) in members {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Waits, in paused time, until `is_so`; an hour is longer than every backoff.
#[track_caller]
pub(crate) fn eventually<F: FnMut() -> bool>(what: &str, mut is_so: F) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        for _ in 0..3_600 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{caller}: never: {what}");
    }
}

/// Lets every task that can run, run.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
