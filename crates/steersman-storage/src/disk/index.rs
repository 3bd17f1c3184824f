//! Which entry of the log is each key's current one. In memory; made of what a look through the file finds at open (`survey`).
//!
//! A key is known by two hashes of it, each under a random key of this process: 24 bytes for a key, however long it is. Two keys
//! of a store with a billion of them have all 120 bits in common once in 10^18 stores, and nobody outside can look for such keys.
//! The byte that is left has about the size of the entry, so that history is weighed without reading it.

use crate::disk::format::{self, COMPACTED, EVENTS, META, Malformed, Packed, Place};
use crate::disk::unreadable;
use crate::kv::{Entry, Error, Volume};
use crate::parallel;
use bytes::Bytes;
use hashbrown::HashTable;
use redb::{Database, ReadOnlyTable, ReadableDatabase};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use steersman_machinery::Revision;

#[derive(Debug)]
pub(super) struct Index {
    /// History up to this revision is removed from the file.
    collected: Revision,
    /// History up to this revision may be removed.
    compacted: Revision,
    current: HashTable<Slot>,
    hashers: [RandomState; 2],
    /// Bytes of the current entries, and of all that were superseded since `compacted` or the open.
    live: u64,
    revision: Revision,
    superseded: u64,
}

/// 24 bytes, for each key.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    second_hash: [u8; 7],
    size: Size,
    place: Packed,
}

const _: () = assert!(size_of::<Slot>() == 24);

#[derive(Clone, Copy, Debug)]
struct Hashes(u64, [u8; 7]);

/// A number of bytes in one byte, rounded by at most a sixteenth: exact below 16, then eight steps for each power of two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Size(u8);

/// What the keys hold at one revision, as it is in the file.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// The entries' bytes, one after the other. In large pieces, so that the allocator returns them to the system when they are freed.
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

/// Some entries of one piece.
struct Part<'a> {
    entries: &'a [StoredEntry],
    piece: Arc<Vec<u8>>,
}

/// Size of a piece of stored entries; a larger entry has one of its own.
const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// The number of entries that are decoded and passed on at a time.
const PART_ENTRIES: usize = 2_048;

/// About the most parts in which the log is scanned: enough that threads end at about the same time though old parts of a log,
/// out of which history was removed, hold less.
const SCAN_PARTS: u64 = 32;
const SCAN_PART_REVISIONS_MIN: u64 = 1_024;

type Events = ReadOnlyTable<Place, &'static [u8]>;

/// The changes of a part of the log.
struct ScannedPart {
    changes: Vec<Change>,
    stored: Stored,
}

/// A change of the log, for the index to take up.
pub(super) struct Change {
    hashes: Hashes,
    pub(super) is_deletion: bool,
    pub(super) place: Packed,
    size: Size,
}

/// Reads the whole log through redb, its parts on several threads: what the keys hold at the revision that was published, or a newer one.
pub(super) fn scan(database: &Database, published: Revision) -> Result<Stored, Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let events = transaction.open_table(EVENTS).map_err(unreadable)?;
    // The newest entries may have been compacted away; the counter does not go back. After a failed write redb reads nothing that it
    // does not have in memory, and nothing is compacted either, so that what was published is the newest.
    let compacted = || transaction.open_table(META).ok()?.get(COMPACTED).ok()?.map(|compacted| compacted.value());
    let compacted = compacted().unwrap_or_default();
    let newest = published.max(Revision(compacted));
    let mut index = Index::new(newest, newest);
    let ranges = ranges(&events)?;
    let parts: Vec<OnceLock<ScannedPart>> = ranges.iter().map(|_| OnceLock::new()).collect();
    parallel::try_each(ranges.into_iter().zip(&parts).collect(), |(range, part)| {
        let scanned = scan_part(&events, range, &index)?;
        part.get_or_init(|| scanned);
        Ok::<(), Error>(())
    })?;
    let mut stored = Stored::default();
    let mut changes = Vec::new();
    for part in parts.into_iter().filter_map(OnceLock::into_inner) {
        stored.append(part.stored);
        changes.extend(part.changes);
    }
    index.take_up(changes, &mut stored);
    Ok(stored)
}

/// Parts of the log of about as many revisions each, in order.
fn ranges(events: &Events) -> Result<Vec<RangeInclusive<Place>>, Error> {
    let edge = |entry: Option<Result<_, _>>| -> Result<Option<u64>, Error> {
        let Some(entry) = entry else { return Ok(None) };
        let (place, _): (redb::AccessGuard<'_, Place>, redb::AccessGuard<'_, &[u8]>) = entry.map_err(unreadable)?;
        Ok(Some(place.value().0))
    };
    let mut all = events.range::<Place>(..).map_err(unreadable)?;
    let first = edge(all.next())?;
    let last = edge(all.next_back())?.or(first);
    let (Some(first), Some(last)) = (first, last) else { return Ok(Vec::new()) };
    let step = ((last - first) / SCAN_PARTS).max(SCAN_PART_REVISIONS_MIN);
    let mut ranges = Vec::new();
    let mut start = first;
    loop {
        let end = start.saturating_add(step).min(last);
        ranges.push((start, 0)..=(end, u32::MAX));
        if end == last {
            return Ok(ranges);
        }
        start = end + 1;
    }
}

fn scan_part(events: &Events, range: RangeInclusive<Place>, index: &Index) -> Result<ScannedPart, Error> {
    let mut part = ScannedPart { changes: Vec::new(), stored: Stored::default() };
    for entry in events.range::<Place>(range).map_err(unreadable)? {
        let (place, bytes) = entry.map_err(unreadable)?;
        let (place, bytes) = (place.value(), bytes.value());
        let head = format::split(place, bytes)?.head;
        let change = index.change(head.key, place, head.is_deletion(), bytes.len());
        if !change.is_deletion {
            part.stored.push(bytes, change.place);
        }
        part.changes.push(change);
    }
    Ok(part)
}

// === impl Index ===

impl Index {
    /// An index of a log without changes.
    pub(super) fn new(compacted: Revision, collected: Revision) -> Index {
        Index {
            collected,
            compacted,
            current: HashTable::new(),
            hashers: [RandomState::new(), RandomState::new()],
            live: 0,
            revision: compacted,
            superseded: 0,
        }
    }

    /// A change of a key, in an entry of so many bytes, for [`Index::take_up`].
    pub(super) fn change(&self, key: &[u8], place: Place, is_deletion: bool, bytes: usize) -> Change {
        Change { hashes: self.hash(key), is_deletion, place: Packed::new(place), size: Size::of(bytes) }
    }

    /// Takes up the whole log, in order, and takes what is not current out of what is stored. Returns the places of what is not
    /// current, each deletion behind what it deletes.
    pub(super) fn take_up(&mut self, changes: Vec<Change>, stored: &mut Stored) -> Vec<Place> {
        let mut superseded = Vec::new();
        self.current.reserve(changes.len(), |slot| slot.hash);
        for Change { hashes, is_deletion, place, size } in changes {
            self.revision = self.revision.max(place.revision());
            let previous =
                if is_deletion { self.delete_hashed(hashes, size) } else { self.put_hashed(hashes, place, size) };
            if place.revision() <= self.compacted {
                // It is compacted already, and only waits to be removed.
                self.superseded = 0;
            }
            if let Some(previous) = previous {
                stored.forget(previous);
            }
            superseded.extend(previous.map(Packed::place));
            superseded.extend(is_deletion.then(|| place.place()));
        }
        // Room for the history is not needed any more.
        self.current.shrink_to_fit(|slot| slot.hash);
        stored.revision = self.revision;
        superseded
    }

    /// Whether the change at a place is the current one of a key.
    pub(super) fn is_at(&self, key: &[u8], place: Place) -> bool {
        let hashes = self.hash(key);
        self.current.find(hashes.0, |slot| slot.is_of(hashes)).is_some_and(|slot| slot.place == Packed::new(place))
    }

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

    pub(super) fn volume(&self) -> Volume {
        Volume { live: self.live, revision: self.revision, superseded: self.superseded }
    }

    /// Goes on with the count of what was superseded that another index has, which only grows.
    pub(super) fn keep_count(&mut self, before: &Index) {
        self.superseded = self.superseded.max(before.superseded);
    }

    /// The revision a key was last written at.
    pub(super) fn written_at(&self, key: &[u8]) -> Option<Revision> {
        let hashes = self.hash(key);
        self.current.find(hashes.0, |slot| slot.is_of(hashes)).map(|slot| slot.place.revision())
    }

    /// A key is written, in an entry of so many bytes; returns where its change before is.
    pub(super) fn put(&mut self, key: &[u8], place: Place, bytes: usize) -> Option<Packed> {
        let place = Packed::new(place);
        self.revision = self.revision.max(place.revision());
        self.put_hashed(self.hash(key), place, Size::of(bytes))
    }

    fn put_hashed(&mut self, hashes: Hashes, place: Packed, size: Size) -> Option<Packed> {
        let slot = Slot { hash: hashes.0, second_hash: hashes.1, size, place };
        let entry = self.current.entry(hashes.0, |slot| slot.is_of(hashes), |slot| slot.hash);
        self.live += size.bytes();
        match entry {
            hashbrown::hash_table::Entry::Occupied(mut current) => {
                let before = std::mem::replace(current.get_mut(), slot);
                self.live -= before.size.bytes();
                self.superseded += before.size.bytes();
                Some(before.place)
            }
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(slot);
                None
            }
        }
    }

    /// A key is deleted, by an entry of so many bytes; returns where its change before is. `None`: it holds nothing, and nothing
    /// is done.
    pub(super) fn delete(&mut self, key: &[u8], place: Place, bytes: usize) -> Option<Packed> {
        let previous = self.delete_hashed(self.hash(key), Size::of(bytes))?;
        self.revision = self.revision.max(Revision(place.0));
        Some(previous)
    }

    fn delete_hashed(&mut self, hashes: Hashes, size: Size) -> Option<Packed> {
        let slot = self.current.find_entry(hashes.0, |slot| slot.is_of(hashes)).ok()?;
        let (before, _) = slot.remove();
        self.live -= before.size.bytes();
        // What marks the deletion is history from the start.
        self.superseded += before.size.bytes() + size.bytes();
        Some(before.place)
    }

    /// History up to a revision may go.
    pub(super) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
    }

    /// Whether history waits to be removed.
    pub(super) fn has_garbage(&self) -> bool {
        self.collected < self.compacted
    }

    fn hash(&self, key: &[u8]) -> Hashes {
        let [first, second] = self.hashers.each_ref().map(|hasher| hasher.hash_one(key));
        let [_, second @ ..] = second.to_le_bytes();
        Hashes(first, second)
    }
}

impl Slot {
    fn is_of(&self, hashes: Hashes) -> bool {
        self.hash == hashes.0 && self.second_hash == hashes.1
    }
}

// === impl Size ===

impl Size {
    fn of(bytes: usize) -> Size {
        match u32::try_from(bytes).unwrap_or(u32::MAX) {
            bytes @ 0..16 => Size(bytes as u8),
            bytes => {
                let power = bytes.ilog2();
                let eighth = (bytes >> (power - 3)) & 7;
                Size((16 + (power - 4) * 8 + eighth) as u8)
            }
        }
    }

    /// The middle of what has this size.
    fn bytes(self) -> u64 {
        let Some(step) = self.0.checked_sub(16) else { return u64::from(self.0) };
        let (power, eighth) = (step / 8 + 4, step % 8);
        (u64::from(8 + eighth) << (power - 3)) + (1 << (power - 4))
    }
}

// === impl Stored ===

impl Stored {
    pub(super) fn push(&mut self, bytes: &[u8], place: Packed) {
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

    /// Takes over what lies behind all that is here.
    pub(super) fn append(&mut self, mut part: Stored) {
        let n_pieces = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.append(&mut part.bytes);
        self.entries
            .extend(part.entries.into_iter().map(|entry| StoredEntry { piece: n_pieces + entry.piece, ..entry }));
    }

    fn forget(&mut self, place: Packed) {
        if let Ok(at) = self.entries.binary_search_by_key(&place, |entry| entry.place) {
            self.entries[at].length = 0;
        }
    }

    /// Puts the entries in the order of the log.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.place);
    }

    /// The entries that are current, as they are in the file.
    pub(super) fn current(&self) -> impl Iterator<Item = (Place, &[u8])> {
        let current = self.entries.iter().filter(|entry| 0 < entry.length);
        current.map(|entry| {
            let bytes = &self.bytes[entry.piece as usize][entry.start as usize..][..entry.length as usize];
            (entry.place.place(), bytes)
        })
    }

    /// Hands over the contents in parts, from several threads, and names the keys whose values are not what was written. Each piece
    /// is freed when all that is in it has been handed over, so that what is made of the contents takes its place, and not as much
    /// memory again.
    pub(super) fn load(
        mut self,
        take: &(dyn Fn(Vec<Entry>) + Send + Sync),
        damaged: &(dyn Fn(Bytes, Malformed) + Send + Sync),
    ) -> Result<Revision, Error> {
        self.entries.retain(|entry| 0 < entry.length);
        let Stored { bytes, entries, revision } = self;
        parallel::try_each(Part::all(bytes, &entries), |part| {
            take(part.unpack(damaged)?);
            Ok::<(), Error>(())
        })?;
        Ok(revision)
    }
}

impl<'a> Part<'a> {
    /// The entries in parts, in order.
    fn all(pieces: Vec<Vec<u8>>, entries: &'a [StoredEntry]) -> Vec<Part<'a>> {
        let pieces: Vec<Arc<Vec<u8>>> = pieces.into_iter().map(Arc::new).collect();
        let of_pieces = entries.chunk_by(|a, b| a.piece == b.piece);
        let parts = of_pieces.flat_map(|of_piece| of_piece.chunks(PART_ENTRIES));
        let with_piece = parts.filter_map(|entries| {
            let piece = pieces.get(entries.first()?.piece as usize)?.clone();
            Some(Part { entries, piece })
        });
        with_piece.collect()
    }

    /// Decodes the entries. The piece is freed with its last part.
    fn unpack(self, damaged: &(dyn Fn(Bytes, Malformed) + Send + Sync)) -> Result<Vec<Entry>, Error> {
        let mut unpacked = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            let bytes = &self.piece[entry.start as usize..][..entry.length as usize];
            let revision = entry.place.revision();
            let parts = format::split(entry.place.place(), bytes)?;
            let key = Bytes::copy_from_slice(parts.head.key);
            match parts.value(revision) {
                Ok(value) => unpacked.push(Entry { key, revision, value: value.unwrap_or_default() }),
                Err(malformed) => damaged(key, malformed),
            }
        }
        Ok(unpacked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_piece_is_freed_with_its_last_part() {
        let mut stored = Stored::default();
        let per_piece = PART_ENTRIES as u64 + 1;
        for n in 0..3 {
            let mut piece = Stored::default();
            for n in n * per_piece..(n + 1) * per_piece {
                let mut stored = format::encode(b"key", Some(b"value"));
                format::seal(&mut stored, (n, 0), None, format::Position::Last);
                piece.push(&stored, Packed::new((n, 0)));
            }
            stored.append(piece);
        }
        let parts = Part::all(stored.bytes, &stored.entries);
        let pieces: Vec<_> = parts.iter().map(|part| Arc::downgrade(&part.piece)).collect();
        let mut n_held = Vec::new();
        for part in parts {
            n_held.push(pieces.iter().filter(|piece| piece.strong_count() > 0).count());
            assert!(part.unpack(&|key, _| panic!("{key:?}")).unwrap().iter().all(|entry| &*entry.value == b"value"));
        }
        // Two parts of each piece.
        assert_eq!(n_held, [6, 6, 4, 4, 2, 2]);
        assert!(pieces.iter().all(|piece| piece.strong_count() == 0));
    }

    proptest! {
        #[test]
        fn a_size_is_off_by_a_sixteenth_at_most(bytes in prop_oneof![0usize..300, 0usize..5_000_000]) {
            let kept = Size::of(bytes).bytes();
            prop_assert!(kept.abs_diff(bytes as u64) * 16 <= bytes as u64, "{} for {}", kept, bytes);
        }
    }
}
