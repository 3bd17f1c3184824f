//! Moves the keys of slots that come and go: drops the lost ones from a queue, and adds the gained ones.
//!
//! The gained keys are found in the caches, with predicates and maps of the user. These may be slow, block or panic, so
//! this runs on a thread for blocking work, one for each source of keys: the task that renews the member's Lease only
//! records which slots have moved.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::control::fence::{KeySource, Refill};
use crate::control::queue::WorkQueue;
use crate::leadership::shard::gate::{Gate, Moved};
use crate::shared::key::ObjectKey;

/// The wait after a source has failed as a whole.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// One source of keys, and the queue that it feeds.
pub(crate) struct Feed {
    gate: Arc<Gate>,
    queue: WorkQueue<ObjectKey>,
    source: KeySource,
    /// The moves that were not processed yet. Bounded: a set of slots, however often they move.
    moved: Mutex<Moved>,
    news: Notify,
}

impl Feed {
    pub(crate) fn new(gate: Arc<Gate>, queue: WorkQueue<ObjectKey>, source: KeySource) -> Self {
        Self { gate, queue, source, moved: Mutex::default(), news: Notify::new() }
    }

    /// Records that slots have moved. Returns at once.
    pub(crate) fn note(&self, moved: &Moved) {
        self.moved.lock().append(moved);
        self.news.notify_one();
    }

    /// Processes the recorded moves until it is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, the source goes on until it next asks whether anything more is wanted.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.news.notified().await;
            let feed = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || feed.catch_up()).await.is_err() {
                tracing::error!(queue = &*self.queue.name(), "a source of keys panicked; it is asked again");
                tokio::time::sleep(RETRY_WAIT).await;
                self.news.notify_one();
            }
        }
    }

    /// Processes the moves recorded so far.
    pub(crate) fn catch_up(&self) {
        let moved = std::mem::take(&mut *self.moved.lock());
        // The moves are recorded again if the source panics as a whole.
        let mut unfinished = Unfinished { feed: self, moved };
        // Lost keys first. Keys of a slot that was gained again stay: they may have been added since, for objects that
        // are gone by now.
        self.queue.retain(|key| !moved.is_lost(key) || self.gate.holds(key));
        if moved.has_gained() {
            let is_gained = |key: &ObjectKey| moved.is_gained(key);
            let is_over = || self.gate.is_closed();
            (self.source)(&Refill::new(&self.queue, &is_gained, &is_over));
        }
        unfinished.moved = Moved::default();
    }
}

/// Records the unprocessed moves again after a panic.
struct Unfinished<'a> {
    feed: &'a Feed,
    moved: Moved,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let mut moved = self.feed.moved.lock();
        let later = std::mem::replace(&mut *moved, self.moved);
        moved.append(&later);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;
    use crate::control::queue::RateLimiter;
    use crate::leadership::shard::member::Permission;
    use crate::leadership::shard::slots::{Slots, slot_of};

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced("a", &format!("k{number}"))
    }

    fn held(keys: &[ObjectKey]) -> Permission {
        let mut held = Slots::NONE;
        keys.iter().for_each(|key| held.insert(slot_of(key)));
        Permission { held, kept: held, until: Some(Instant::now() + Duration::from_secs(3_600)), term: 1 }
    }

    fn rig(source: impl Fn(&Refill<'_>) + Send + Sync + 'static) -> (Arc<Gate>, WorkQueue<ObjectKey>, Arc<Feed>) {
        let (gate, queue) = (Arc::<Gate>::default(), WorkQueue::new("test", RateLimiter::default()));
        let feed = Arc::new(Feed::new(Arc::clone(&gate), queue.clone(), Box::new(source)));
        (gate, queue, feed)
    }

    fn waiting(queue: &WorkQueue<ObjectKey>) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = std::iter::from_fn(|| {
            let item = queue.get().now_or_never()??;
            Some(item.key().clone())
        })
        .collect();
        keys.sort();
        keys
    }

    #[tokio::test(start_paused = true)]
    async fn gained_keys_are_added_and_lost_ones_dropped_also_when_both_happened_in_between() {
        let (gate, queue, feed) = rig(|refill| (0..3).for_each(|number| refill.offer(key(number))));
        feed.note(&gate.apply(held(&[key(0), key(1)])));
        feed.catch_up();
        assert_eq!(queue.len(), 2);
        // `k0` goes and comes back before the feed runs, `k1` goes, `k2` comes.
        feed.note(&gate.apply(held(&[key(1)])));
        feed.note(&gate.apply(held(&[key(0), key(2)])));
        feed.catch_up();
        assert_eq!(waiting(&queue), [key(0), key(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_came_after_its_slot_had_come_back_stays() {
        // The object is gone by now, so the source does not return its key.
        let (gate, queue, feed) = rig(|_| {});
        feed.note(&gate.apply(held(&[key(0)])));
        feed.note(&gate.apply(held(&[])));
        feed.note(&gate.apply(held(&[key(0)])));
        queue.add(key(0));
        feed.catch_up();
        assert_eq!(waiting(&queue), [key(0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_panics_as_a_whole_is_asked_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let (gate, queue, feed) = rig(move |refill| {
            assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "scripted");
            refill.offer(key(0));
        });
        let running = tokio::spawn(Arc::clone(&feed).run());
        feed.note(&gate.apply(held(&[key(0)])));
        let item = queue.get().await.unwrap();
        assert_eq!((item.key(), calls.load(Ordering::Relaxed)), (&key(0), 2));
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_hears_that_its_member_has_left() {
        let over = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&over);
        let (gate, _, feed) = rig(move |refill| seen.lock().push(refill.is_over()));
        feed.note(&gate.apply(held(&[key(0)])));
        feed.catch_up();
        feed.note(&gate.apply(Permission { term: 2, ..held(&[key(0)]) }));
        gate.close();
        feed.catch_up();
        assert_eq!(*over.lock(), [false, true]);
    }
}
