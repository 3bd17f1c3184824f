//! The events that come before a controller works: while its caches fill, and for as long as another replica leads.
//!
//! The caches have all existing objects, so they are read when the wait is over, and none of these events is kept. No
//! cache has deleted objects or previous states, so the keys of an object that was deleted, or that belonged to other
//! keys before, are kept, because the replica that led may have ended before it processed them. At most [`GONE_MAX`] of
//! them are kept. The oldest go first: a leader has had the most time for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::control::fence::{KeySource, Refill};
use crate::control::queue::{Priority, WorkQueue};
use crate::shared::key::ObjectKey;

/// The most keys of deleted objects and previous states that are kept.
const GONE_MAX: usize = 65_536;

/// The wait after a source of keys has panicked as a whole.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The wait before a controller works, and its queue.
pub(crate) struct Standby {
    queue: WorkQueue<ObjectKey>,
    /// `None` once the controller works.
    gone: Mutex<Option<Gone>>,
    is_over: AtomicBool,
    /// The sources of keys of all cached objects.
    sources: Mutex<Vec<KeySource>>,
    /// The controller has ended: no more keys are needed.
    is_stopped: AtomicBool,
}

/// Keys of deleted objects and previous states.
#[derive(Default)]
struct Gone {
    /// The number of each key's last insertion.
    keys: HashMap<ObjectKey, u64>,
    /// The same keys by number, the oldest first.
    order: BTreeMap<u64, ObjectKey>,
    n_kept: u64,
    n_dropped: u64,
}

// === impl Standby ===

impl Standby {
    pub(crate) fn new(queue: WorkQueue<ObjectKey>) -> Self {
        Self {
            queue,
            gone: Mutex::new(Some(Gone::default())),
            is_over: AtomicBool::new(false),
            sources: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Adds a source of the keys of all existing objects.
    pub(crate) fn add_source(&self, source: KeySource) {
        self.sources.lock().push(source);
    }

    /// Whether events go to the queue.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Keeps keys of deleted objects and previous states. False: the controller works by now, so the whole event is for
    /// the queue.
    pub(crate) fn keep(&self, keys: Vec<ObjectKey>) -> bool {
        let mut gone = self.gone.lock();
        let Some(gone) = &mut *gone else { return false };
        keys.into_iter().for_each(|key| gone.keep(key));
        true
    }

    /// Ends the wait: events go to the queue from now on, and so do all keys kept or found in the caches. The caches
    /// are read on a thread for blocking work, because predicates and maps of the user may take long.
    pub(crate) async fn end(self: &Arc<Self>) {
        let Some(gone) = self.gone.lock().take() else { return };
        // The caches are read only after this: later changes are in them, or come as events.
        self.is_over.store(true, Ordering::Release);
        loop {
            let this = Arc::clone(self);
            if tokio::task::spawn_blocking(move || this.ask_caches()).await.is_ok() {
                break;
            }
            tracing::error!(queue = &*self.queue.name(), "a source of keys panicked; it is asked again");
            tokio::time::sleep(RETRY_WAIT).await;
        }
        if gone.n_dropped > 0 {
            tracing::warn!(
                queue = &*self.queue.name(),
                n_dropped = gone.n_dropped,
                "more was deleted while this replica stood by than it keeps; the oldest are left to the finalizers"
            );
        }
        for key in gone.order.into_values() {
            self.queue.add_with(key, Priority::Low);
        }
    }

    fn ask_caches(&self) {
        let is_admitted = |key: &ObjectKey| self.queue.admits(key);
        let is_over = || self.is_stopped.load(Ordering::Relaxed);
        for source in &*self.sources.lock() {
            source(&Refill::new(&self.queue, &is_admitted, &is_over));
        }
    }

    /// The controller has ended.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

// === impl Gone ===

impl Gone {
    fn keep(&mut self, key: ObjectKey) {
        self.n_kept += 1;
        if let Some(before) = self.keys.insert(key.clone(), self.n_kept) {
            self.order.remove(&before);
        }
        self.order.insert(self.n_kept, key);
        if self.order.len() > GONE_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.keys.remove(&oldest);
            self.n_dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::queue::RateLimiter;

    #[tokio::test(start_paused = true)]
    async fn of_what_is_gone_so_many_keys_are_kept_and_the_oldest_dropped() {
        let standby = Arc::new(Standby::new(WorkQueue::new("test", RateLimiter::default())));
        let key = |number: usize| ObjectKey::cluster(&number.to_string());
        for number in 0..GONE_MAX + 10 {
            assert!(standby.keep(vec![key(number), key(number)]));
        }
        assert_eq!(standby.queue().len(), 0, "the queue holds nothing that nobody works on");
        standby.end().await;
        assert_eq!(standby.queue().len(), GONE_MAX);
        assert_eq!(standby.queue().get().await.unwrap().key(), &key(10));
        assert!(!standby.keep(vec![key(0)]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_again_is_the_newest() {
        let standby = Arc::new(Standby::new(WorkQueue::new("test", RateLimiter::default())));
        let key = |number: usize| ObjectKey::cluster(&number.to_string());
        for number in 0..GONE_MAX {
            standby.keep(vec![key(number)]);
        }
        standby.keep(vec![key(0), key(GONE_MAX)]);
        standby.end().await;
        let first = standby.queue().get().await.unwrap();
        assert_eq!(first.key(), &key(2), "1 was dropped, not 0");
    }
}
