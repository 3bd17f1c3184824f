//! The counts and times of a queue, for its users and for metrics.

use std::time::Duration;

use tokio::time::Instant;

use crate::shared::histogram::{Histogram, QUEUE_BUCKETS};

/// The numbers of keys in a queue, and counts of its work so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Keys ready to be taken.
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Adds that made a key ready, since the queue was made.
    pub adds_total: u64,
    /// Rate-limited adds, since the queue was made.
    pub retries_total: u64,
}

/// How long keys wait, and how long they are processed.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The time of the present call.
    pub(super) now: Instant,
    /// From the first add until a worker takes the key.
    pub(crate) waited: Histogram,
    /// From the taking until Done.
    pub(crate) worked: Histogram,
}

/// The values of a measured queue.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    /// Ready keys by priority, lowest first.
    pub(crate) depths: [usize; 3],
    pub(crate) times: Times,
    /// For how long the keys that are being processed have been processed: the sum, and the longest.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

impl Times {
    pub(super) fn new(now: Instant) -> Self {
        let histogram = Histogram::new(QUEUE_BUCKETS);
        Self { now, waited: histogram.clone(), worked: histogram }
    }

    /// Records that a key is taken that has been ready since `added`.
    pub(super) fn observe_wait(&mut self, added: Option<Instant>) {
        if let Some(added) = added {
            self.waited.observe(self.now.saturating_duration_since(added).as_secs_f64());
        }
    }

    /// Records that a key is done that was taken at `taken`.
    pub(super) fn observe_work(&mut self, taken: Option<Instant>) {
        if let Some(taken) = taken {
            self.worked.observe(self.now.saturating_duration_since(taken).as_secs_f64());
        }
    }
}

impl Report {
    /// Adds the values of a queue of the same name.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.stats.adds_total += other.stats.adds_total;
        self.stats.retries_total += other.stats.retries_total;
        for (mine, theirs) in self.depths.iter_mut().zip(other.depths) {
            *mine += theirs;
        }
        self.times.waited.merge(&other.times.waited);
        self.times.worked.merge(&other.times.worked);
        self.unfinished += other.unfinished;
        self.longest = self.longest.max(other.longest);
    }
}
