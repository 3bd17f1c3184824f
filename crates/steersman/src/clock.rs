//! Moments: those that lie ahead, also if they never come, and those by which others may have taken over.
//!
//! A wait of `Duration::MAX` says "never", and no moment is that late: [`after`]. `Instant::now` stands still on Linux and
//! macOS while the host is suspended. What other hosts count on, such as the end of a lease, goes by [`HostClock`].

#[cfg(test)]
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longer than any process runs, and short enough to be added to any moment.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The longest lease that can be written down, in whole seconds: 68 years.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(i32::MAX.unsigned_abs() as u64);

/// After how long at most a wait looks whether the host was suspended meanwhile.
pub(crate) const SUSPENSION_CHECK: Duration = Duration::from_secs(1);

/// The moment `wait` after `start`; one that no process lives to see, if there is none so late.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    start.checked_add(wait).unwrap_or_else(|| start + FAR)
}

/// A clock that also counts the time in which the host was suspended.
///
/// The wall clock has no part in it: to set that forward or back changes nothing. A virtual machine that is paused from
/// outside, without its system being told, cannot be noticed by any clock inside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostClock {
    #[cfg(test)]
    scripted: Option<Scripted>,
}

/// What a test says that the clock shows.
#[cfg(test)]
#[derive(Clone, Debug)]
enum Scripted {
    At(Arc<Mutex<Instant>>),
    /// As the runtime's, with so much more for which the host was suspended.
    Suspended(Arc<Mutex<Duration>>),
}

impl HostClock {
    /// Never before what it was earlier.
    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        match &self.scripted {
            None => {}
            Some(Scripted::At(at)) => return *at.lock(),
            Some(Scripted::Suspended(suspended)) => return Instant::now() + *suspended.lock(),
        }
        Instant::now() + suspension::total()
    }

    /// Waits until this clock shows `deadline`. If the host is suspended meanwhile, it notices within [`SUSPENSION_CHECK`]
    /// of the end of that.
    ///
    /// # Cancel safety
    /// Waits only.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        loop {
            let left = deadline.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SUSPENSION_CHECK)).await;
        }
    }

    /// A clock that shows what `at` says.
    #[cfg(test)]
    pub(crate) fn at(at: &Arc<Mutex<Instant>>) -> Self {
        Self { scripted: Some(Scripted::At(Arc::clone(at))) }
    }

    /// The clock of a host that was suspended for so long.
    #[cfg(test)]
    pub(crate) fn suspended(suspended: &Arc<Mutex<Duration>>) -> Self {
        Self { scripted: Some(Scripted::Suspended(Arc::clone(suspended))) }
    }
}

/// For how long the host was suspended: the difference of two clocks of the system, of which one counts that time.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
mod suspension {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    /// The clock that goes on. Apple's clock of this name does, and `Instant` is another one there.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const COUNTS_ALL: ClockId = ClockId::Boottime;
    #[cfg(target_vendor = "apple")]
    const COUNTS_ALL: ClockId = ClockId::Monotonic;

    /// What is shorter may only seem so, because two clocks cannot be read at once.
    const NOTICEABLE: Duration = Duration::from_millis(100);

    /// Both clocks at one moment.
    #[derive(Clone, Copy)]
    struct Reading {
        awake: Instant,
        all: Duration,
    }

    /// Since this was first asked.
    pub(super) fn total() -> Duration {
        static FIRST: OnceLock<Reading> = OnceLock::new();
        static NOTICED_MS: AtomicU64 = AtomicU64::new(0);
        let first = *FIRST.get_or_init(read);
        let now = read();
        let all = now.all.saturating_sub(first.all);
        let suspended = all.saturating_sub(now.awake.saturating_duration_since(first.awake));
        let noticed_ms = NOTICED_MS.load(Ordering::Relaxed);
        // Without a suspension the difference is the same to the nanosecond, but for the time between the readings.
        if suspended < Duration::from_millis(noticed_ms) + NOTICEABLE {
            return Duration::from_millis(noticed_ms);
        }
        let suspended_ms = u64::try_from(suspended.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(NOTICED_MS.fetch_max(suspended_ms, Ordering::Relaxed).max(suspended_ms))
    }

    #[expect(clippy::disallowed_methods, reason = "a suspension is real time; a paused runtime has none of it")]
    fn read() -> Reading {
        let reading = || {
            let awake = Instant::now();
            let all = clock_gettime(COUNTS_ALL);
            let seconds = u64::try_from(all.tv_sec).unwrap_or_default();
            let nanoseconds = u32::try_from(all.tv_nsec).unwrap_or_default();
            let took = awake.elapsed();
            (Reading { awake, all: Duration::new(seconds, nanoseconds) }, took)
        };
        let (first, took) = reading();
        if took < NOTICEABLE / 2 {
            return first;
        }
        // The thread was not running in between. Once more; to be wrong twice only costs a renewal too many.
        reading().0
    }
}

/// Other systems' `Instant` counts a suspension (Windows), or nothing is known of it.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod suspension {
    pub(super) fn total() -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_that_was_not_suspended_has_the_time_of_the_runtime() {
        let clock = HostClock::default();
        for _ in 0..1_000 {
            assert_eq!(clock.now(), Instant::now());
        }
        let deadline = Instant::now() + Duration::from_millis(3_500);
        clock.sleep_until(deadline).await;
        assert_eq!(Instant::now(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_soon_after_a_suspension_that_was_longer() {
        let suspended = Arc::<Mutex<Duration>>::default();
        let clock = HostClock::suspended(&suspended);
        let start = Instant::now();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(start + Duration::from_secs(10)).await }
        });
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        *suspended.lock() = Duration::from_secs(3_600);
        assert!(clock.now() > start + Duration::from_secs(3_600));
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }
}
