//! Events that `kubectl describe` shows, recorded without ever holding up a reconciler.
//!
//! A record goes into a bounded queue; one task sends. [`correlate`] decides what is sent: equal events are counted on
//! one object, similar ones are combined, floods are cut. When the queue is full, events are dropped and counted.

mod correlate;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::core::Resource;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::chain::Chain;
use crate::events::correlate::{Correlator, Effect, Note};

/// How many events wait to be sent.
pub const EVENTS_MAX: usize = 1_000;

/// How often one event is tried while the server is away, and how long between.
const TRIES_MAX: u32 = 12;
const RETRY_WAIT: Duration = Duration::from_secs(10);

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// For the record.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Records events about objects. Clones share the queue and the task, which ends with the last clone.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<Message>,
    n_dropped: Arc<AtomicU64>,
}

enum Message {
    Flush(oneshot::Sender<()>),
    Note(Box<Note>),
}

/// The sending end, on its own task.
struct Sink {
    client: Client,
    correlator: Correlator,
}

// === impl EventRecorder ===

impl EventRecorder {
    /// A recorder for events reported by `component`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(client: Client, component: &str) -> Self {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let sink = Sink { client, correlator: Correlator::new(component) };
        // Owned by its channel: it ends when the last recorder is dropped and the queue is empty.
        drop(tokio::spawn(sink.run(receiver)));
        Self { sender, n_dropped: Arc::default() }
    }

    /// Records that something happened to `object`. Returns at once.
    ///
    /// `reason` is one word in CamelCase and the same every time, `message` a sentence for people. Keep what differs
    /// each time (durations, ids) out of the message, so that repetitions are counted instead of multiplied.
    pub fn event<K>(&self, object: &K, event_type: EventType, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let mut reference = object.object_ref(&());
        reference.resource_version.clone_from(&object.meta().resource_version);
        self.event_about(reference, event_type, reason, message);
    }

    /// As [`EventRecorder::event`], for an object of which only a reference is at hand.
    pub fn event_about(&self, object: ObjectReference, event_type: EventType, reason: &str, message: &str) {
        let note =
            Note { object, event_type, reason: reason.to_owned(), message: message.to_owned(), at: Timestamp::now() };
        if self.sender.try_send(Message::Note(Box::new(note))).is_err() {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because too many were waiting.
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything recorded before has been sent or given up.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            // An error means that the task is gone, and with it everything there was to wait for.
            drop(wait.await);
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("n_dropped", &self.n_dropped()).finish_non_exhaustive()
    }
}

impl EventType {
    /// The word the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl Sink ===

impl Sink {
    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        while let Some(message) = receiver.recv().await {
            match message {
                // The recorder may have stopped waiting.
                Message::Flush(done) => drop(done.send(())),
                Message::Note(note) => {
                    if let Some(effect) = self.correlator.step(Instant::now(), *note) {
                        self.perform(effect).await;
                    }
                }
            }
        }
    }

    /// Sends one event; tries again while the server is away, never when it refuses.
    async fn perform(&self, mut effect: Effect) {
        for n_tries in 1..=TRIES_MAX {
            let error = match self.send(&effect).await {
                Ok(()) => return,
                Err(error) => error,
            };
            let code = match &error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            };
            if let (Effect::Count { event, .. }, Some(404)) = (&effect, code) {
                // It expired on the server; begin a new one.
                effect = Effect::Create { event: event.clone() };
                continue;
            }
            let is_final = code.is_some_and(|code| code != 429 && code < 500) || n_tries == TRIES_MAX;
            if is_final {
                match &error {
                    // An object that goes with its namespace: nobody is there to read of it.
                    kube::Error::Api(status) if is_of_terminating_namespace(status) => {
                        tracing::debug!(error = %status.message, "an event was too late for its namespace");
                    }
                    kube::Error::Api(status) => {
                        tracing::warn!(code = status.code, error = %status.message, "an event could not be recorded");
                    }
                    error => tracing::warn!(error = %Chain(error), "an event could not be recorded"),
                }
                return;
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
    }

    async fn send(&self, effect: &Effect) -> Result<(), kube::Error> {
        let (method, uri, content_type, body) = match effect {
            Effect::Create { event } => {
                let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
                let uri = format!("/api/v1/namespaces/{namespace}/events");
                (http::Method::POST, uri, "application/json", serde_json::to_vec(event))
            }
            Effect::Count { event, patch } => {
                let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
                let name = event.metadata.name.as_deref().unwrap_or_default();
                let uri = format!("/api/v1/namespaces/{namespace}/events/{name}");
                (http::Method::PATCH, uri, "application/merge-patch+json", serde_json::to_vec(patch))
            }
        };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body.map_err(kube::Error::SerdeError)?)
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await.map(drop)
    }
}

/// Whether an answer says that the namespace is on its way out, as apiserver marks it.
fn is_of_terminating_namespace(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
