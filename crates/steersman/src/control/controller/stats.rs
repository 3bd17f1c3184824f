//! The counters of a controller, and their values at one moment.
//!
//! Workers write them; a scrape of the metrics and the controller's owner read them.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::shared::histogram::{Histogram, RECONCILE_BUCKETS};

/// The work of a controller so far.
#[derive(Debug, Default)]
pub struct ControllerStats {
    pub(super) active_workers: AtomicU64,
    pub(super) n_succeeded: AtomicU64,
    pub(super) n_failed: AtomicU64,
    pub(super) n_requeued: AtomicU64,
    /// The reconciles counted in `n_requeued` that set a time.
    pub(super) n_requeued_after: AtomicU64,
    pub(super) n_terminal: AtomicU64,
    pub(super) n_panicked: AtomicU64,
    pub(super) n_timed_out: AtomicU64,
    pub(super) n_given_up: AtomicU64,
    pub(super) times: Times,
}

/// How long reconciles took.
#[derive(Debug)]
pub(super) struct Times(pub(super) Mutex<Histogram>);

/// The values of the counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ControllerTotals {
    pub(crate) active_workers: u64,
    pub(crate) n_succeeded: u64,
    pub(crate) n_failed: u64,
    /// Without the reconciles that set a time.
    pub(crate) n_requeued: u64,
    pub(crate) n_requeued_after: u64,
    pub(crate) n_terminal: u64,
    pub(crate) n_panicked: u64,
    pub(crate) n_timed_out: u64,
    pub(crate) times: Histogram,
}

// === impl ControllerStats ===

impl ControllerStats {
    /// Reconciles running now.
    pub fn active_workers(&self) -> u64 {
        self.active_workers.load(Ordering::Relaxed)
    }

    /// Reconciles that returned [`Action::AwaitChange`](crate::Action::AwaitChange).
    pub fn n_succeeded(&self) -> u64 {
        self.n_succeeded.load(Ordering::Relaxed)
    }

    /// Reconciles that failed in any way: error, panic or timeout.
    pub fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }

    /// Reconciles that asked to run again.
    pub fn n_requeued(&self) -> u64 {
        self.n_requeued.load(Ordering::Relaxed)
    }

    /// Errors that were terminal, of those that failed.
    pub fn n_terminal(&self) -> u64 {
        self.n_terminal.load(Ordering::Relaxed)
    }

    /// Panics, of those that failed.
    pub fn n_panicked(&self) -> u64 {
        self.n_panicked.load(Ordering::Relaxed)
    }

    /// Timeouts, of those that failed.
    pub fn n_timed_out(&self) -> u64 {
        self.n_timed_out.load(Ordering::Relaxed)
    }

    /// Keys given up.
    pub fn n_given_up(&self) -> u64 {
        self.n_given_up.load(Ordering::Relaxed)
    }

    pub(crate) fn totals(&self) -> ControllerTotals {
        let n_requeued_after = self.n_requeued_after.load(Ordering::Relaxed);
        ControllerTotals {
            active_workers: self.active_workers(),
            n_succeeded: self.n_succeeded(),
            n_failed: self.n_failed(),
            // `n_requeued` is counted before `n_requeued_after`, so it is never less; the saturation covers a read
            // between the two.
            n_requeued: self.n_requeued().saturating_sub(n_requeued_after),
            n_requeued_after,
            n_terminal: self.n_terminal(),
            n_panicked: self.n_panicked(),
            n_timed_out: self.n_timed_out(),
            times: self.times.0.lock().clone(),
        }
    }
}

impl ControllerTotals {
    /// Adds the counts of a controller of the same name.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.active_workers += other.active_workers;
        self.n_succeeded += other.n_succeeded;
        self.n_failed += other.n_failed;
        self.n_requeued += other.n_requeued;
        self.n_requeued_after += other.n_requeued_after;
        self.n_terminal += other.n_terminal;
        self.n_panicked += other.n_panicked;
        self.n_timed_out += other.n_timed_out;
        self.times.merge(&other.times);
    }
}

impl Default for Times {
    fn default() -> Self {
        Self(Mutex::new(Histogram::new(RECONCILE_BUCKETS)))
    }
}
