//! How often something that many events are about is computed anew: at once when nothing happened for a while, and once for all that
//! happens shortly after. A thousand Pods that become ready within a second cost ten writes of their Service and not a thousand.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// The least and the greatest time from one round to the next.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A round that takes long is repeated less often: one key takes at most this part of the time, unless a round takes longer than this part
/// of the greatest interval.
const REST: u32 = 5;
/// With more keys than this, those that may run again are forgotten at each round.
const KEYS_MAX: usize = 1024;

/// When keys may run again.
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

    /// The key has run since a time.
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
