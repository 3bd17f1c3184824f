//! What a reconciler does while the caches have not seen what it wrote for a key: the key comes back a moment later.
//!
//! In place of upstream's expectations. The event of the write mostly wakes the key before that.

use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::{Action, ObjectKey};

/// How soon a key comes back whose writes the caches have not seen. What they come to see wakes the key before that; where they are far
/// behind, looking again and again would keep them so.
const RETRY: Duration = Duration::from_millis(50);

/// What a reconciler returns at once when the caches have not seen what it wrote for `key`; `None` when they have.
pub(crate) fn action(written: &ConsistencyStore, key: &ObjectKey) -> Option<Action> {
    written.ensure_ready(key).err().map(|stale| {
        tracing::trace!(key = %key, %stale, "the caches are behind");
        Action::RequeueAfter(RETRY)
    })
}
