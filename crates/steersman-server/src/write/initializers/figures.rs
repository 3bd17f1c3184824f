//! Counters of initializers, for Prometheus. Names come from configurations and from users who may initialize; beyond
//! [`NAMES_MAX`] further names are counted together under the empty name.

use crate::metrics::histogram::{Histogram, REQUEST_BOUNDS};
use crate::metrics::text::{Text, Type};
use crate::write::initializers::{Configured, OnTimeout};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NAMES_MAX: usize = 1000;

/// The counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    by_name: Mutex<BTreeMap<Box<str>, Initializer>>,
    /// The creations that are waiting now.
    creations: AtomicUsize,
}

/// A waiting creation. Counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Configured>);

#[derive(Debug)]
struct Initializer {
    /// The number of objects that wait for it now.
    pending: usize,
    /// The times that objects waited for it, counted at the end of each wait.
    duration: Histogram,
    /// The objects that waited too long: those that failed, and those that went on without it.
    failed: u64,
    ignored: u64,
}

impl Waiting {
    /// Counts a creation.
    pub(crate) fn begin(configured: Arc<Configured>) -> Waiting {
        configured.figures.creations.fetch_add(1, Ordering::Relaxed);
        Waiting(configured)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.figures.creations.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Figures {
    /// Counts an object that has finished waiting for an initializer.
    pub(crate) fn waited(&self, name: &str, duration: Duration) {
        self.with(name, |initializer| initializer.duration.observe(duration));
    }

    /// Counts an object that has waited too long.
    pub(crate) fn timed_out(&self, name: &str, on_timeout: OnTimeout) {
        self.with(name, |initializer| match on_timeout {
            OnTimeout::Fail => initializer.failed += 1,
            OnTimeout::Ignore => initializer.ignored += 1,
        });
    }

    /// Sets the number of objects that wait for each initializer now. It is zero for initializers that are not named.
    pub(crate) fn set_pending<'n>(&self, pending: impl IntoIterator<Item = (&'n str, usize)>) {
        self.by_name.lock().values_mut().for_each(|initializer| initializer.pending = 0);
        for (name, n) in pending {
            self.with(name, |initializer| initializer.pending += n);
        }
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Initializer)) {
        let mut all = self.by_name.lock();
        let is_full = NAMES_MAX <= all.len() && !all.contains_key(name);
        change(all.entry(if is_full { "" } else { name }.into()).or_insert_with(Initializer::new));
    }

    /// The counters in Prometheus' text format.
    pub(crate) fn exposition(&self) -> String {
        let mut text = Text::default();
        let creations = "steersman_initializer_waiting_creations";
        text.family(creations, Type::Gauge, "Creations that wait for the initializers of their object.");
        text.value(creations, &[], self.creations.load(Ordering::Relaxed));
        let all = self.by_name.lock();
        let pending = "steersman_initializer_pending_objects";
        text.family(pending, Type::Gauge, "Objects that wait for an initializer.");
        for (name, initializer) in all.iter() {
            text.value(pending, &[("initializer", name)], initializer.pending);
        }
        let timeouts = "steersman_initializer_timeouts_total";
        text.family(timeouts, Type::Counter, "Objects that waited too long for an initializer, by what happened then.");
        for (name, initializer) in all.iter() {
            for (policy, n) in [(OnTimeout::Fail, initializer.failed), (OnTimeout::Ignore, initializer.ignored)] {
                text.value(timeouts, &[("failure_policy", policy.as_str()), ("initializer", name)], n);
            }
        }
        let duration = "steersman_initializer_duration_seconds";
        text.family(duration, Type::Histogram, "Seconds that objects waited.");
        for (name, initializer) in all.iter() {
            initializer.duration.write(&mut text, duration, &[("initializer", name)]);
        }
        text.into_string()
    }
}

impl Initializer {
    fn new() -> Initializer {
        Initializer { pending: 0, duration: Histogram::new(REQUEST_BOUNDS), failed: 0, ignored: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let figures = Figures::default();
        for n in 0..NAMES_MAX + 5 {
            figures.timed_out(&format!("{n}.b.c"), OnTimeout::Fail);
        }
        figures.set_pending([("1.b.c", 3)]);
        let text = figures.exposition();
        let line = |line: &str| assert!(text.lines().any(|one| one == line), "{line}");
        line(r#"steersman_initializer_timeouts_total{failure_policy="Fail",initializer=""} 5"#);
        line(r#"steersman_initializer_pending_objects{initializer="1.b.c"} 3"#);
    }
}
