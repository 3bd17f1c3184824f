//! The wait of a failed key: a delay per key that grows with its failures, and a budget for all keys together.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::clock;

/// The first and the longest wait of the default.
const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1_000);

/// Decides how long a failed key waits before it runs again.
///
/// The default is client-go's: the longer of 5 ms doubling to 1000 s per key, and a budget of 10 retries a second with
/// bursts of 100 for all keys.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    /// The longest wait of all rules counts.
    rules: Vec<Rule>,
    wait_max: Duration,
}

#[derive(Clone)]
enum Rule {
    Bucket(Bucket),
    /// `base * 2^n`, at most `max`.
    Exponential {
        base: Duration,
        max: Duration,
    },
    /// `fast` for the first failures, then `slow`.
    FastSlow {
        fast: Duration,
        slow: Duration,
        n_fast: u32,
    },
    Function(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

/// A token bucket, kept as the time at which it would be full again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The time in which one token is added.
    interval: Duration,
    burst: u32,
    full_at: Option<Instant>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::exponential(BASE, MAX).bucket(10.0, 100)
    }
}

impl RateLimiter {
    /// Waits `base`, then twice as long after each failure, at most `max`.
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self::of(Rule::Exponential { base, max })
    }

    /// Waits `fast` after each of the first `n_fast` failures, then `slow`.
    pub fn fast_slow(fast: Duration, slow: Duration, n_fast: u32) -> Self {
        Self::of(Rule::FastSlow { fast, slow, n_fast })
    }

    /// Waits for the time that `wait` returns for the number of failures before this one. It is called under the
    /// queue's lock. If it panics, the wait is that of the default.
    pub fn function(wait: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self::of(Rule::Function(Arc::new(wait)))
    }

    /// Also limits all keys together to `per_second` retries a second, after a burst of `burst`. A rate that is not a
    /// positive number sets no limit. A later call replaces an earlier one.
    pub fn bucket(mut self, per_second: f64, burst: u32) -> Self {
        self.rules.retain(|rule| !matches!(rule, Rule::Bucket(_)));
        let interval = Duration::try_from_secs_f64(per_second.recip()).ok();
        self.rules.extend(interval.map(|interval| Rule::Bucket(Bucket { interval, burst, full_at: None })));
        self
    }

    /// The longer wait of both limiters; the shorter of their [`RateLimiter::max_wait`]s bounds it.
    pub fn max_of(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self.wait_max = self.wait_max.min(other.wait_max);
        self
    }

    /// Bounds every wait, whatever the other rules say.
    pub fn max_wait(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// The wait after a failure, when `n_failures` counted before it.
    pub(crate) fn wait(&mut self, n_failures: u32, now: Instant) -> Duration {
        let waits = self.rules.iter_mut().map(|rule| rule.wait(n_failures, now));
        waits.max().unwrap_or_default().min(self.wait_max)
    }

    fn of(rule: Rule) -> Self {
        Self { rules: vec![rule], wait_max: Duration::MAX }
    }
}

impl Rule {
    fn wait(&mut self, n_failures: u32, now: Instant) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.reserve(now),
            Self::Exponential { base, max } => exponential(*base, *max, n_failures),
            Self::FastSlow { fast, n_fast, .. } if n_failures < *n_fast => *fast,
            Self::FastSlow { slow, .. } => *slow,
            // A panic must not end the worker.
            Self::Function(function) => catch_unwind(AssertUnwindSafe(|| function(n_failures))).unwrap_or_else(|_| {
                tracing::error!("the function of a rate limiter panicked; waiting as the default does");
                exponential(BASE, MAX, n_failures)
            }),
        }
    }
}

fn exponential(base: Duration, max: Duration, n_failures: u32) -> Duration {
    base.saturating_mul(1_u32.checked_shl(n_failures).unwrap_or(u32::MAX)).min(max)
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(bucket) => bucket.fmt(f),
            Self::Exponential { base, max } => write!(f, "Exponential({base:?} to {max:?})"),
            Self::FastSlow { fast, slow, n_fast } => write!(f, "FastSlow({n_fast} times {fast:?}, then {slow:?})"),
            Self::Function(_) => f.write_str("Function"),
        }
    }
}

impl Bucket {
    /// Takes a token, in advance if none is left; returns how long until it is there.
    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = clock::after(self.full_at.map_or(now, |full_at| full_at.max(now)), self.interval);
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
    async fn of_several_rules_the_longest_wait_counts() {
        let ms = Duration::from_millis;
        let fast_slow = RateLimiter::fast_slow(ms(20), ms(50), 3);
        let mut limiter = RateLimiter::exponential(ms(5), ms(1_000)).max_of(fast_slow.clone());
        assert_eq!(waits_ms(&mut limiter, 0..6, Instant::now()), [20, 20, 20, 50, 80, 160]);
        let linear = RateLimiter::function(|n_failures| Duration::from_millis(30) * n_failures).max_wait(ms(70));
        let mut limiter = fast_slow.max_of(linear);
        assert_eq!(waits_ms(&mut limiter, 0..4, Instant::now()), [20, 30, 60, 70]);
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
