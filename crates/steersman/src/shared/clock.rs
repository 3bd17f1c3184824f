//! Deadlines that may be never, and a clock that counts suspensions of the host.
//!
//! A wait of `Duration::MAX` means "never", which no `Instant` can hold: see [`after`]. `Instant::now` stands still on
//! Linux and macOS while the host is suspended. Deadlines that other hosts rely on, such as the end of a lease, go by
//! [`HostClock`].

#[cfg(test)]
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longer than any process runs, and short enough to be added to any `Instant`.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The longest lease that `leaseDurationSeconds` can hold: 68 years.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(i32::MAX.unsigned_abs() as u64);

/// How often a wait checks whether the host was suspended meanwhile.
pub(crate) const SUSPENSION_CHECK: Duration = Duration::from_secs(1);

/// `start` plus `wait`; if that overflows, a time that no process lives to see.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    start.checked_add(wait).unwrap_or_else(|| start + FAR)
}

/// A clock that also counts the time in which the host was suspended.
///
/// The wall clock is not used: setting it forward or back changes nothing. No clock inside a virtual machine can notice
/// that the machine was paused from outside without notice to its system.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostClock {
    #[cfg(test)]
    scripted: Option<Scripted>,
}

/// A clock that a test controls.
#[cfg(test)]
#[derive(Clone, Debug)]
enum Scripted {
    At(Arc<Mutex<Instant>>),
    /// The runtime's clock, plus the time of scripted suspensions.
    Suspended(Arc<Mutex<Duration>>),
}

impl HostClock {
    /// The current time. It never goes back.
    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        match &self.scripted {
            None => {}
            Some(Scripted::At(at)) => return *at.lock(),
            Some(Scripted::Suspended(suspended)) => return Instant::now() + *suspended.lock(),
        }
        Instant::now() + suspension::total()
    }

    /// Waits until this clock reaches `deadline`. After a suspension of the host, it notices within
    /// [`SUSPENSION_CHECK`].
    ///
    /// # Cancel safety
    /// Only waits.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        loop {
            let left = deadline.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SUSPENSION_CHECK)).await;
        }
    }

    /// A clock that shows the time in `at`.
    #[cfg(test)]
    pub(crate) fn at(at: &Arc<Mutex<Instant>>) -> Self {
        Self { scripted: Some(Scripted::At(Arc::clone(at))) }
    }

    /// The clock of a host that was suspended for this long.
    #[cfg(test)]
    pub(crate) fn suspended(suspended: &Arc<Mutex<Duration>>) -> Self {
        Self { scripted: Some(Scripted::Suspended(Arc::clone(suspended))) }
    }
}

/// How long the host was suspended: the difference of two clocks of the system, of which one counts suspensions.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
mod suspension {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    /// The clock that counts suspensions. Apple's clock of this name does, and `Instant` uses another one there.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const COUNTS_ALL: ClockId = ClockId::Boottime;
    #[cfg(target_vendor = "apple")]
    const COUNTS_ALL: ClockId = ClockId::Monotonic;

    /// Shorter differences may only be due to the time between reading the two clocks.
    const NOTICEABLE: Duration = Duration::from_millis(100);

    /// Both clocks at one time.
    #[derive(Clone, Copy)]
    struct Reading {
        awake: Instant,
        all: Duration,
    }

    /// The total since the first call.
    pub(crate) fn total() -> Duration {
        static FIRST: OnceLock<Reading> = OnceLock::new();
        static NOTICED_MS: AtomicU64 = AtomicU64::new(0);
        let first = *FIRST.get_or_init(read);
        let now = read();
        let all = now.all.saturating_sub(first.all);
        let suspended = all.saturating_sub(now.awake.saturating_duration_since(first.awake));
        let noticed_ms = NOTICED_MS.load(Ordering::Relaxed);
        // Without a suspension the difference is the same to the nanosecond, except for the time between the readings.
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
        // The thread did not run between the two readings. Read once more; a second error only costs a needless
        // renewal.
        reading().0
    }
}

/// `Instant` counts suspensions on other systems (Windows), or their clocks are not known here.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod suspension {
    pub(crate) fn total() -> std::time::Duration {
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
