//! The state of each key of a queue: a slab of entries, found by key or by place.
//!
//! A key has one entry from its first add until no state is left to keep. The lists of ready keys and the heap of
//! delayed keys go through the entries, so in steady state nothing is allocated.

use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use tokio::time::Instant;

use crate::control::queue::priority::Priority;
use crate::shared::sparse::{is_sparse, release, reuse};

/// No entry: the end of a list, or a key that is not in the heap.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The entries of all keys.
#[derive(Debug)]
pub(super) struct Entries<T> {
    slab: Vec<Entry<T>>,
    free: Vec<u32>,
    /// Places by key. Every place here is an occupied entry.
    places: HashTable<u32>,
    hasher: RandomState,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    /// `None` while the place is free.
    pub(super) key: Option<T>,
    hash: u64,
    pub(super) state: State,
    pub(super) priority: Priority,
    /// Neighbors in the list of ready keys.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// Position in the heap of delayed keys.
    pub(super) heap_at: u32,
    /// Only meaningful while the key is in the heap.
    pub(super) due: Option<Instant>,
    /// The priority that the delayed add set, if it did. Set only while the key is in the heap.
    pub(super) asked: Option<Priority>,
    pub(super) n_failures: u32,
    /// Further failures before this time do not count.
    pub(super) window_end: Option<Instant>,
    /// Since when the key is ready, and since when it is being processed, if the queue is measured.
    pub(super) added: Option<Instant>,
    pub(super) taken: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Neither ready nor being processed; the key may be delayed, or only its failures are kept.
    Idle,
    Processing,
    /// Being processed, and to run once more afterwards.
    ProcessingDirty,
    Ready,
}

impl<T> Entry<T> {
    /// Whether it is in the heap of delayed keys.
    pub(super) fn is_delayed(&self) -> bool {
        self.heap_at != NOWHERE
    }
}

impl<T: Eq + Hash> Entries<T> {
    pub(super) fn new() -> Self {
        Self { slab: Vec::new(), free: Vec::new(), places: HashTable::new(), hasher: RandomState::new() }
    }

    /// The number of keys with an entry.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Every place, free ones included.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<T> {
        0..index_to_place(self.slab.len())
    }

    /// Every entry, free ones included.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.slab.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.slab.iter_mut()
    }

    /// The entry at a place that may have been cut off.
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Entry<T>> {
        self.slab.get_mut(place as usize)
    }

    pub(super) fn find(&self, key: &T) -> Option<u32> {
        self.find_hashed(key, self.hasher.hash_one(key))
    }

    fn find_hashed(&self, key: &T, hash: u64) -> Option<u32> {
        self.places.find(hash, |&place| self[place].key.as_ref() == Some(key)).copied()
    }

    /// The place of `key`, a new one if it has none.
    pub(super) fn place_of(&mut self, key: T) -> u32 {
        let hash = self.hasher.hash_one(&key);
        if let Some(place) = self.find_hashed(&key, hash) {
            return place;
        }
        let entry = Entry {
            key: Some(key),
            hash,
            state: State::Idle,
            priority: Priority::Normal,
            previous: NOWHERE,
            next: NOWHERE,
            heap_at: NOWHERE,
            due: None,
            asked: None,
            n_failures: 0,
            window_end: None,
            added: None,
            taken: None,
        };
        let place = match reuse(&self.slab, &mut self.free) {
            Some(place) => {
                self[place] = entry;
                place
            }
            None => {
                self.slab.push(entry);
                index_to_place(self.slab.len() - 1)
            }
        };
        let slab = &self.slab;
        self.places.insert_unique(hash, place, |&place| slab[place as usize].hash);
        place
    }

    /// Frees the entry unless its key has state to keep.
    pub(super) fn release_if_unused(&mut self, place: u32) {
        let entry = &mut self[place];
        let is_used = entry.state != State::Idle || entry.is_delayed() || entry.n_failures > 0;
        if is_used || entry.key.is_none() {
            return;
        }
        entry.key = None;
        let hash = entry.hash;
        if let Ok(found) = self.places.find_entry(hash, |&other| other == place) {
            found.remove();
        }
        let Self { slab, free, places, .. } = self;
        release(slab, free, place, |entry| entry.key.is_none());
        if is_sparse(places.len(), places.capacity()) {
            places.shrink_to(2 * places.len(), |&place| slab[place as usize].hash);
        }
    }
}

impl<T> Index<u32> for Entries<T> {
    type Output = Entry<T>;

    fn index(&self, place: u32) -> &Entry<T> {
        &self.slab[place as usize]
    }
}

impl<T> IndexMut<u32> for Entries<T> {
    fn index_mut(&mut self, place: u32) -> &mut Entry<T> {
        &mut self.slab[place as usize]
    }
}

pub(super) fn index_to_place(index: usize) -> u32 {
    u32::try_from(index).expect("invariant: four billion keys do not fit into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_were_many_give_their_memory_back() {
        let mut entries = Entries::new();
        let places: Vec<u32> = (0..5_000).map(|key| entries.place_of(key)).collect();
        for place in &places[10..] {
            entries.release_if_unused(*place);
        }
        let room = entries.slab.capacity().max(entries.places.capacity());
        assert!(room < 2_000, "there is room for {room} keys and there are 10");
        assert_eq!((0..10).filter(|key| entries.find(key) == Some(places[*key])).count(), 10);
        let again: Vec<u32> = (10..100).map(|key| entries.place_of(key)).collect();
        assert_eq!((entries.len(), again.iter().collect::<std::collections::BTreeSet<_>>().len()), (100, 90));
    }
}
