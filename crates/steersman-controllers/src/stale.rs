//! What a reconciler does while the caches have not seen what it wrote for a key: the key comes back a moment later.
//!
//! In place of upstream's expectations. The event of the write mostly wakes the key before that.

use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::{Action, ObjectKey};

/// How soon a key comes back whose writes the caches have not seen, and how late at most. It comes back after as long as it has waited: what
/// the caches come to see wakes it before that, and where they are far behind, looking again and again would keep them so.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What a reconciler returns at once when the caches have not seen what it wrote for `key`; `None` when they have.
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
