//! Limits the requests in flight: by priority and fairness or, without it, by a limit for reads and one for writes.
//! Requests beyond that get 429.

use crate::http::flowcontrol::{FlowControl, Kind, Schema, Seat};
use crate::shared::operation::Attributes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_kinds::user::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// Whether priority levels share the sum of both limits. Otherwise each limit applies on its own, to all users
    /// together.
    pub has_priority_and_fairness: bool,
    /// The limit of requests that change nothing.
    pub reads_max: u32,
    /// The limit of requests that change something.
    pub writes_max: u32,
}

/// The limits of a server.
#[derive(Debug)]
pub(crate) struct Limits {
    gate: Gate,
    reads: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Gate {
    Fairness(Arc<FlowControl>),
    InFlight { reads: Arc<Semaphore>, writes: Arc<Semaphore> },
}

/// Held by a request while it is carried out.
#[derive(Debug)]
pub(crate) struct Permit {
    _held: Held,
    under_way: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Held {
    Nothing,
    Place { _place: OwnedSemaphorePermit },
    Seat { _seat: Seat },
}

/// A request to be admitted.
pub(crate) struct IncomingRequest<'a> {
    pub(crate) access: Access,
    /// The attributes of the request. Without priority and fairness, watches and non-resource requests are admitted at
    /// once.
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) user: &'a User,
    pub(crate) work: Kind<'a>,
    /// The longest that it may wait.
    pub(crate) wait_max: Duration,
}

/// Whether a request changes something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Default for Concurrency {
    fn default() -> Concurrency {
        Concurrency { has_priority_and_fairness: true, reads_max: 400, writes_max: 200 }
    }
}

// === impl Limits ===

impl Limits {
    pub(crate) fn new(concurrency: Concurrency) -> Limits {
        let Concurrency { has_priority_and_fairness, reads_max, writes_max } = concurrency;
        // A cast of 32 bits to a `usize` loses nothing.
        let semaphore = |n: u32| Arc::new(Semaphore::new((n as usize).min(Semaphore::MAX_PERMITS)));
        let gate = match has_priority_and_fairness {
            true => Gate::Fairness(Arc::new(FlowControl::new(reads_max.saturating_add(writes_max)))),
            false => Gate::InFlight { reads: semaphore(reads_max), writes: semaphore(writes_max) },
        };
        let (reads, writes) = Default::default();
        Limits { gate, reads, writes }
    }

    /// Priority and fairness, where it is on.
    pub(crate) fn flow_control(&self) -> Option<&Arc<FlowControl>> {
        match &self.gate {
            Gate::Fairness(control) => Some(control),
            Gate::InFlight { .. } => None,
        }
    }

    /// Admits a request under the flow schema that priority and fairness has chosen. `None` if there are too many.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn admit(&self, asked: &IncomingRequest<'_>, schema: Option<&Schema>) -> Option<Permit> {
        let held = match (&self.gate, schema) {
            (Gate::Fairness(control), Some(schema)) => {
                let IncomingRequest { attributes, user, work, wait_max, .. } = asked;
                Held::Seat { _seat: control.admit(schema, user, attributes, work, *wait_max).await? }
            }
            (Gate::Fairness(_), None) => Held::Nothing,
            (Gate::InFlight { reads, writes }, _) => {
                let places = match asked.access {
                    Access::Read => reads,
                    Access::Write => writes,
                };
                match asked.attributes {
                    Attributes::Resource(of) if of.verb != "watch" => {
                        Held::Place { _place: places.clone().try_acquire_owned().ok()? }
                    }
                    // Watches are cheap and long-lived.
                    Attributes::NonResource { .. } | Attributes::Resource(_) => Held::Nothing,
                }
            }
        };
        let under_way = match asked.access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        under_way.fetch_add(1, Ordering::Relaxed);
        Some(Permit { _held: held, under_way: under_way.clone() })
    }

    /// The number of requests in flight.
    pub(crate) fn under_way(&self, access: Access) -> usize {
        match access {
            Access::Read => self.reads.load(Ordering::Relaxed),
            Access::Write => self.writes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
