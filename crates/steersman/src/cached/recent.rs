//! The objects lately decoded from bytes: what keeps them alive though nobody holds them.
//!
//! They stand in a ring. Once it is full, a new one takes the place of one that was not read since the hand last passed, of
//! a state that the cache has replaced before any other. An object that a reader holds costs nothing more here, so it stays as well.
//!
//! What handlers and indexes are given goes through a ring of its own, which is short where few are told: they see every object once,
//! and memory that is used again at once is still in the processor's cache, which saves a third of a decoding. With many handlers,
//! that they need not each decode an object saves more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cached::packed::{Outcome, Packed};

/// So many entries are looked at for one that may go; then the next one goes.
const LOOKS_MAX: usize = 16;

/// So many of those that handlers and indexes were given, at least: several handlers are told of the same object at about the same time.
const DELIVERED_LEAST: usize = 16;

/// So many for each handler. They take their turns, a batch of objects each, and the last is to find what the first was given.
const DELIVERED_PER_HANDLER: usize = 8;

/// So many however many handlers there are.
const DELIVERED_MOST: usize = 256;

/// What an object is decoded for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A handler or an index is given it because it has changed.
    Delivery,
    /// Somebody asked for it.
    Read,
}

/// How many decoded objects are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keep {
    AtMost(usize),
    /// A part of those that exist, and never fewer than some.
    Share {
        divisor: usize,
        least: usize,
    },
}

pub(crate) struct Recent<K> {
    keep: Keep,
    /// How many objects exist.
    n_objects: AtomicUsize,
    /// How many handlers are told of each.
    n_handlers: AtomicUsize,
    delivered: Mutex<Ring<K>>,
    read: Mutex<Ring<K>>,
}

struct Ring<K> {
    entries: Vec<Entry<K>>,
    /// Which entry is looked at next.
    hand: usize,
}

struct Entry<K> {
    packed: Packed<K>,
    /// What `packed` knows weakly.
    decoded: Arc<K>,
}

// === impl Recent ===

impl<K> Recent<K> {
    pub(crate) fn new(keep: Keep) -> Self {
        let (n_objects, n_handlers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { keep, n_objects, n_handlers, delivered: Mutex::default(), read: Mutex::default() }
    }

    /// Says how many objects exist, of which some are kept decoded.
    pub(crate) fn set_objects(&self, n_objects: usize) {
        self.n_objects.store(n_objects, Ordering::Relaxed);
    }

    /// Says how many handlers are told of each object.
    pub(crate) fn set_handlers(&self, n_handlers: usize) {
        self.n_handlers.store(n_handlers, Ordering::Relaxed);
    }

    /// Remembers what came of decoding `packed`, and returns what all its readers share.
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
            // What may be large objects is freed outside the lock.
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
    /// Adds an entry and returns those that made room.
    fn put(&mut self, entry: Entry<K>, entries_max: usize) -> Vec<Entry<K>> {
        if self.entries.len() < entries_max {
            self.entries.push(entry);
            return Vec::new();
        }
        // The bound may have fallen.
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
    use crate::wire::meta::Spans;

    fn packed() -> Packed<usize> {
        Packed::new("{}", &Spans::default())
    }

    fn is_known(packed: &Packed<usize>) -> bool {
        packed.known().is_some()
    }

    /// New states of as many objects, decoded one after the other.
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
