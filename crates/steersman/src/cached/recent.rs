//! The objects lately decoded from bytes: a bounded memory in front of a compact cache.
//!
//! Several small sets, each under a lock of its own; a key belongs to one of them. An entry is good for the very bytes it
//! was decoded from and for no others, so that nobody needs to be told when an object changes.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use crate::cached::packed::Packed;
use crate::delta::DecodeError;
use crate::key::ObjectKey;

/// Entries of one set.
const WAYS: usize = 4;

pub(crate) struct Recent<K> {
    sets: Box<[Mutex<Set<K>>]>,
    hasher: DefaultHashBuilder,
}

type Outcome<K> = Result<Arc<K>, Arc<DecodeError>>;

struct Set<K> {
    entries: [Option<Entry<K>>; WAYS],
    /// Which entry makes room next.
    next: usize,
}

struct Entry<K> {
    key: ObjectKey,
    /// Held, so that its address is not used again for other bytes.
    packed: Packed,
    decoded: Outcome<K>,
}

impl<K> Recent<K> {
    /// Remembers about `entries_max` objects, rounded up to a multiple of [`WAYS`].
    pub(crate) fn new(entries_max: usize) -> Self {
        let sets =
            (0..entries_max.div_ceil(WAYS)).map(|_| Mutex::new(Set { entries: [const { None }; WAYS], next: 0 }));
        Self { sets: sets.collect(), hasher: DefaultHashBuilder::default() }
    }

    /// What came of decoding `packed`, if that is remembered.
    pub(crate) fn find(&self, key: &ObjectKey, packed: &Packed) -> Option<Outcome<K>> {
        let set = self.set(key)?.lock();
        let entry = set.entries.iter().flatten().find(|entry| Packed::ptr_eq(&entry.packed, packed))?;
        Some(entry.decoded.clone())
    }

    /// Remembers what came of decoding `packed`, in place of an older state of the same object, or of another object.
    pub(crate) fn keep(&self, key: &ObjectKey, packed: &Packed, decoded: &Outcome<K>) {
        let Some(set) = self.set(key) else { return };
        let entry = Entry { key: key.clone(), packed: packed.clone(), decoded: decoded.clone() };
        let forgotten = {
            let mut set = set.lock();
            let same = set.entries.iter().position(|known| known.as_ref().is_some_and(|known| known.key == *key));
            let place = same.unwrap_or(set.next);
            if same.is_none() {
                set.next = (place + 1) % WAYS;
            }
            set.entries[place].replace(entry)
        };
        // What may be a large object is freed outside the lock.
        drop(forgotten);
    }

    fn set(&self, key: &ObjectKey) -> Option<&Mutex<Set<K>>> {
        if self.sets.is_empty() {
            return None;
        }
        let hash = usize::try_from(self.hasher.hash_one(key) & u64::from(u32::MAX)).unwrap_or_default();
        self.sets.get(hash % self.sets.len())
    }
}

impl<K> fmt::Debug for Recent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("entries_max", &(self.sets.len() * WAYS)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached::packed::HEADER;
    use crate::wire::meta::Spans;

    fn packed() -> Packed {
        Packed::new(&mut [0; HEADER + 2], &Spans::default())
    }

    fn key(number: usize) -> ObjectKey {
        ObjectKey::cluster(&number.to_string())
    }

    #[test]
    fn only_the_same_bytes_are_remembered() {
        let recent = Recent::new(4);
        let (old, new) = (packed(), packed());
        recent.keep(&key(1), &old, &Ok(Arc::new(1)));
        assert_eq!(*recent.find(&key(1), &old).unwrap().unwrap(), 1);
        assert!(recent.find(&key(1), &new).is_none());
        recent.keep(&key(1), &new, &Ok(Arc::new(2)));
        assert!(recent.find(&key(1), &old).is_none(), "the older state made room");
        assert_eq!(*recent.find(&key(1), &new).unwrap().unwrap(), 2);
    }

    #[test]
    fn no_more_is_held_than_the_bound() {
        let recent = Recent::new(16);
        let decoded = Arc::new(0);
        for number in 0..1_000 {
            recent.keep(&key(number), &packed(), &Ok(Arc::clone(&decoded)));
        }
        assert_eq!(Arc::strong_count(&decoded), 16 + 1);
    }

    #[test]
    fn a_bound_of_none_holds_none() {
        let recent = Recent::new(0);
        let bytes = packed();
        recent.keep(&key(1), &bytes, &Ok(Arc::new(1)));
        assert!(recent.find(&key(1), &bytes).is_none());
    }
}
