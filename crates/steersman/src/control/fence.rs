//! The check between a queue and its workers: whether this replica may begin a key now, and when it must stop.
//!
//! A controller uses only this interface; sharding and leader election implement it. A controller without a fence works
//! on every key.

use futures::future::BoxFuture;

use crate::control::queue::{Priority, WorkQueue};
use crate::shared::key::ObjectKey;

/// Decides which keys this replica works on.
pub(crate) trait Fence: Send + Sync {
    /// Asks for the right to work on `key`. `None`: another replica has it now, and gets the same event.
    fn begin(&self, key: &ObjectKey) -> Option<Box<dyn Pass>>;

    /// Registers a queue and the source of its keys. A fence that moves keys between replicas lets only its own keys
    /// into the queue, drops those that it loses, and adds those of `source` that it gains.
    fn feed(&self, queue: &WorkQueue<ObjectKey>, source: KeySource);
}

/// The right to work on one key, released when it is dropped.
pub(crate) trait Pass: Send + Sync {
    /// Completes with the reason when the work must end at once.
    fn revoked(&self) -> BoxFuture<'_, &'static str>;
}

/// Offers the keys of all cached objects to a refill. Runs predicates and maps of the user, so it may take long, and
/// must not delay anything urgent.
pub(crate) type KeySource = Box<dyn Fn(&Refill<'_>) + Send + Sync>;

/// Adds the keys that a replica has gained to a queue.
pub(crate) struct Refill<'a> {
    queue: &'a WorkQueue<ObjectKey>,
    is_gained: &'a dyn Fn(&ObjectKey) -> bool,
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Refill<'a> {
    pub(crate) fn new(
        queue: &'a WorkQueue<ObjectKey>,
        is_gained: &'a dyn Fn(&ObjectKey) -> bool,
        is_over: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { queue, is_gained, is_over }
    }

    /// Whether `key` was gained. Asked before a predicate where possible, it saves the call.
    pub(crate) fn wants(&self, key: &ObjectKey) -> bool {
        (self.is_gained)(key)
    }

    /// Whether no more keys are needed, because the replica has left.
    pub(crate) fn is_over(&self) -> bool {
        (self.is_over)()
    }

    /// Adds `key` at once if it was gained, since finding later keys may take long.
    pub(crate) fn offer(&self, key: ObjectKey) {
        if self.wants(&key) {
            self.queue.add_with(key, Priority::Low);
        }
    }
}
