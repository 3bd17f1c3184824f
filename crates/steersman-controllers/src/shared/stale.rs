//! Delays a reconcile while the caches lack writes that were made for its key.
//!
//! Used in place of upstream's expectations. The event of the write usually wakes the key earlier.

use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::{Action, ObjectKey};

/// The shortest and the longest delay. A key is delayed by as long as it has waited: the event of the write wakes it
/// earlier, and when the caches lag far behind, frequent reconciles would keep them so.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The action for a reconciler to return at once if the caches lack a write that was made for `key`; `None` if they
/// have all.
pub(crate) fn action(written: &ConsistencyStore, key: &ObjectKey) -> Option<Action> {
    written.ensure_ready(key).err().map(|stale| {
        tracing::trace!(key = %key, %stale, "the caches are behind");
        Action::RequeueAfter(retry_after(stale.waited()))
    })
}

fn retry_after(waited: Duration) -> Duration {
    waited.clamp(RETRY.0, RETRY.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_whose_caches_stand_still_is_looked_at_once_a_second_in_the_end() {
        let (mut waited, mut n_looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(60) {
            waited += retry_after(waited);
            n_looks += 1;
        }
        assert!((60..70).contains(&n_looks), "{n_looks}");
        assert_eq!((retry_after(Duration::ZERO), retry_after(Duration::from_secs(600))), RETRY);
    }
}
