//! The durations of conversions, for the server's metrics.

use crate::metrics::histogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The upper bounds of the buckets in seconds, upstream's: from a millisecond, each twice the one before.
const BOUNDS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// The maximum number of series: there is one for each pair of versions of a definition, and outcome. Further ones are
/// not counted.
const SERIES_MAX: usize = 4096;

/// The durations of calls, by definition, versions and outcome.
#[derive(Debug, Default)]
pub(crate) struct Durations(Mutex<BTreeMap<Labels, Arc<Histogram>>>);

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Labels {
    pub(crate) definition: Box<str>,
    pub(crate) from: Box<str>,
    pub(crate) to: Box<str>,
    pub(crate) has_succeeded: bool,
}

impl Durations {
    pub(super) fn observe(&self, labels: Labels, duration: Duration) {
        let mut all = self.0.lock();
        if all.len() >= SERIES_MAX && !all.contains_key(&labels) {
            return;
        }
        all.entry(labels).or_insert_with(|| Arc::new(Histogram::new(BOUNDS))).observe(duration);
    }

    /// All durations.
    pub(crate) fn all(&self) -> Vec<(Labels, Arc<Histogram>)> {
        self.0.lock().iter().map(|(labels, durations)| (labels.clone(), durations.clone())).collect()
    }
}
