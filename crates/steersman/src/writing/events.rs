//! Events that `kubectl describe` shows, recorded without ever holding up a reconciler.
//!
//! A record goes into a bounded queue; one task (`sink`) sends. `correlate` decides what is sent for core/v1 (equal
//! events are counted on one object, similar ones are combined, floods are cut), and `series` for events.k8s.io/v1.
//! `outbox` holds the waiting requests: an event that cannot be sent does not hold up others. When the queue is full,
//! events are dropped. Lost events are counted, and logged once a minute at most.

mod correlate;
mod outbox;
mod recent;
mod series;
mod sink;
pub(crate) mod stats;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::core::Resource;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::writing::events::correlate::Correlator;
use crate::writing::events::series::Series;
use crate::writing::events::sink::{Memory, Sink};
use crate::writing::events::stats::Stats;

/// The most records that wait for the task that sends them. Beyond them, up to 500 event objects wait for their next
/// try.
pub const EVENTS_MAX: usize = 1_000;

/// The longest name of an object that the API allows.
const NAME_BYTES_MAX: usize = 253;

/// The longest `reportingInstance` that events.k8s.io allows.
const INSTANCE_BYTES_MAX: usize = 128;

/// The type of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// An event that needs no attention.
    Normal,
    /// An event that somebody should look at.
    Warning,
}

/// Records events about objects. Clones share the queue and the task, which ends with the last clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::events::{EventRecorder, EventType};
/// # async fn record(client: kube::Client, config: ConfigMap) {
/// let events = EventRecorder::new(client, "painter");
/// events.event(&config, EventType::Normal, "Painted", "it is green now");
/// // At the end of the process:
/// events.flush().await;
/// # }
/// ```
///
/// An event that the server refuses is dropped; while the server is away, each event is tried twelve times in two
/// minutes, without holding up others. A request waits for its answer at most half a minute.
///
/// A [`Manager`](crate::Manager) does not know the recorders of its controllers: keep a clone, and flush it when the
/// manager has ended, or the last events are lost with the process.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<Message>,
    stats: Arc<Stats>,
}

/// An event with all its fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewEvent {
    /// The object that the event is about. Without a namespace, the event goes into `default`.
    pub regarding: ObjectReference,
    /// A second object that took part.
    pub related: Option<ObjectReference>,
    /// `Normal` or `Warning`.
    pub event_type: EventType,
    /// The cause, or what happened: one word in CamelCase, the same every time.
    pub reason: String,
    /// The action that was taken or tried: one word in CamelCase. `None`: the reason names it.
    pub action: Option<String>,
    /// A sentence for people. In events.k8s.io/v1 it is cut off after 1024 bytes.
    pub note: String,
}

enum Message {
    Flush(oneshot::Sender<()>),
    RecordedEvent(Box<RecordedEvent>),
}

/// One recorded occurrence.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent {
    object: ObjectReference,
    related: Option<ObjectReference>,
    event_type: EventType,
    reason: String,
    action: Option<String>,
    message: String,
    at: Timestamp,
}

/// A request to send: create an event, or patch an existing one. The whole event is kept in case it no longer exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    namespace: String,
    name: String,
    event: Value,
    patch: Option<Value>,
}

// === impl NewEvent ===

impl NewEvent {
    /// An event about one object, without an action.
    pub fn new(regarding: ObjectReference, event_type: EventType, reason: &str, note: &str) -> Self {
        Self { regarding, related: None, event_type, reason: reason.to_owned(), action: None, note: note.to_owned() }
    }

    /// Sets [`NewEvent::related`].
    pub fn related(mut self, related: impl Into<Option<ObjectReference>>) -> Self {
        self.related = related.into();
        self
    }

    /// Sets [`NewEvent::action`].
    pub fn action(mut self, action: impl Into<Option<String>>) -> Self {
        self.action = action.into();
        self
    }
}

// === impl EventRecorder ===

impl EventRecorder {
    /// A recorder for events reported by `component`, in core/v1: every repetition is written to the server, similar
    /// events are combined, and no object gets more than 25 at once and then one every five minutes.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(client: Client, component: &str) -> Self {
        Self::start(client, component, Memory::Counted(Correlator::new(component)))
    }

    /// As [`EventRecorder::new`], for a component that runs on a host, such as the kubelet of a node, which the events name.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn on_host(client: Client, component: &str, host: &str) -> Self {
        Self::start(client, component, Memory::Counted(Correlator::new(component).on_host(host)))
    }

    /// A recorder for events reported by `controller`, such as `example.com/painter`, in events.k8s.io/v1: a repetition
    /// begins a series, whose count is written when it begins, every half hour, and after six minutes of silence.
    ///
    /// Events that differ only in their note form one series, with the note of the first.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_series(client: Client, controller: &str) -> Self {
        let host = crate::shared::host::name();
        let name = controller.rsplit('/').next().unwrap_or_default();
        let mut instance = format!("{name}-{host}");
        instance.truncate(instance.floor_char_boundary(INSTANCE_BYTES_MAX));
        Self::start(client, controller, Memory::Series(Series::new(controller, &instance)))
    }

    fn start(client: Client, component: &str, memory: Memory) -> Self {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let stats = Arc::new(Stats::new(component));
        let sink = Sink::new(client, memory, Arc::clone(&stats));
        // The task is owned by its channel: it ends when the last recorder is dropped and the queue is empty.
        drop(tokio::spawn(sink.run(receiver)));
        Self { sender, stats }
    }

    /// Records that something happened to `object`. Returns at once.
    ///
    /// `reason` is one word in CamelCase and the same every time, `message` a sentence for people. Keep what differs
    /// each time (durations, ids) out of the message, so that repetitions are counted instead of multiplied.
    pub fn event<K>(&self, object: &K, event_type: EventType, reason: &str, message: &str)
    where
        K: Resource,
        K::DynamicType: Default,
    {
        self.event_with(object, &K::DynamicType::default(), event_type, reason, message);
    }

    /// As [`EventRecorder::event`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
    pub fn event_with<K>(
        &self,
        object: &K,
        dynamic: &K::DynamicType,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) where
        K: Resource,
    {
        let mut reference = object.object_ref(dynamic);
        reference.resource_version.clone_from(&object.meta().resource_version);
        self.event_about(reference, event_type, reason, message);
    }

    /// As [`EventRecorder::event`], for an object of which only a reference is known.
    pub fn event_about(&self, object: ObjectReference, event_type: EventType, reason: &str, message: &str) {
        self.record(NewEvent::new(object, event_type, reason, message));
    }

    /// As [`EventRecorder::event`], with all fields.
    pub fn record(&self, event: NewEvent) {
        let note = RecordedEvent {
            object: event.regarding,
            related: event.related,
            event_type: event.event_type,
            reason: event.reason,
            action: event.action,
            message: event.note,
            at: Timestamp::now(),
        };
        if self.sender.try_send(Message::RecordedEvent(Box::new(note))).is_err() {
            self.stats.n_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of events dropped because the queue was full.
    /// [`Metrics::observe_events`](crate::control::metrics::Metrics::observe_events) shows this, and the number lost for other
    /// reasons.
    pub fn n_dropped(&self) -> u64 {
        self.stats.n_full.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Waits until everything recorded before has been sent or given up, the counts of running series included.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            // An error means that the task has ended, so there is nothing left to wait for.
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
    /// The value of the field `type` in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl RecordedEvent ===

impl RecordedEvent {
    /// A name for a new event object.
    fn name(&self) -> String {
        let name = format!("{}.{:x}", self.object.name.as_deref().unwrap_or_default(), self.at.as_nanosecond());
        // The names of some kinds, such as roles, are not legal names of events.
        if is_object_name(&name) { name } else { format!("{:032x}", rand::random::<u128>()) }
    }

    /// The metadata of the event object of this name.
    fn metadata(&self, name: String) -> ObjectMeta {
        let namespace = self.object.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        ObjectMeta { name: Some(name), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
    }
}

impl Effect {
    fn create(metadata: &ObjectMeta, event: &impl Serialize) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            event: serde_json::to_value(event).expect("invariant: an event is a tree of strings and numbers"),
            patch: None,
        }
    }

    fn count(metadata: &ObjectMeta, event: &impl Serialize, patch: Value) -> Self {
        Self { patch: Some(patch), ..Self::create(metadata, event) }
    }
}

/// Whether this can name an object of most kinds: it is a DNS subdomain (RFC 1123).
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|&byte| is_inner(byte) || byte == b'-')
            && bytes.first().is_some_and(|&byte| is_inner(byte))
            && bytes.last().is_some_and(|&byte| is_inner(byte))
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}
