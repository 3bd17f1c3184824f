//! Limits the requests in flight: by priority and fairness or, without it, by a limit for reads and one for writes.
//! Requests beyond that get 429.

use crate::http::flowcontrol::{FlowControl, Kind, Schema, Seat};
use crate::shared::operation::Attributes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_kinds::user::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most requests whose bodies are being received: of one payer, and of all together. A payer without any may go beyond the latter, up to twice
/// as many.
const RECEIVING_OF_PAYER_MAX: usize = 200;
const RECEIVING_MAX: usize = 1000;

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
    receiving: Mutex<Receiving>,
    reads: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
}

/// The requests whose bodies are being received.
#[derive(Debug, Default)]
struct Receiving {
    n: usize,
    /// The number of each payer that has any. The key comes from clients, so the hasher resists collisions.
    payers: HashMap<String, usize>,
}

/// Held while the body of a request is received.
pub(crate) struct Reception<'a> {
    receiving: &'a Mutex<Receiving>,
    payer: Arc<User>,
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
pub(crate) struct Asked<'a> {
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
        Limits { gate, receiving: Mutex::default(), reads, writes }
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
    pub(crate) async fn admit(&self, asked: &Asked<'_>, schema: Option<&Schema>) -> Option<Permit> {
        let held = match (&self.gate, schema) {
            (Gate::Fairness(control), Some(schema)) => {
                let Asked { attributes, user, work, wait_max, .. } = asked;
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

    /// A permit to receive the body of a request, if one is left.
    pub(crate) fn try_receive(&self, payer: &Arc<User>) -> Option<Reception<'_>> {
        let mut receiving = self.receiving.lock();
        let of_payer = receiving.payers.get(&payer.name).copied().unwrap_or(0);
        // A few payers who send as many as they may do not keep out all others.
        let max = if of_payer == 0 { 2 * RECEIVING_MAX } else { RECEIVING_MAX };
        if RECEIVING_OF_PAYER_MAX <= of_payer || max <= receiving.n {
            return None;
        }
        receiving.n += 1;
        *receiving.payers.entry(payer.name.clone()).or_default() += 1;
        Some(Reception { receiving: &self.receiving, payer: payer.clone() })
    }

    /// The number of requests in flight.
    pub(crate) fn under_way(&self, access: Access) -> usize {
        match access {
            Access::Read => self.reads.load(Ordering::Relaxed),
            Access::Write => self.writes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Reception<'_> {
    fn drop(&mut self) {
        let mut receiving = self.receiving.lock();
        receiving.n -= 1;
        if let Some(of_payer) = receiving.payers.get_mut(&self.payer.name) {
            *of_payer -= 1;
            if *of_payer == 0 {
                receiving.payers.remove(&self.payer.name);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_payer_does_not_keep_others_from_sending_bodies() {
        let limits = Limits::new(Concurrency::default());
        let payer = |name: &str| Arc::new(User::authenticated(name, []));
        let receive = |name: &str| (0..).map_while(|_| limits.try_receive(&payer(name))).collect::<Vec<_>>();
        let first = receive("a");
        assert_eq!(first.len(), RECEIVING_OF_PAYER_MAX);
        let others: Vec<_> = ["b", "c", "d", "e"].map(receive).into();
        assert_eq!(first.len() + others.iter().map(Vec::len).sum::<usize>(), RECEIVING_MAX);
        assert_eq!(receive("f").len(), 1, "the first body of a payer is received even then");
        drop((first, others));
        assert_eq!(limits.receiving.lock().n, 0);
        assert!(limits.receiving.lock().payers.is_empty());
    }
}
