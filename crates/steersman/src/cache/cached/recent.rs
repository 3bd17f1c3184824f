//! A bounded number of objects lately decoded from bytes, kept alive here although no reader holds them.
//!
//! They are kept in a ring, replaced by the clock algorithm. A new object in a full ring replaces one whose state the
//! cache has replaced, or that was not read since the hand last passed. An object that a reader holds is in memory
//! anyway, so it stays as well.
//!
//! Objects decoded for handlers and indexes are kept in a second ring, which is short where handlers are few: each
//! handler gets an object once, and memory that is reused at once is still in the processor's cache, which saves a
//! third of a decoding. With many handlers, sharing one decoded object between them saves more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::cached::packed::{Outcome, Packed};

/// At most this many entries are looked at for one that may go; then the next one goes.
const LOOKS_MAX: usize = 16;

/// The smallest ring for handlers and indexes: several handlers get the same object at about the same time.
const DELIVERED_LEAST: usize = 16;

/// Entries for each handler. Handlers take turns, each with a batch of objects, and the last one should still find the
/// objects decoded for the first.
const DELIVERED_PER_HANDLER: usize = 8;

/// The largest ring for handlers and indexes, however many handlers exist.
const DELIVERED_MOST: usize = 256;

/// Why an object is decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A handler or an index gets it because it has changed.
    Delivery,
    /// A reader asked for it.
    Read,
}

/// How many decoded objects are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keep {
    AtMost(usize),
    /// A fraction of the objects in the cache, and never fewer than `least`.
    Share {
        divisor: usize,
        least: usize,
    },
}

pub(crate) struct Recent<K> {
    keep: Keep,
    /// The number of objects in the cache.
    n_objects: AtomicUsize,
    /// The number of handlers that get each object.
    n_handlers: AtomicUsize,
    delivered: Mutex<Ring<K>>,
    read: Mutex<Ring<K>>,
}

struct Ring<K> {
    entries: Vec<Entry<K>>,
    /// The entry to look at next.
    hand: usize,
}

struct Entry<K> {
    packed: Packed<K>,
    /// The object to which `packed` has a weak reference.
    decoded: Arc<K>,
}

// === impl Recent ===

impl<K> Recent<K> {
    pub(crate) fn new(keep: Keep) -> Self {
        let (n_objects, n_handlers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { keep, n_objects, n_handlers, delivered: Mutex::default(), read: Mutex::default() }
    }

    /// Sets the number of objects in the cache, which [`Keep::Share`] depends on.
    pub(crate) fn set_objects(&self, n_objects: usize) {
        self.n_objects.store(n_objects, Ordering::Relaxed);
    }

    /// Sets the number of handlers that get each object.
    pub(crate) fn set_handlers(&self, n_handlers: usize) {
        self.n_handlers.store(n_handlers, Ordering::Relaxed);
    }

    /// Keeps the outcome of decoding `packed`, and returns the outcome that all its readers share.
    pub(crate) fn keep(&self, packed: &Packed<K>, outcome: Outcome<K>, purpose: Purpose) -> Outcome<K> {
        let (ring, entries_max) = match purpose {
            Purpose::Delivery => (&self.delivered, self.entries_max().min(self.delivered_max())),
            Purpose::Read => (&self.read, self.entries_max()),
        };
        if entries_max == 0 {
            return outcome;
        }
        if let Some(known) = packed.learn(&outcome) {
            return Ok(known);
        }
        if let Ok(decoded) = &outcome {
            let entry = Entry { packed: packed.clone(), decoded: Arc::clone(decoded) };
            // Entries may be large objects, so they are freed outside the lock.
            let forgotten = ring.lock().put(entry, entries_max);
            forgotten.into_iter().for_each(Entry::forget);
        }
        outcome
    }

    fn delivered_max(&self) -> usize {
        let wanted = self.n_handlers.load(Ordering::Relaxed).saturating_mul(DELIVERED_PER_HANDLER);
        wanted.clamp(DELIVERED_LEAST, DELIVERED_MOST)
    }

    fn entries_max(&self) -> usize {
        match self.keep {
            Keep::AtMost(entries_max) => entries_max,
            Keep::Share { divisor, least } => (self.n_objects.load(Ordering::Relaxed) / divisor.max(1)).max(least),
        }
    }
}

impl<K> fmt::Debug for Recent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("keep", &self.keep).finish_non_exhaustive()
    }
}

// === impl Ring ===

impl<K> Default for Ring<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), hand: 0 }
    }
}

impl<K> Ring<K> {
    /// Adds an entry and returns the entries that it replaced.
    fn put(&mut self, entry: Entry<K>, entries_max: usize) -> Vec<Entry<K>> {
        if self.entries.len() < entries_max {
            self.entries.push(entry);
            return Vec::new();
        }
        // The bound may have become smaller.
        let mut forgotten = self.entries.split_off(entries_max);
        self.hand %= entries_max;
        for _ in 0..LOOKS_MAX {
            if self.entries[self.hand].may_go() {
                break;
            }
            self.hand = (self.hand + 1) % entries_max;
        }
        forgotten.push(std::mem::replace(&mut self.entries[self.hand], entry));
        self.hand = (self.hand + 1) % entries_max;
        forgotten
    }
}

// === impl Entry ===

impl<K> Entry<K> {
    fn may_go(&self) -> bool {
        let was_read = self.packed.take_read_mark();
        let is_held = Arc::strong_count(&self.decoded) > 1;
        self.packed.is_last() || !was_read && !is_held
    }

    fn forget(self) {
        let Self { packed, decoded } = self;
        drop(decoded);
        packed.forget_unheld();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_watch::wire::meta::Spans;

    fn packed() -> Packed<usize> {
        Packed::new("{}", &Spans::default())
    }

    fn is_known(packed: &Packed<usize>) -> bool {
        packed.known().is_some()
    }

    /// Decodes `n_objects` new states, one after the other.
    fn decode(recent: &Recent<usize>, n_objects: usize) -> Vec<Packed<usize>> {
        let all: Vec<_> = (0..n_objects).map(|_| packed()).collect();
        all.iter()
            .enumerate()
            .for_each(|(number, packed)| drop(recent.keep(packed, Ok(Arc::new(number)), Purpose::Read)));
        all
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let recent = Recent::new(Keep::AtMost(16));
        let all = decode(&recent, 1_000);
        assert_eq!(all.iter().filter(|packed| is_known(packed)).count(), 16);
    }

    #[test]
    fn a_share_follows_the_number_of_objects_both_ways() {
        let recent = Recent::new(Keep::Share { divisor: 4, least: 10 });
        let all = decode(&recent, 1_000);
        assert_eq!(all.iter().filter(|packed| is_known(packed)).count(), 10);
        recent.set_objects(400);
        let all = decode(&recent, 1_000);
        assert_eq!(all.iter().filter(|packed| is_known(packed)).count(), 100);
        recent.set_objects(0);
        drop(all);
        let all = decode(&recent, 1);
        assert!(is_known(&all[0]));
        assert_eq!(recent.read.lock().entries.len(), 10);
    }

    #[test]
    fn what_is_read_outlives_what_is_not() {
        let recent = Recent::new(Keep::AtMost(16));
        let read = decode(&recent, 4);
        for _ in 0..100 {
            assert!(read.iter().all(is_known));
            decode(&recent, 4);
        }
        let others = decode(&recent, 100);
        assert!(!others.iter().take(50).any(is_known));
    }

    #[test]
    fn a_state_that_the_cache_has_replaced_goes_first() {
        let recent = Recent::new(Keep::AtMost(2));
        let (current, replaced) = (packed(), packed());
        drop((
            recent.keep(&replaced, Ok(Arc::new(1)), Purpose::Read),
            recent.keep(&current, Ok(Arc::new(2)), Purpose::Read),
        ));
        assert!(is_known(&current) && is_known(&replaced));
        drop(replaced);
        let next = packed();
        drop(recent.keep(&next, Ok(Arc::new(3)), Purpose::Read));
        assert!(is_known(&current));
    }

    #[test]
    fn what_is_delivered_leaves_what_was_read_alone() {
        let recent = Recent::new(Keep::AtMost(20));
        let read = decode(&recent, 20);
        let delivered: Vec<_> = (0..100).map(|_| packed()).collect();
        delivered.iter().for_each(|packed| drop(recent.keep(packed, Ok(Arc::new(0)), Purpose::Delivery)));
        assert_eq!(read.iter().filter(|packed| is_known(packed)).count(), 20);
        assert_eq!(delivered.iter().filter(|packed| is_known(packed)).count(), DELIVERED_LEAST);
    }

    #[test]
    fn the_more_handlers_are_told_the_more_of_what_they_are_told_is_kept() {
        let recent = Recent::new(Keep::AtMost(1_000));
        let delivered = |n_handlers: usize| {
            recent.set_handlers(n_handlers);
            let all: Vec<_> = (0..500).map(|_| packed()).collect();
            all.iter().for_each(|packed| drop(recent.keep(packed, Ok(Arc::new(0)), Purpose::Delivery)));
            all.iter().filter(|packed| is_known(packed)).count()
        };
        assert_eq!([1, 10, 1_000].map(delivered), [DELIVERED_LEAST, 10 * DELIVERED_PER_HANDLER, DELIVERED_MOST]);
        assert_eq!(delivered(1), DELIVERED_LEAST, "handlers that are gone need nothing");
    }

    #[test]
    fn a_bound_of_none_keeps_none() {
        let recent = Recent::new(Keep::AtMost(0));
        let bytes = packed();
        drop(recent.keep(&bytes, Ok(Arc::new(1)), Purpose::Read));
        assert!(!is_known(&bytes));
    }
}
