//! Which entry of the log is each key's current one. In memory; one scan of the log makes it.
//!
//! A key is known by two hashes of it, each under a random key of this process: 24 bytes for a key, however long it is. Two keys
//! of a store with a billion of them have both hashes in common once in 10^20 stores, and nobody outside can look for such keys.

use crate::disk::format::{self, COLLECTED, COMPACTED, EVENTS, META, Packed, Parts, Place, VERSION};
use crate::disk::unreadable;
use crate::kv::{Entry, Error, Snapshot};
use crate::parallel;
use bytes::Bytes;
use hashbrown::HashTable;
use redb::{Database, ReadableDatabase};
use std::hash::{BuildHasher, RandomState};
use steersman_machinery::Revision;

#[derive(Debug)]
pub(super) struct Index {
    /// History up to here is removed from the file.
    collected: Revision,
    /// History up to here may be removed.
    compacted: Revision,
    current: HashTable<Slot>,
    hashers: [RandomState; 2],
    revision: Revision,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hashes: [u64; 2],
    place: Packed,
}

/// What the keys hold at one revision, as it is in the file.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// While the log is scanned, ascending by place; history included.
    entries: Vec<StoredEntry>,
    revision: Revision,
}

#[derive(Debug)]
struct StoredEntry {
    /// Empty once it turned out to be history.
    bytes: Box<[u8]>,
    place: Packed,
}

/// What a scan of the log finds.
pub(super) struct Scan {
    pub(super) index: Index,
    /// Of a file of format 1: all that is not current. Deletions are behind what they delete.
    pub(super) superseded: Vec<Place>,
    pub(super) stored: Stored,
}

/// Reads the whole log once.
pub(super) fn scan(database: &Database) -> Result<Scan, Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let meta = transaction.open_table(META).map_err(unreadable)?;
    let number = |name| Ok(meta.get(name).map_err(unreadable)?.map_or(0, |number| number.value()));
    // The newest entries may have been compacted away; the counter does not go back.
    let compacted = Revision(number(COMPACTED)?);
    let is_old = number(VERSION)? == format::FORMAT_OLD;
    let mut index = Index {
        collected: Revision(number(COLLECTED)?),
        compacted,
        current: HashTable::new(),
        hashers: [RandomState::new(), RandomState::new()],
        revision: compacted,
    };
    let mut superseded = Vec::new();
    let mut stored = Stored::default();
    let events = transaction.open_table(EVENTS).map_err(unreadable)?;
    for entry in events.range::<Place>(..).map_err(unreadable)? {
        let (place, bytes) = entry.map_err(unreadable)?;
        let place = place.value();
        let parts = format::split(Revision(place.0), bytes.value())?;
        let previous = index.change(&parts, place);
        if !parts.is_deletion() {
            stored.entries.push(StoredEntry { bytes: bytes.value().into(), place: Packed::new(place) });
        }
        if let Some(previous) = previous {
            stored.forget(previous);
        }
        if is_old {
            superseded.extend(previous.map(Packed::place));
            superseded.extend(parts.is_deletion().then_some(place));
        }
    }
    stored.revision = index.revision;
    Ok(Scan { index, superseded, stored })
}

// === impl Index ===

impl Index {
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn collected(&self) -> Revision {
        self.collected
    }

    /// History up to a revision is removed.
    pub(super) fn set_collected(&mut self, revision: Revision) {
        self.collected = revision;
    }

    /// The revision a key was last written at.
    pub(super) fn written_at(&self, key: &[u8]) -> Option<Revision> {
        let hashes = self.hash(key);
        self.current.find(hashes[0], |slot| slot.hashes == hashes).map(|slot| slot.place.revision())
    }

    /// A key is written; returns where its change before is.
    pub(super) fn put(&mut self, key: &[u8], place: Place) -> Option<Packed> {
        let hashes = self.hash(key);
        let place = Packed::new(place);
        self.revision = self.revision.max(place.revision());
        let entry = self.current.entry(hashes[0], |slot| slot.hashes == hashes, |slot| slot.hashes[0]);
        match entry {
            hashbrown::hash_table::Entry::Occupied(mut slot) => {
                Some(std::mem::replace(&mut slot.get_mut().place, place))
            }
            hashbrown::hash_table::Entry::Vacant(slot) => {
                slot.insert(Slot { hashes, place });
                None
            }
        }
    }

    /// A key is deleted; returns where its change before is. `None`: it holds nothing, and nothing is done.
    pub(super) fn delete(&mut self, key: &[u8], place: Place) -> Option<Packed> {
        let hashes = self.hash(key);
        let slot = self.current.find_entry(hashes[0], |slot| slot.hashes == hashes).ok()?;
        let (slot, _) = slot.remove();
        self.revision = self.revision.max(Revision(place.0));
        Some(slot.place)
    }

    /// History up to a revision may go.
    pub(super) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
    }

    /// Whether history waits to be removed.
    pub(super) fn has_garbage(&self) -> bool {
        self.collected < self.compacted
    }

    fn change(&mut self, parts: &Parts<'_>, place: Place) -> Option<Packed> {
        self.revision = self.revision.max(Revision(place.0));
        if parts.is_deletion() { self.delete(parts.key, place) } else { self.put(parts.key, place) }
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(key))
    }
}

// === impl Stored ===

impl Stored {
    fn forget(&mut self, place: Packed) {
        if let Ok(at) = self.entries.binary_search_by_key(&place, |entry| entry.place) {
            self.entries[at].bytes = Box::default();
        }
    }

    /// The contents, in the order of the keys.
    pub(super) fn unpack(mut self) -> Result<Snapshot, Error> {
        self.entries.retain(|entry| !entry.bytes.is_empty());
        let entries = parallel::try_map(self.entries, |StoredEntry { bytes, place }| {
            let revision = place.revision();
            let parts = format::split(revision, &bytes)?;
            let value = parts.value(revision)?.unwrap_or_default();
            Ok(Entry { key: Bytes::copy_from_slice(parts.key), revision, value })
        })?;
        let mut entries = entries;
        parallel::sort(&mut entries, |a, b| a.key.cmp(&b.key));
        Ok(Snapshot { entries, revision: self.revision })
    }
}
