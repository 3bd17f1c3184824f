//! The audit log: who did what, when, and with which outcome, as events of `audit.k8s.io/v1`.
//!
//! A [`Policy`] decides which requests are logged, and in how much detail (`policy`). The chain keeps a `Trail` of each
//! logged request, and passes an [`Event`] to the [`Sink`] at each stage. The sink formats the event later (`event`):
//! the embedder decides where events go and what happens if the sink is too slow; a sink that sends events to a webhook
//! is here (`webhook`). Without a policy nothing is logged.

mod event;
mod held;
mod policy;
mod trail;
pub mod webhook;

use crate::access::audit::held::Room;
use futures::future::{self, BoxFuture};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::access::audit::event::Event;
pub use crate::access::audit::policy::{Policy, PolicyError};
pub(crate) use crate::access::audit::trail::{Received, Trail};

/// The detail in which a request is logged.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Level {
    /// Nothing.
    None,
    /// The user, the action, the time and the outcome.
    Metadata,
    /// The body of the request as well.
    Request,
    /// The bodies of request and response as well.
    RequestResponse,
}

/// The stage of a request at which an event is logged.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Stage {
    /// The sender is known.
    RequestReceived,
    /// The head of the response is sent, and its end is not foreseeable: a watch.
    ResponseStarted,
    /// The response is sent, or was aborted.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

/// Accepts events.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Accepts an event without waiting. False if there is no room: the event is dropped.
    fn take(&self, event: Event) -> bool;

    /// Whether requests wait until their events are written.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Accepts an event, and resolves when it is written. False if it is dropped.
    fn write(&self, event: Event) -> BoxFuture<'_, bool> {
        Box::pin(future::ready(self.take(event)))
    }

    /// The number of events that were accepted and could not be written.
    fn n_failed(&self) -> u64 {
        0
    }
}

/// Passes every event to several sinks.
#[derive(Debug)]
pub struct Sinks(pub Vec<Arc<dyn Sink>>);

/// The audit policy with its sink.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    sink: Arc<dyn Sink>,
    /// For bodies of requests that have not ended.
    room: Room,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    events: AtomicU64,
    lost: AtomicU64,
    bodies_dropped: AtomicU64,
    /// Requests by level, in the order of [`Level`].
    levels: [AtomicU64; 4],
}

/// The counts for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Figures {
    pub(crate) events: u64,
    /// Events that were dropped before or after they were accepted.
    pub(crate) errors: u64,
    /// Bodies that were left out of their events, because they are too long or there was no room for them.
    pub(crate) bodies_dropped: u64,
    pub(crate) levels: [(&'static str, u64); 4],
}

impl Level {
    const ALL: [(Level, &'static str); 4] = [
        (Level::None, "None"),
        (Level::Metadata, "Metadata"),
        (Level::Request, "Request"),
        (Level::RequestResponse, "RequestResponse"),
    ];
}

// === impl Sinks ===

impl Sink for Sinks {
    /// False if any of the sinks has no room.
    fn take(&self, event: Event) -> bool {
        let mut is_taken = true;
        for sink in &self.0 {
            is_taken &= sink.take(event.clone());
        }
        is_taken
    }

    /// True if any of the sinks is blocking.
    fn is_blocking(&self) -> bool {
        self.0.iter().any(|sink| sink.is_blocking())
    }

    fn write(&self, event: Event) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let (waiting, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|sink| sink.is_blocking());
            let mut is_written = true;
            for sink in others {
                is_written &= sink.take(event.clone());
            }
            let written = future::join_all(waiting.into_iter().map(|sink| sink.write(event.clone()))).await;
            is_written && written.into_iter().all(|is_written| is_written)
        })
    }

    fn n_failed(&self) -> u64 {
        self.0.iter().map(|sink| sink.n_failed()).sum()
    }
}

// === impl Audit ===

impl Audit {
    /// Logs to the sink according to the policy.
    pub fn new(policy: Policy, sink: Arc<dyn Sink>) -> Audit {
        Audit { policy, sink, room: Room::default(), counts: Counts::default() }
    }

    pub(crate) fn figures(&self) -> Figures {
        let Counts { events, lost, bodies_dropped, levels } = &self.counts;
        let mut by_level = [("", 0); 4];
        for ((slot, (_, name)), count) in by_level.iter_mut().zip(Level::ALL).zip(levels) {
            *slot = (name, count.load(Ordering::Relaxed));
        }
        Figures {
            events: events.load(Ordering::Relaxed),
            errors: lost.load(Ordering::Relaxed) + self.sink.n_failed(),
            bodies_dropped: bodies_dropped.load(Ordering::Relaxed),
            levels: by_level,
        }
    }

    fn count_request(&self, level: Level) {
        self.counts.levels[level as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count_dropped_body(&self) {
        self.counts.bodies_dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self, event: Event) {
        let is_taken = self.sink.take(event);
        self.count(is_taken);
    }

    async fn write(&self, event: Event) {
        let is_written = self.sink.write(event).await;
        self.count(is_written);
    }

    fn count(&self, is_taken: bool) {
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        if !is_taken {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
