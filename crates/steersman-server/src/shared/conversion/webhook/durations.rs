//! The durations of conversions, for the server's metrics.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The upper bounds of the buckets in seconds, upstream's: from a millisecond, each twice the one before.
pub(crate) const BOUNDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// The maximum number of series: there is one for each pair of versions of a definition, and outcome. Further ones are
/// not counted.
const SERIES_MAX: usize = 4096;

/// The durations of calls, by definition, versions and outcome.
#[derive(Debug, Default)]
pub(crate) struct Durations(Mutex<BTreeMap<Labels, Seen>>);

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Labels {
    pub(crate) definition: Box<str>,
    pub(crate) from: Box<str>,
    pub(crate) to: Box<str>,
    pub(crate) has_succeeded: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The counts by bucket, not cumulative; the last one is for durations above every bound.
    pub(crate) counts: [u64; BOUNDS.len() + 1],
    pub(crate) sum: f64,
}

impl Durations {
    pub(super) fn observe(&self, definition: &str, from: &str, to: &str, has_succeeded: bool, duration: Duration) {
        let labels = Labels { definition: definition.into(), from: from.into(), to: to.into(), has_succeeded };
        let mut all = self.0.lock();
        if all.len() >= SERIES_MAX && !all.contains_key(&labels) {
            return;
        }
        let seen = all.entry(labels).or_default();
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        seen.counts[bucket] += 1;
        seen.sum += seconds;
    }

    /// A copy of all durations.
    pub(crate) fn all(&self) -> Vec<(Labels, Seen)> {
        self.0.lock().iter().map(|(labels, seen)| (labels.clone(), seen.clone())).collect()
    }
}
