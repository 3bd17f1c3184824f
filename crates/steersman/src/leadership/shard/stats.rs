//! The counters of a member, and their values for a scrape of the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::leadership::shard::gate::Moved;

/// Counters of one member, written by its agent.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    n_gained: AtomicU64,
    n_lost: AtomicU64,
    n_late: AtomicU64,
    n_stops: AtomicU64,
}

/// The state of a member at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) group: String,
    pub(crate) slots: usize,
    pub(crate) members: usize,
    pub(crate) n_gained: u64,
    pub(crate) n_lost: u64,
    pub(crate) n_late: u64,
    pub(crate) n_stops: u64,
}

/// A member, for metrics.
pub(crate) trait Measured: Send + Sync {
    fn report(&self) -> Report;
}

impl Stats {
    pub(crate) fn count_moved(&self, moved: &Moved) {
        let (n_gained, n_lost) = moved.counts();
        self.n_gained.fetch_add(n_gained as u64, Ordering::Relaxed);
        self.n_lost.fetch_add(n_lost as u64, Ordering::Relaxed);
    }

    /// Counts a renewal that was sent more than two periods after the previous one.
    pub(crate) fn count_late(&self) {
        self.n_late.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stop of all work.
    pub(crate) fn count_stop(&self) {
        self.n_stops.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, group: &str, slots: usize, members: usize) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            group: group.to_owned(),
            slots,
            members,
            n_gained: read(&self.n_gained),
            n_lost: read(&self.n_lost),
            n_late: read(&self.n_late),
            n_stops: read(&self.n_stops),
        }
    }
}

impl Report {
    /// Adds the values of another member of the group.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.slots += other.slots;
        self.members = self.members.max(other.members);
        self.n_gained += other.n_gained;
        self.n_lost += other.n_lost;
        self.n_late += other.n_late;
        self.n_stops += other.n_stops;
    }
}
