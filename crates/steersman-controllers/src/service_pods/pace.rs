//! How often the endpoints of a Service are written: at once when nothing happened for a while, and once for all that happens shortly
//! after another write. A thousand Pods that become ready within a second cost ten writes and not a thousand.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// The time from one write of a Service's endpoints to the next.
const INTERVAL: Duration = Duration::from_millis(100);
/// With more Services than this, those that are past their interval are forgotten at each write.
const KEYS_MAX: usize = 1024;

/// When Services were written last.
#[derive(Default)]
pub(crate) struct Pace {
    last: Mutex<HashMap<ObjectKey, Instant>>,
}

impl Pace {
    /// How long to wait before this Service is written again.
    pub(crate) fn wait(&self, key: &ObjectKey) -> Option<Duration> {
        let mut last = self.last.lock();
        let left = INTERVAL.checked_sub(last.get(key)?.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            last.remove(key);
        }
        left
    }

    /// The Service has been written.
    pub(crate) fn wrote(&self, key: &ObjectKey) {
        let mut last = self.last.lock();
        if last.len() >= KEYS_MAX {
            last.retain(|_, at| at.elapsed() < INTERVAL);
        }
        last.insert(key.clone(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_write_waits_for_nothing_and_the_next_for_the_interval() {
        let (pace, key) = (Pace::default(), ObjectKey::namespaced("default", "web"));
        assert_eq!(pace.wait(&key), None);
        pace.wrote(&key);
        assert_eq!(pace.wait(&key), Some(INTERVAL));
        assert_eq!(pace.wait(&ObjectKey::namespaced("default", "other")), None);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(pace.wait(&key), None);
        assert!(pace.last.lock().is_empty(), "one that is idle is forgotten");
    }
}
