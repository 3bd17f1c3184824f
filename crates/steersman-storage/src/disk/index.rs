//! Which entry of the log is each key's current one. In memory; one scan of the log makes it.
//!
//! A key is known by two hashes of it, each under a random key of this process: 24 bytes for a key, however long it is. Two keys
//! of a store with a billion of them have both hashes in common once in 10^20 stores, and nobody outside can look for such keys.

use crate::disk::format::{self, COLLECTED, COMPACTED, EVENTS, META, Packed, Parts, Place, VERSION};
use crate::disk::unreadable;
use crate::kv::{Entry, Error};
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
    /// The entries' bytes, one after the other. In large pieces, which go back to the system as a whole.
    bytes: Vec<Vec<u8>>,
    /// While the log is scanned, ascending by place; history included.
    entries: Vec<StoredEntry>,
    revision: Revision,
}

#[derive(Clone, Copy, Debug)]
struct StoredEntry {
    /// In which piece.
    piece: u32,
    start: u32,
    /// Zero once it turned out to be history.
    length: u32,
    place: Packed,
}

/// Size of a piece of stored entries; a larger entry has one of its own.
const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// Entries that are unpacked and handed over at a time.
const PART_ENTRIES: usize = 1_024;

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
            stored.push(bytes.value(), Packed::new(place));
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
    fn push(&mut self, bytes: &[u8], place: Packed) {
        if self.bytes.last().is_none_or(|piece| piece.capacity() < piece.len() + bytes.len()) {
            self.bytes.push(Vec::with_capacity(PIECE_BYTES.max(bytes.len())));
        }
        let piece = self.bytes.len() - 1;
        let start = self.bytes[piece].len();
        self.bytes[piece].extend_from_slice(bytes);
        // Pieces are small, and 2^32 of them are more than any disk holds.
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.entries.push(StoredEntry {
            piece: narrow(piece),
            start: narrow(start),
            length: narrow(bytes.len()),
            place,
        });
    }

    fn forget(&mut self, place: Packed) {
        if let Ok(at) = self.entries.binary_search_by_key(&place, |entry| entry.place) {
            self.entries[at].length = 0;
        }
    }

    /// Hands over the contents in parts, from several threads.
    pub(super) fn load(mut self, take: &(dyn Fn(Vec<Entry>) + Send + Sync)) -> Result<Revision, Error> {
        self.entries.retain(|entry| 0 < entry.length);
        let parts: Vec<&[StoredEntry]> = self.entries.chunks(PART_ENTRIES).collect();
        parallel::try_each(parts, |part| {
            take(part.iter().map(|entry| self.unpack(*entry)).collect::<Result<Vec<_>, Error>>()?);
            Ok(())
        })?;
        Ok(self.revision)
    }

    fn unpack(&self, entry: StoredEntry) -> Result<Entry, Error> {
        let StoredEntry { piece, start, length, place } = entry;
        let bytes = &self.bytes[piece as usize][start as usize..][..length as usize];
        let revision = place.revision();
        let parts = format::split(revision, bytes)?;
        let value = parts.value(revision)?.unwrap_or_default();
        Ok(Entry { key: Bytes::copy_from_slice(parts.key), revision, value })
    }
}
