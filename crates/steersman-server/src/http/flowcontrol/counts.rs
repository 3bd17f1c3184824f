//! Counters of the requests of one FlowSchema at its priority level. Atomic, since every request counts itself.

use crate::http::flowcontrol::queues::Reason;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in seconds, those of kube-apiserver.
pub(super) const BOUNDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// The reasons, in the order of [`Counts::rejected`].
const REASONS: [Reason; 4] = [Reason::Cancelled, Reason::ConcurrencyLimit, Reason::QueueFull, Reason::TimeOut];

#[derive(Debug, Default)]
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

/// A histogram of durations.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// Counts by bucket, not cumulative; the last bucket is for values above every bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
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

impl Histogram {
    /// Counts a duration. A value on a bound belongs to the bucket below it.
    pub(super) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// For each bound the number of values up to it, then the number of all values.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        let mut total = 0;
        bounds.zip(&self.counts).map(move |(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (bound, total)
        })
    }

    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64()
    }
}
