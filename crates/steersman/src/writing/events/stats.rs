//! The outcomes of a recorder's events: counted by the recorder and its task, read by a scrape of the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one recorder and its clones.
#[derive(Debug)]
pub(crate) struct Stats {
    /// The component that reports the events.
    pub(crate) component: String,
    pub(crate) n_sent: AtomicU64,
    /// Dropped because the queue was full.
    pub(crate) n_full: AtomicU64,
    /// Refused by the server.
    pub(crate) n_refused: AtomicU64,
    /// Given up because the server did not answer for too long.
    pub(crate) n_unanswered: AtomicU64,
}

impl Stats {
    pub(crate) fn new(component: &str) -> Self {
        Self {
            component: component.to_owned(),
            n_sent: AtomicU64::new(0),
            n_full: AtomicU64::new(0),
            n_refused: AtomicU64::new(0),
            n_unanswered: AtomicU64::new(0),
        }
    }

    /// The counts by outcome, in alphabetical order.
    pub(crate) fn outcomes(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("queue_full", read(&self.n_full)),
            ("refused", read(&self.n_refused)),
            ("sent", read(&self.n_sent)),
            ("unanswered", read(&self.n_unanswered)),
        ]
    }
}
