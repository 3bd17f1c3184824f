//! What stands between a queue and its workers: whether this replica may begin a key now, and when it must stop.
//!
//! A controller knows only this interface; sharding and leader election implement it. A controller without a fence works
//! on every key.

use futures::future::BoxFuture;

use crate::key::ObjectKey;
use crate::queue::{Priority, WorkQueue};

/// Decides which keys this replica works on.
pub(crate) trait Fence: Send + Sync {
    /// Asks for the right to work on `key`. `None`: it is not ours now, and whoever has it hears of it by itself.
    fn begin(&self, key: &ObjectKey) -> Option<Box<dyn Pass>>;

    /// Takes note of a queue and of what is known to belong into it. A fence whose keys change hands lets only its own
    /// into the queue, drops those that it loses, and adds those of `source` that it gains.
    fn feed(&self, queue: &WorkQueue<ObjectKey>, source: KeySource);
}

/// The right to work on one key, given back when it is dropped.
pub(crate) trait Pass: Send + Sync {
    /// Completes when the work must end at once, and says why.
    fn revoked(&self) -> BoxFuture<'_, &'static str>;
}

/// Offers every key that a cache gives to a refill. Runs predicates and maps of the user, so it may take long, and its
/// caller must not wait for it with anything urgent.
pub(crate) type KeySource = Box<dyn Fn(&Refill<'_>) + Send + Sync>;

/// Adds those keys to a queue that a replica has gained.
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

    /// Whether `key` is to be offered; where that can be told before a predicate is asked, it saves the call.
    pub(crate) fn wants(&self, key: &ObjectKey) -> bool {
        (self.is_gained)(key)
    }

    /// Whether nothing more is wanted, because the replica has left.
    pub(crate) fn is_over(&self) -> bool {
        (self.is_over)()
    }

    /// Adds `key` if it was gained. At once: keys that are found later may take their time.
    pub(crate) fn offer(&self, key: ObjectKey) {
        if self.wants(&key) {
            self.queue.add_with(key, Priority::Low);
        }
    }
}
