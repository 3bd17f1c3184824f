//! Limits how often a key with many events is reconciled: at once after a quiet time, and then once for all events of a
//! short period. A thousand Pods that become ready within a second cause ten writes of their Service and not a
//! thousand.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// The shortest and the longest time from one run to the next.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A run that takes long is repeated less often: one key takes at most this fraction of the time, unless a run takes
/// longer than this fraction of the longest interval.
const REST: u32 = 5;
/// Beyond this number of keys, those that may run again are dropped at each run.
const KEYS_MAX: usize = 1024;

/// The times at which keys may run again.
#[derive(Default)]
pub(crate) struct Pace {
    next: Mutex<HashMap<ObjectKey, Instant>>,
}

impl Pace {
    /// How long to wait before this key runs again.
    pub(crate) fn wait(&self, key: &ObjectKey) -> Option<Duration> {
        let mut next = self.next.lock();
        let left = next.get(key)?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            next.remove(key);
        }
        (!left.is_zero()).then_some(left)
    }

    /// Records that the key has run since this time.
    pub(crate) fn ran(&self, key: &ObjectKey, since: Instant) {
        let mut next = self.next.lock();
        let now = Instant::now();
        if next.len() >= KEYS_MAX {
            next.retain(|_, at| *at > now);
        }
        let interval = now.saturating_duration_since(since).saturating_mul(REST).clamp(INTERVAL.0, INTERVAL.1);
        next.insert(key.clone(), now + interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_round_waits_for_nothing_and_the_next_for_the_interval() {
        let (pace, key) = (Pace::default(), ObjectKey::namespaced("default", "web"));
        assert_eq!(pace.wait(&key), None);
        pace.ran(&key, Instant::now());
        assert_eq!(pace.wait(&key), Some(INTERVAL.0));
        assert_eq!(pace.wait(&ObjectKey::namespaced("default", "other")), None);
        tokio::time::advance(INTERVAL.0).await;
        assert_eq!(pace.wait(&key), None);
        assert!(pace.next.lock().is_empty(), "one that is idle is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_round_is_repeated_less_often() {
        let (pace, key) = (Pace::default(), ObjectKey::namespaced("default", "web"));
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(60)).await;
        pace.ran(&key, began);
        assert_eq!(pace.wait(&key), Some(Duration::from_millis(300)));
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        pace.ran(&key, began);
        assert_eq!(pace.wait(&key), Some(Duration::from_secs(10)), "a sixth of the time is work");
        tokio::time::advance(Duration::from_secs(60)).await;
        pace.ran(&key, began);
        assert_eq!(pace.wait(&key), Some(INTERVAL.1));
    }
}
