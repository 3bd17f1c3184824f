//! The work queue: fair, deduplicating, delayed and rate-limited; the only home of retry.
//!
//! A key that is added while it waits runs once; added while it is processed, it runs once more afterwards; it is never
//! processed twice at the same time. The rules are in `core`, a state machine without a clock; this file is the shell
//! around it: a lock, a notification, and guards whose drop is Done. No task runs behind a queue: a worker that waits
//! in [`WorkQueue::get`] also waits for the next delayed key.

mod core;
mod delayed;
mod entries;
mod limiter;
mod priority;
mod ready;
mod report;
mod requeue;

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::handler::{Event, EventHandler};
use crate::control::queue::core::{Core, Taken, Wake};
use crate::control::queue::report::Report;
use crate::shared::chain::Chain;
use crate::shared::clock;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

pub use crate::control::queue::limiter::RateLimiter;
pub use crate::control::queue::priority::Priority;
#[cfg(feature = "metrics")]
pub(crate) use crate::control::queue::report::Report as QueueReport;
pub use crate::control::queue::report::Stats;
pub use crate::control::queue::requeue::Requeue;

/// A queue of keys for a set of workers. Clones share one queue.
///
/// Bounded by the number of distinct keys: each has at most one place, however often it is added. Keys whose retries
/// failed and that were never forgotten keep a small entry.
pub struct WorkQueue<T: Key = ObjectKey> {
    shared: Arc<Shared<T>>,
}

/// A type that a queue can hold. Implemented for every suitable type.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// A key that is being processed. Dropping it is Done: the key may then be given to a worker again.
///
/// Report the outcome with [`Item::forget`], [`Item::retry`] or [`Item::retry_after`]; a bare drop leaves the count of
/// failures unchanged.
#[must_use = "dropping an item says that its processing is over"]
pub struct Item<T: Key = ObjectKey> {
    queue: WorkQueue<T>,
    key: T,
    place: u32,
    priority: Priority,
}

/// A handler of events that adds the key of every object to a queue; see [`WorkQueue::enqueuer`].
#[derive(Clone, Debug)]
pub struct Enqueuer {
    queue: WorkQueue<ObjectKey>,
}

/// Whether a key may be added.
type Admits<T> = dyn Fn(&T) -> bool + Send + Sync;

/// A queue of any type of keys, for metrics.
pub(crate) trait Measured: Send + Sync {
    /// The queue's name, and its values while it is measured.
    fn report(&self) -> (Arc<str>, Option<Report>);
}

struct Shared<T> {
    name: Mutex<Arc<str>>,
    core: Mutex<Core<T>>,
    /// The generator of jitter. Never locked together with `core`.
    jitter: Mutex<StdRng>,
    /// Keys that this function rejects are not added. It is not called for keys that are being processed.
    admits: OnceLock<Box<Admits<T>>>,
    /// Notifies one worker for every key that becomes ready, and all when the next delayed key is due earlier than before.
    ready: Notify,
    /// Notified when a closed queue is empty.
    drained: Notify,
}

// === impl WorkQueue ===

impl<T: Key> WorkQueue<T> {
    /// An empty queue. The name is for logs and metrics.
    pub fn new(name: &str, limiter: RateLimiter) -> Self {
        let shared = Shared {
            name: Mutex::new(name.into()),
            core: Mutex::new(Core::new(limiter)),
            jitter: Mutex::new(StdRng::seed_from_u64(rand::random())),
            admits: OnceLock::new(),
            ready: Notify::new(),
            drained: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The name given at the start.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.shared.name.lock())
    }

    /// Adds `key`, unless it waits already. Consumes a delayed add of the same key: it runs now instead.
    ///
    /// After a shutdown this adds nothing, nor do the other methods that add.
    pub fn add(&self, key: T) {
        self.add_with(key, Priority::Normal);
    }

    /// Adds `key` with a priority. A key that waits already rises to it, and never falls.
    pub fn add_with(&self, key: T, priority: Priority) {
        if !self.admits(&key) {
            return;
        }
        let wake = self.shared.core().add(key, priority);
        self.wake(wake);
    }

    /// Adds `key` once `delay` has passed. A key has one delayed add, the earliest; a key that is ready has none.
    pub fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.add_delayed(key, delay, None);
    }

    /// As [`WorkQueue::add_after`], with the priority that the key gets when the delay is over. If something else makes
    /// the key run sooner, it runs with that priority at least.
    pub fn add_after_with(&self, key: T, delay: Duration, priority: Priority) {
        if delay.is_zero() {
            return self.add_with(key, priority);
        }
        self.add_delayed(key, delay, Some(priority));
    }

    fn add_delayed(&self, key: T, delay: Duration, priority: Option<Priority>) {
        if !self.admits(&key) {
            return;
        }
        let due = clock::after(Instant::now(), delay);
        let wake = self.shared.core().add_at(key, due, priority);
        self.wake(wake);
    }

    /// Counts a failure of `key` and adds it when the rate limiter allows. Returns the wait.
    ///
    /// A failure counts once per backoff window: further ones before the window has passed neither count nor lengthen
    /// it, however many events make the key run in between.
    pub fn add_rate_limited(&self, key: T) -> Duration {
        if !self.admits(&key) {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let (due, wake) = self.shared.core().fail_key(key, now);
        self.wake(wake);
        due.saturating_duration_since(now)
    }

    /// Seeds the generator for [`Requeue::jittered`], so that a test draws the same values again. Without this, each
    /// queue draws different values.
    pub fn seed_jitter(&self, seed: u64) {
        *self.shared.jitter.lock() = StdRng::seed_from_u64(seed);
    }

    /// Forgets the failures of `key`: the next one is its first. A delayed add stays.
    pub fn forget(&self, key: &T) {
        self.shared.core().forget_key(key);
    }

    /// The number of failures of `key` that count at present.
    pub fn n_requeues(&self, key: &T) -> u32 {
        self.shared.core().n_failures(key)
    }

    /// The number of keys that are ready to be taken.
    pub fn len(&self) -> usize {
        self.stats().depth
    }

    /// Whether no key is ready to be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of keys in the queue, and counts of its work so far.
    pub fn stats(&self) -> Stats {
        self.shared.core().stats()
    }

    /// Takes the next key, waiting for one. `None`: the queue was shut down and has nothing ready.
    ///
    /// Higher priorities first, but none waits for ever; within a priority, first come, first served.
    ///
    /// # Cancel safety
    /// A cancelled call has taken nothing, and its wake-up goes to another waiter.
    pub async fn get(&self) -> Option<Item<T>> {
        // Yields now and then, even if the queue is never empty. Nothing has been taken yet.
        tokio::task::consume_budget().await;
        if let Taken::Key(key, place, priority) = self.shared.take() {
            return Some(self.item(key, place, priority));
        }
        loop {
            let mut rung = pin!(self.shared.ready.notified());
            // Registered before the queue is read, so that a key added in between ends the wait.
            rung.as_mut().enable();
            let next_due = match self.shared.take() {
                Taken::Closed => return None,
                Taken::Empty { next_due } => next_due,
                Taken::Key(key, place, priority) => return Some(self.item(key, place, priority)),
            };
            match next_due {
                None => rung.await,
                Some(due) => {
                    // Both arms only wait.
                    tokio::select! {
                        () = rung => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Accepts no more keys and drops the delayed ones. Keys that are ready are still given out; then workers get
    /// `None`.
    pub fn shutdown(&self) {
        self.shared.core().close();
        self.ring_closed();
    }

    /// As [`WorkQueue::shutdown`], and drops the keys that are ready too.
    pub fn shutdown_now(&self) {
        {
            let mut core = self.shared.core();
            core.close();
            core.drop_ready();
        }
        self.ring_closed();
    }

    /// As [`WorkQueue::shutdown`], and waits until everything ready has been processed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the queue stays shut down.
    pub async fn shutdown_with_drain(&self) {
        self.shutdown();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.core().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// From now on, keys that `admits` rejects are not added. Set once.
    pub(crate) fn admit_only(&self, admits: impl Fn(&T) -> bool + Send + Sync + 'static) {
        // An error means that another source of keys of the same controller has set it already.
        drop(self.shared.admits.set(Box::new(admits)));
    }

    /// Whether `key` may be added.
    pub(crate) fn admits(&self, key: &T) -> bool {
        self.shared.admits.get().is_none_or(|admits| admits(key))
    }

    /// Drops the keys that `keep` rejects, ready or delayed, and forgets their failures. Keys that are being processed
    /// are left to their workers, and do not run once more.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.shared.core.lock().retain(keep);
    }

    /// The keys that are being processed.
    pub(crate) fn processing(&self) -> Vec<T> {
        self.shared.core.lock().processing()
    }

    /// Starts measuring; the values can be read for as long as the queue lives.
    pub(crate) fn measure(&self) -> Weak<dyn Measured> {
        self.shared.core.lock().measure(Instant::now());
        let shared: Arc<dyn Measured> = Arc::<Shared<T>>::clone(&self.shared);
        Arc::downgrade(&shared)
    }

    pub(crate) fn set_name(&self, name: &str) {
        *self.shared.name.lock() = name.into();
    }

    pub(crate) fn set_limiter(&self, limiter: RateLimiter) {
        self.shared.core().set_limiter(limiter);
    }

    fn item(&self, key: T, place: u32, priority: Priority) -> Item<T> {
        Item { queue: self.clone(), key, place, priority }
    }

    fn wake(&self, wake: Wake) {
        match wake {
            Wake::All => self.shared.ready.notify_waiters(),
            Wake::Nobody => {}
            Wake::One => self.shared.ready.notify_one(),
        }
    }

    fn ring_closed(&self) {
        self.shared.ready.notify_waiters();
        self.shared.drained.notify_waiters();
    }
}

impl WorkQueue<ObjectKey> {
    /// A handler of events that adds the key of every object that it gets an event about. Objects of the initial state,
    /// and those that a resync repeats, are added with low priority.
    pub fn enqueuer(&self) -> Enqueuer {
        Enqueuer { queue: self.clone() }
    }
}

impl<T: Key> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Key> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}

// === impl Shared ===

impl<T: Key> Shared<T> {
    /// Locks the rules, and sets their time if they are measured.
    fn core(&self) -> MutexGuard<'_, Core<T>> {
        let mut core = self.core.lock();
        if core.is_measured() {
            core.set_now(Instant::now());
        }
        core
    }

    fn take(&self) -> Taken<T> {
        let mut core = self.core.lock();
        // Reading the clock costs more than the rest; only delayed keys and metrics need it.
        let now = (core.has_delayed() || core.is_measured()).then(Instant::now);
        if let Some(now) = now {
            core.set_now(now);
        }
        core.take(now)
    }
}

impl<T: Key> Measured for Shared<T> {
    fn report(&self) -> (Arc<str>, Option<Report>) {
        let report = self.core().report();
        (Arc::clone(&self.name.lock()), report)
    }
}

// === impl Item ===

impl<T: Key> Item<T> {
    /// The key to process.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The priority with which it was taken.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The number of failures of this key that count at present.
    pub fn n_requeues(&self) -> u32 {
        self.queue.shared.core().n_failures_at(self.place)
    }

    /// Reports success: the failures of the key are forgotten.
    pub fn forget(self) {
        self.queue.shared.core().forget_at(self.place);
    }

    /// Reports a failure: counts it, logs `error` and adds the key again when the rate limiter allows. Returns the
    /// wait.
    pub fn retry<E: Error>(self, error: E) -> Duration {
        let wait = self.fail();
        let error = Chain(&error).to_string();
        tracing::warn!(queue = &*self.queue.name(), key = ?self.key, ?wait, error, "processing failed, will retry");
        wait
    }

    /// Reports success; the key runs again after `delay` even if nothing happens.
    pub fn retry_after(self, delay: Duration) {
        self.requeue(Requeue::after(delay));
    }

    /// Reports success; the key runs again according to `requeue` even if nothing happens.
    pub fn requeue(self, requeue: Requeue) {
        let now = Instant::now();
        // Drawn before the match, whose scrutinee would keep the generator locked to its end.
        let delay = requeue.delay(&mut self.queue.shared.jitter.lock());
        let wake = match delay {
            None => self.queue.shared.core().fail_at(self.place, now, Duration::ZERO, requeue.priority).1,
            Some(delay) => {
                let mut core = self.queue.shared.core();
                core.forget_at(self.place);
                core.add_at(self.key.clone(), clock::after(now, delay), requeue.priority)
            }
        };
        self.queue.wake(wake);
    }

    /// As [`Item::retry`] without the log line.
    pub(crate) fn fail(&self) -> Duration {
        self.fail_for(Duration::ZERO)
    }

    /// As [`Item::retry`] without the log line, and with a wait of at least `wait_min`.
    pub(crate) fn fail_for(&self, wait_min: Duration) -> Duration {
        let now = Instant::now();
        let (due, wake) = self.queue.shared.core().fail_at(self.place, now, wait_min, None);
        self.queue.wake(wake);
        due.saturating_duration_since(now)
    }
}

impl<T: Key> Drop for Item<T> {
    fn drop(&mut self) {
        let (wake, is_drained) = {
            let mut core = self.queue.shared.core();
            let wake = core.done(self.place);
            (wake, core.is_drained())
        };
        self.queue.wake(wake);
        if is_drained {
            self.queue.shared.drained.notify_waiters();
        }
    }
}

impl<T: Key> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("key", &self.key).finish_non_exhaustive()
    }
}

// === impl Enqueuer ===

impl<K: CachedResource> EventHandler<K> for Enqueuer {
    /// Only the key is needed: nothing is decoded.
    fn on_event(&mut self, event: &Event<'_, K>) {
        let Some(key) = event.key() else { return };
        self.queue.add_with(key.clone(), Priority::of(event.kind()));
    }
}

#[cfg(test)]
mod tests;
