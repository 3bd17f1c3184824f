//! A histogram of the durations of requests. Not synchronised: its owner holds a lock.

/// The upper bounds of the buckets in seconds, those of kube-apiserver for requests.
pub(crate) const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The number of observations by duration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// Counts by bucket, not cumulative; the last bucket is for values above every bound.
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Counts a value. A value on a bound belongs to the bucket below it.
    pub(crate) fn observe(&mut self, value: f64) {
        let bucket = BOUNDS.iter().position(|bound| value <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// For each bound the number of values up to it, then the number of all values.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let mut total = 0;
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts).map(move |(bound, count)| {
            total += count;
            (bound, total)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        [0.0, 0.005, 0.006, 61.0].into_iter().for_each(|value| histogram.observe(value));
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts[1], counts[22], counts[23]), (2, 3, 3, 4));
    }
}
