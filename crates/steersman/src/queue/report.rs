//! What a queue counts and measures, for those who ask.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::histogram::{Histogram, QUEUE_BUCKETS};

/// What a queue holds and has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Keys ready to be taken.
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Adds that made a key ready, ever.
    pub adds_total: u64,
    /// Rate-limited adds, ever.
    pub retries_total: u64,
}

/// How long keys wait and take.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The time of the present call.
    pub(super) now: Instant,
    /// From the first add to the taking.
    pub(crate) waited: Histogram,
    /// From the taking to Done.
    pub(crate) worked: Histogram,
}

/// What a measured queue has to report.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    /// Ready keys by priority, lowest first.
    pub(crate) depths: [usize; 3],
    pub(crate) times: Times,
    /// For how long the keys being processed have been processed: all together, and the one that was longest.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

impl Times {
    pub(super) fn new(now: Instant) -> Self {
        let histogram = Histogram::new(QUEUE_BUCKETS);
        Self { now, waited: histogram.clone(), worked: histogram }
    }

    /// A key is taken that was to be taken since `added`.
    pub(super) fn observe_wait(&mut self, added: Option<Instant>) {
        if let Some(added) = added {
            self.waited.observe(self.now.saturating_duration_since(added).as_secs_f64());
        }
    }

    /// A key is done that was taken at `taken`.
    pub(super) fn observe_work(&mut self, taken: Option<Instant>) {
        if let Some(taken) = taken {
            self.worked.observe(self.now.saturating_duration_since(taken).as_secs_f64());
        }
    }
}

impl Report {
    /// Adds what a queue of the same name reports.
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
