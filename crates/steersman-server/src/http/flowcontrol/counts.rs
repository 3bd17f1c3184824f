//! Counters of the requests of one FlowSchema at its priority level. Atomic, since every request counts itself.

use crate::http::flowcontrol::queues::Reason;
use crate::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The upper bounds of the buckets in seconds, those of kube-apiserver.
const BOUNDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// The reasons, in the order of [`Counts::rejected`].
const REASONS: [Reason; 4] = [Reason::Cancelled, Reason::ConcurrencyLimit, Reason::QueueFull, Reason::TimeOut];

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) dispatched: AtomicU64,
    rejected: [AtomicU64; REASONS.len()],
    pub(super) waiting: AtomicI64,
    pub(super) executing: AtomicI64,
    pub(super) seats: AtomicI64,
    /// The waiting times of requests that were then executed.
    pub(super) waited: Histogram,
    /// The waiting times of requests that were then rejected.
    pub(super) waited_in_vain: Histogram,
    pub(super) executed: Histogram,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            dispatched: AtomicU64::default(),
            rejected: <[AtomicU64; REASONS.len()]>::default(),
            waiting: AtomicI64::default(),
            executing: AtomicI64::default(),
            seats: AtomicI64::default(),
            waited: Histogram::new(BOUNDS),
            waited_in_vain: Histogram::new(BOUNDS),
            executed: Histogram::new(BOUNDS),
        }
    }
}

impl Counts {
    pub(super) fn n_dispatched(&self) -> u64 {
        self.dispatched.load(Ordering::Relaxed)
    }

    pub(super) fn reject(&self, reason: Reason) {
        let counted = REASONS.iter().zip(&self.rejected).find(|(one, _)| **one == reason);
        if let Some((_, count)) = counted {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of rejections by reason, for reasons that have occurred.
    pub(super) fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = REASONS.iter().zip(&self.rejected);
        counts.map(|(reason, count)| (reason.as_str(), count.load(Ordering::Relaxed))).filter(|(_, n)| *n > 0)
    }
}
