//! A histogram of durations or sizes: plain counters, whose owner has the lock.

/// The buckets of a work queue's times: ten nanoseconds to a thousand seconds, as controller-runtime has them.
pub(crate) const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1_000.0];

/// The buckets of the time that a reconcile takes, as controller-runtime has them.
pub(crate) const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The buckets of the time that a request takes, as Kubernetes' own components have them.
pub(crate) const REQUEST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// The buckets of sizes in bytes, as Kubernetes' own components have them.
pub(crate) const SIZE_BUCKETS: &[f64] =
    &[64.0, 256.0, 512.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// The number of values in each bucket.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// Upper bounds, rising. A value on a bound belongs to the bucket below it.
    bounds: &'static [f64],
    /// By bucket, not cumulative; one more than the bounds.
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Adds the counts of `other`, which has the same buckets.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bound and count of every bucket, not cumulative; the last bound is infinite.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 3.0, 4.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.buckets(), [(1.0, 2), (2.0, 2), (f64::INFINITY, 2)]);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.sum()), (12, 23.0));
    }
}
