//! How long a failed key waits: a delay per key that grows with its failures, and a budget for all keys together.

use std::time::Duration;

use tokio::time::Instant;

/// Says how long a failed key waits before it runs again.
///
/// The default is client-go's: the longer of 5 ms doubling to 1000 s per key, and a budget of 10 retries a second with
/// bursts of 100 for all keys.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    per_key: PerKey,
    bucket: Option<Bucket>,
    wait_max: Duration,
}

#[derive(Clone, Copy, Debug)]
enum PerKey {
    /// `base * 2^n`, at most `max`.
    Exponential { base: Duration, max: Duration },
    /// `fast` for the first failures, then `slow`.
    FastSlow { fast: Duration, slow: Duration, n_fast: u32 },
}

/// A token bucket, kept as the time at which it would be full again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Time in which one token comes in.
    interval: Duration,
    burst: u32,
    full_at: Option<Instant>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(5), Duration::from_secs(1_000)).bucket(10.0, 100)
    }
}

impl RateLimiter {
    /// Waits `base`, then twice as long after each failure, at most `max`.
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self { per_key: PerKey::Exponential { base, max }, bucket: None, wait_max: Duration::MAX }
    }

    /// Waits `fast` after each of the first `n_fast` failures, then `slow`.
    pub fn fast_slow(fast: Duration, slow: Duration, n_fast: u32) -> Self {
        Self { per_key: PerKey::FastSlow { fast, slow, n_fast }, bucket: None, wait_max: Duration::MAX }
    }

    /// Also keeps all keys together within `per_second` retries a second, after a burst of `burst`. A rate that is not
    /// a positive number sets no limit.
    pub fn bucket(mut self, per_second: f64, burst: u32) -> Self {
        self.bucket = Duration::try_from_secs_f64(per_second.recip()).ok().map(|interval| Bucket {
            interval,
            burst,
            full_at: None,
        });
        self
    }

    /// No wait is longer than `wait_max`, whatever the other rules say.
    pub fn max_wait(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// The wait after a failure, when `n_failures` counted before it.
    pub(crate) fn wait(&mut self, n_failures: u32, now: Instant) -> Duration {
        let per_key = match self.per_key {
            PerKey::Exponential { base, max } => {
                base.saturating_mul(1_u32.checked_shl(n_failures).unwrap_or(u32::MAX)).min(max)
            }
            PerKey::FastSlow { fast, n_fast, .. } if n_failures < n_fast => fast,
            PerKey::FastSlow { slow, .. } => slow,
        };
        let budget = self.bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.reserve(now));
        per_key.max(budget).min(self.wait_max)
    }
}

impl Bucket {
    /// Takes a token, from the future if need be; says how long until it is there.
    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + self.interval;
        self.full_at = Some(full_at);
        full_at.duration_since(now).saturating_sub(self.interval.saturating_mul(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_ms(limiter: &mut RateLimiter, failures: impl IntoIterator<Item = u32>, now: Instant) -> Vec<u128> {
        failures.into_iter().map(|n_failures| limiter.wait(n_failures, now).as_millis()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn exponential_waits_double_and_stop_at_the_cap_without_overflow() {
        let mut limiter = RateLimiter::exponential(Duration::from_millis(5), Duration::from_secs(1_000));
        let now = Instant::now();
        assert_eq!(
            waits_ms(&mut limiter, [0, 1, 2, 3, 17, 18, 64, u32::MAX], now),
            [5, 10, 20, 40, 655_360, 1_000_000, 1_000_000, 1_000_000]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn fast_failures_come_before_slow_ones() {
        let mut limiter = RateLimiter::fast_slow(Duration::from_millis(5), Duration::from_secs(10), 2);
        assert_eq!(waits_ms(&mut limiter, 0..4, Instant::now()), [5, 5, 10_000, 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_lets_a_burst_pass_and_spaces_the_rest() {
        let mut limiter = RateLimiter::exponential(Duration::ZERO, Duration::ZERO).bucket(10.0, 2);
        let now = Instant::now();
        assert_eq!(waits_ms(&mut limiter, [0; 5], now), [0, 0, 100, 200, 300]);
        assert_eq!(waits_ms(&mut limiter, [0; 2], now + Duration::from_secs(1)), [0, 0]);
        assert_eq!(waits_ms(&mut limiter.clone().max_wait(Duration::from_millis(7)), [0; 9], now).last(), Some(&7));
    }
}
