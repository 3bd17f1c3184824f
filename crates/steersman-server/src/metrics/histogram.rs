//! A histogram of durations. Atomic, so that whoever counts needs no lock.

use crate::metrics::text::Text;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The bounds of kube-apiserver for requests, in seconds.
pub(crate) const REQUEST_BOUNDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The number of durations by bucket.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The upper bounds of the buckets in seconds, rising.
    bounds: &'static [f64],
    /// Counts by bucket, not cumulative; the last bucket is for values above every bound.
    counts: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, nanos: AtomicU64::new(0) }
    }

    /// Counts a duration. A value on a bound belongs to the bucket below it.
    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Writes the values of a family that has begun: the buckets, the sum and the count.
    pub(crate) fn write(&self, text: &mut Text, name: &str, labels: &[(&str, &str)]) {
        let bucket = format!("{name}_bucket");
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, n) in bounds.zip(&self.counts) {
            count += n.load(Ordering::Relaxed);
            text.value(&bucket, &[labels, &[("le", &*bound)]].concat(), count);
        }
        let seconds = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        text.value(&format!("{name}_sum"), labels, seconds);
        text.value(&format!("{name}_count"), labels, count);
    }

    /// Writes the values, unless there are none.
    pub(crate) fn write_if_any(&self, text: &mut Text, name: &str, labels: &[(&str, &str)]) {
        if self.count() > 0 {
            self.write(text, name, labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_that_holds_it() {
        let histogram = Histogram::new(&[0.005, 1.0]);
        [0, 5, 6, 61_000].into_iter().for_each(|millis| histogram.observe(Duration::from_millis(millis)));
        let mut text = Text::default();
        histogram.write(&mut text, "a", &[("b", "c")]);
        let want = [
            r#"a_bucket{b="c",le="0.005"} 2"#,
            r#"a_bucket{b="c",le="1"} 3"#,
            r#"a_bucket{b="c",le="+Inf"} 4"#,
            r#"a_sum{b="c"} 61.011"#,
            r#"a_count{b="c"} 4"#,
        ];
        assert_eq!(text.into_string().lines().collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_histogram_without_values_may_be_left_out() {
        let (histogram, mut text) = (Histogram::new(&[1.0]), Text::default());
        histogram.write_if_any(&mut text, "a", &[]);
        assert_eq!(text.into_string(), "");
    }
}
