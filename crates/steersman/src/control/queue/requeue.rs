//! When, and with which priority, a key runs again after a success.

use std::time::Duration;

use rand::Rng;

use crate::control::queue::priority::Priority;

/// When, and with which priority, a key runs again after a success; for [`Item::requeue`](crate::control::queue::Item::requeue)
/// and [`Action::RequeueWith`](crate::Action::RequeueWith).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "it says when a key runs next"]
pub struct Requeue {
    /// `None`: when the rate limiter allows.
    after: Option<Duration>,
    /// The most that is added to `after`, drawn anew each time.
    spread: Duration,
    /// `None`: the priority with which the key ran.
    pub(crate) priority: Option<Priority>,
}

impl Requeue {
    /// After this time, or when something changes, whichever comes first.
    pub fn after(delay: Duration) -> Self {
        Self { after: Some(delay), spread: Duration::ZERO, priority: None }
    }

    /// When the rate limiter allows, a little later each time.
    pub fn rate_limited() -> Self {
        Self { after: None, spread: Duration::ZERO, priority: None }
    }

    /// Adds up to `factor` of the delay, so that keys which were processed together do not come back together: 5
    /// minutes with a factor of 0.1 become 300 to 330 seconds. client-go's `wait.Jitter`. Waits of the rate limiter
    /// have no jitter, because its budget for all keys spaces them.
    pub fn jittered(mut self, factor: f64) -> Self {
        let seconds = self.after.unwrap_or_default().as_secs_f64() * factor;
        // Anything but a positive number means no jitter.
        self.spread =
            if seconds > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX) } else { Duration::ZERO };
        self
    }

    /// Sets the priority. A change that makes the key run sooner makes it run with this one or that of the change,
    /// whichever is higher. Default: the priority with which the key ran.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Whether a delay is set, and not left to the rate limiter.
    pub(crate) fn is_timed(self) -> bool {
        self.after.is_some()
    }

    /// The delay until the key runs; `None`: the rate limiter decides.
    pub(crate) fn delay(self, rng: &mut impl Rng) -> Option<Duration> {
        let after = self.after?;
        if self.spread.is_zero() {
            return Some(after);
        }
        Some(after.saturating_add(self.spread.mul_f64(rng.random::<f64>())))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_jitter_only_adds_and_stays_within_its_factor() {
        let mut rng = StdRng::seed_from_u64(1);
        let requeue = Requeue::after(Duration::from_secs(300)).jittered(0.1);
        let drawn: Vec<f64> = (0..1_000).map(|_| requeue.delay(&mut rng).unwrap().as_secs_f64()).collect();
        assert!(drawn.iter().all(|seconds| (300.0..330.0).contains(seconds)));
        let n_early = drawn.iter().filter(|seconds| **seconds < 315.0).count();
        assert!((400..600).contains(&n_early), "{n_early} of 1000 in the first half");
    }

    #[test]
    fn any_factor_and_any_time_are_taken() {
        let mut rng = StdRng::seed_from_u64(1);
        let minute = Duration::from_secs(60);
        for factor in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Requeue::after(minute).jittered(factor).delay(&mut rng), Some(minute), "{factor}");
        }
        assert!(Requeue::after(minute).jittered(f64::INFINITY).delay(&mut rng) > Some(minute));
        assert_eq!(Requeue::after(Duration::MAX).jittered(1.0).delay(&mut rng), Some(Duration::MAX));
        assert_eq!(Requeue::rate_limited().jittered(1.0).delay(&mut rng), None);
    }
}
