//! Exponential backoff with jitter for watches: pure, the caller has the clock and the dice.

use std::time::Duration;

use tokio::time::Instant;

/// The wait after a failure, with client-go's figures: 800 ms, doubling to 30 s, each wait stretched by up to its own
/// length, and reset after two minutes without a failure.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    limits: Limits,
    /// Failures since the last reset.
    n_failures: u32,
    last_failure: Option<Instant>,
}

/// The limits of a backoff.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The first wait, before jitter.
    pub initial: Duration,
    /// The longest wait, before jitter; jitter at most doubles it.
    pub max: Duration,
    /// After this long without a failure, the next wait is the first one again.
    pub reset_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            max: Duration::from_secs(30),
            reset_after: Duration::from_secs(120),
        }
    }
}

impl Backoff {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, n_failures: 0, last_failure: None }
    }

    /// Counts a failure and returns how long to wait. `dice` is uniform in [0, 1).
    pub(crate) fn next(&mut self, now: Instant, dice: f64) -> Duration {
        self.forget_old(now);
        let doubled =
            self.limits.initial.saturating_mul(1_u32.checked_shl(self.n_failures.min(30)).unwrap_or(u32::MAX));
        self.n_failures = self.n_failures.saturating_add(1);
        self.last_failure = Some(now);
        doubled.min(self.limits.max).mul_f64(1.0 + dice.clamp(0.0, 1.0))
    }

    /// As [`Backoff::next`], but the first failure after a quiet time costs no wait.
    pub(crate) fn next_first_free(&mut self, now: Instant, dice: f64) -> Duration {
        self.forget_old(now);
        if self.last_failure.is_none() {
            self.last_failure = Some(now);
            return Duration::ZERO;
        }
        self.next(now, dice)
    }

    fn forget_old(&mut self, now: Instant) {
        let quiet = self.last_failure.is_some_and(|last| now.duration_since(last) >= self.limits.reset_after);
        if quiet {
            self.n_failures = 0;
            self.last_failure = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_to_the_cap_and_start_over_after_quiet() {
        let mut backoff = Backoff::new(Limits::default());
        let now = Instant::now();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(now, 0.0).as_millis()).collect();
        assert_eq!(waits, [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.next(now, 1.0), Duration::from_secs(60));
        assert_eq!(backoff.next(now + Duration::from_secs(120), 0.0), Duration::from_millis(800));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_can_be_free() {
        let mut backoff = Backoff::new(Limits::default());
        let now = Instant::now();
        assert_eq!(backoff.next_first_free(now, 0.0), Duration::ZERO);
        assert_eq!(backoff.next_first_free(now, 0.0), Duration::from_millis(800));
        assert_eq!(backoff.next_first_free(now + Duration::from_secs(121), 0.0), Duration::ZERO);
    }
}
