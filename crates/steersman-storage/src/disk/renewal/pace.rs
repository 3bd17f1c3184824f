//! Bounds how often the file of an open store is written anew.
//!
//! Damage that is found for the first time is mended at once: one look through the file finds all of it. If more is found soon after
//! that, the disk is failing, and each renewal reads and writes everything once more. So the next one waits several times as long as the
//! last one took, and twice as long each time: whatever the size of the file, the disk is busy with renewals for at most a fifth of the
//! time, and once the wait has reached its maximum with at most two a minute. The wait is at most half of the minute that
//! a request has, because writes, and reads of what is not in memory, wait as well instead of failing.

use std::time::Duration;
use tokio::time::Instant;

/// The first wait is this many times as long as the renewal before it took.
const REST_TIMES: u32 = 4;
/// The shortest wait, for files that are written anew within a moment.
const REST_MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const REST_MAX: Duration = Duration::from_secs(30);

/// The time, and waiting for it on a thread.
pub(in crate::disk) trait Clock: Send + Sync {
    fn now(&self) -> Instant;

    /// Waits until a time, or until `is_over`, which is asked again whenever the thread is unparked.
    fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool);
}

/// The clock of the system.
pub(in crate::disk) struct System;

impl Clock for System {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool) {
        wait(self, until, is_over);
    }
}

/// Parks the thread until a time of a clock, or until `is_over`.
pub(in crate::disk) fn wait(clock: &dyn Clock, until: Instant, is_over: &dyn Fn() -> bool) {
    while !is_over() {
        let left = until.saturating_duration_since(clock.now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// Decides when the next renewal may begin.
#[derive(Debug, Default)]
pub(in crate::disk) struct Pace {
    /// The number of renewals in a row that had to wait.
    n_waited: u32,
    /// No renewal begins before this.
    next: Option<Instant>,
}

impl Pace {
    /// Begins a renewal. Returns how long it has to wait.
    pub(in crate::disk) fn begin(&mut self, now: Instant) -> Duration {
        let wait = self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        self.n_waited = if wait.is_zero() { 0 } else { self.n_waited.saturating_add(1) };
        wait
    }

    /// Ends a renewal that took some time.
    pub(in crate::disk) fn end(&mut self, took: Duration, now: Instant) {
        let first = took.saturating_mul(REST_TIMES).max(REST_MIN);
        let rest = first.saturating_mul(2_u32.saturating_pow(self.n_waited));
        self.next = Some(now + rest.min(REST_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_in_a_row_wait_for_longer_and_longer_and_a_quiet_time_forgets_them() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        let mut renew = |quiet: u64, took: u64| {
            now += Duration::from_secs(quiet);
            let wait = pace.begin(now);
            now += wait + Duration::from_secs(took);
            pace.end(Duration::from_secs(took), now);
            wait.as_secs()
        };
        let waits: Vec<u64> = (0..8).map(|_| renew(0, 0)).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!((renew(10, 2), renew(30, 2), renew(3, 2), renew(0, 2), renew(0, 9)), (20, 0, 5, 16, 30));
        assert_eq!((renew(31, 1_000), renew(0, 0), renew(0, 0)), (0, 30, 2));
    }
}
