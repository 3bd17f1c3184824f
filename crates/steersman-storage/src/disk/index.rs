//! The index of each key's current entry in the log. In memory, built from the survey of the file at open (`survey`).
//!
//! A key is identified by two hashes, each with a random seed of this process: 24 bytes for a key, however long it is.
//! In a store with a billion keys, two of them have all 120 bits in common once in 10^18 stores, and clients cannot
//! search for such keys. The remaining byte has the approximate size of the entry, so that history is measured without
//! reading it.

use crate::disk::format::{self, Action, COMPACTED, ChangeId, EVENTS, META, Malformed, Packed};
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

/// Smaller tables keep their room.
const SPARSE_MIN: usize = 1_024;

#[derive(Debug)]
pub(super) struct Index {
    /// History up to this revision has been removed from the file.
    collected: Revision,
    /// History up to this revision may be removed.
    compacted: Revision,
    current: HashTable<Slot>,
    hashers: [RandomState; 2],
    /// The bytes of the current entries, and of all that were superseded since `compacted` or since the open.
    live: u64,
    revision: Revision,
    superseded: u64,
}

/// The slot of a key, 24 bytes.
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

/// A number of bytes in one byte, rounded by at most a sixteenth: exact below 16, then eight steps for each power of
/// two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Size(u8);

/// The current entries at one revision, in their stored form.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// The entries' bytes, concatenated. In large pieces, so that the allocator returns them to the system when they
    /// are freed.
    bytes: Vec<Vec<u8>>,
    /// During the scan of the log, ascending by place and with history included.
    entries: Vec<StoredEntry>,
    revision: Revision,
}

#[derive(Clone, Copy, Debug)]
struct StoredEntry {
    /// The index of the piece with the entry.
    piece: u32,
    start: u32,
    /// Zero if the entry has turned out to be history.
    length: u32,
    place: Packed,
}

/// Some entries of one piece.
struct Part<'a> {
    entries: &'a [StoredEntry],
    piece: Arc<Vec<u8>>,
}

/// The size of a piece of stored entries; a larger entry has one of its own.
const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// The number of entries that are decoded and passed on at a time.
const PART_ENTRIES: usize = 2_048;

/// The approximate number of parts in which the log is scanned: enough that all threads end at about the same time,
/// although the old parts of a log, from which history was removed, have fewer entries.
const SCAN_PARTS: u64 = 32;
const SCAN_PART_REVISIONS_MIN: u64 = 1_024;

type Events = ReadOnlyTable<ChangeId, &'static [u8]>;

/// The changes of a part of the log.
struct ScannedPart {
    changes: Vec<Change>,
    stored: Stored,
}

/// A change of the log, to be added to the index.
pub(super) struct Change {
    pub(super) action: Action,
    hashes: Hashes,
    pub(super) place: Packed,
    size: Size,
}

/// Reads the whole log through redb, in parts on several threads: the current entries at the published revision, or a
/// newer one.
pub(super) fn scan(database: &Database, published: Revision) -> Result<Stored, Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let events = transaction.open_table(EVENTS).map_err(unreadable)?;
    // The newest entries may have been compacted away, so the compacted revision counts too. If it cannot be read, a
    // write has failed: then redb only reads what it has in memory, and nothing is compacted, so the published revision
    // is the newest.
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

/// Parts of the log with about equal numbers of revisions, in order.
fn ranges(events: &Events) -> Result<Vec<RangeInclusive<ChangeId>>, Error> {
    let edge = |entry: Option<Result<_, _>>| -> Result<Option<u64>, Error> {
        let Some(entry) = entry else { return Ok(None) };
        let (place, _): (redb::AccessGuard<'_, ChangeId>, redb::AccessGuard<'_, &[u8]>) = entry.map_err(unreadable)?;
        Ok(Some(place.value().0))
    };
    let mut all = events.range::<ChangeId>(..).map_err(unreadable)?;
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

fn scan_part(events: &Events, range: RangeInclusive<ChangeId>, index: &Index) -> Result<ScannedPart, Error> {
    let mut part = ScannedPart { changes: Vec::new(), stored: Stored::default() };
    for entry in events.range::<ChangeId>(range).map_err(unreadable)? {
        let (place, bytes) = entry.map_err(unreadable)?;
        let (place, bytes) = (place.value(), bytes.value());
        let head = format::split(place, bytes)?.head;
        let change = index.change(head.key, place, head.action(), bytes.len());
        if change.action == Action::Put {
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

    /// A change of a key by an entry of this many bytes, for [`Index::take_up`].
    pub(super) fn change(&self, key: &[u8], place: ChangeId, action: Action, bytes: usize) -> Change {
        Change { action, hashes: self.hash(key), place: Packed::new(place), size: Size::of(bytes) }
    }

    /// Adds the whole log, in order, and removes superseded entries from `stored`. Returns the places of the superseded
    /// entries, each deletion after the entry that it deletes.
    pub(super) fn take_up(&mut self, changes: Vec<Change>, stored: &mut Stored) -> Vec<ChangeId> {
        let mut superseded = Vec::new();
        self.current.reserve(changes.len(), |slot| slot.hash);
        for Change { action, hashes, place, size } in changes {
            self.revision = self.revision.max(place.revision());
            let previous = match action {
                Action::Delete => self.delete_hashed(hashes, size),
                Action::Put => self.put_hashed(hashes, place, size),
            };
            if place.revision() <= self.compacted {
                // Entries superseded up to here are compacted: they no longer count, and only have to be removed.
                self.superseded = 0;
            }
            if let Some(previous) = previous {
                stored.forget(previous);
            }
            superseded.extend(previous.map(Packed::place));
            superseded.extend((action == Action::Delete).then(|| place.place()));
        }
        // Capacity for the history is no longer needed.
        self.current.shrink_to_fit(|slot| slot.hash);
        stored.revision = self.revision;
        superseded
    }

    /// Whether the change at a place is the current one of a key.
    pub(super) fn is_at(&self, key: &[u8], place: ChangeId) -> bool {
        self.place(key) == Some(Packed::new(place))
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

    /// Records that history up to a revision has been removed.
    pub(super) fn set_collected(&mut self, revision: Revision) {
        self.collected = revision;
    }

    pub(super) fn volume(&self) -> Volume {
        Volume { live: self.live, revision: self.revision, superseded: self.superseded }
    }

    /// Takes over the superseded size of another index: the figure only grows.
    pub(super) fn keep_count(&mut self, before: &Index) {
        self.superseded = self.superseded.max(before.superseded);
    }

    /// The revision a key was last written at.
    pub(super) fn written_at(&self, key: &[u8]) -> Option<Revision> {
        self.place(key).map(Packed::revision)
    }

    /// The place of a key's current change; `None` if it has no value.
    pub(super) fn place(&self, key: &[u8]) -> Option<Packed> {
        let hashes = self.hash(key);
        self.current.find(hashes.0, |slot| slot.is_of(hashes)).map(|slot| slot.place)
    }

    /// Records that a key was written by an entry of this many bytes; returns the place of its previous change.
    pub(super) fn put(&mut self, key: &[u8], place: ChangeId, bytes: usize) -> Option<Packed> {
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

    /// Records that a key was deleted by an entry of this many bytes; returns the place of its previous change. `None`
    /// if the key has no value; then nothing is done.
    pub(super) fn delete(&mut self, key: &[u8], place: ChangeId, bytes: usize) -> Option<Packed> {
        let previous = self.delete_hashed(self.hash(key), Size::of(bytes))?;
        self.revision = self.revision.max(Revision(place.0));
        Some(previous)
    }

    fn delete_hashed(&mut self, hashes: Hashes, size: Size) -> Option<Packed> {
        let slot = self.current.find_entry(hashes.0, |slot| slot.is_of(hashes)).ok()?;
        let (before, _) = slot.remove();
        // A table that was large once would keep its room. By then most slots have been removed, which has cost more than the copies do.
        if SPARSE_MIN < self.current.capacity() && self.current.len() < self.current.capacity() / 8 {
            self.current.shrink_to(2 * self.current.len(), |slot| slot.hash);
        }
        self.live -= before.size.bytes();
        // The entry that marks the deletion counts as superseded from the start.
        self.superseded += before.size.bytes() + size.bytes();
        Some(before.place)
    }

    /// Allows history up to a revision to be removed.
    pub(super) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
    }

    /// Whether compacted history is still in the file.
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

    /// The middle of the sizes with this code.
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
        // An offset within a piece fits, and 2^32 pieces are more than any disk holds.
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.entries.push(StoredEntry {
            piece: narrow(piece),
            start: narrow(start),
            length: narrow(bytes.len()),
            place,
        });
    }

    /// Appends entries whose places follow all present ones.
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

    /// Sorts the entries by place.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.place);
    }

    /// The current entries in their stored form.
    pub(super) fn current(&self) -> impl Iterator<Item = (ChangeId, &[u8])> {
        let current = self.entries.iter().filter(|entry| 0 < entry.length);
        current.map(|entry| {
            let bytes = &self.bytes[entry.piece as usize][entry.start as usize..][..entry.length as usize];
            (entry.place.place(), bytes)
        })
    }

    /// Passes on the values in parts, from several threads, and reports the keys whose values are damaged. Each piece
    /// is freed when all its entries have been passed on, so that the objects made of them take its place instead of
    /// additional memory.
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
        // Each piece has two parts.
        assert_eq!(n_held, [6, 6, 4, 4, 2, 2]);
        assert!(pieces.iter().all(|piece| piece.strong_count() == 0));
    }

    #[test]
    fn the_room_of_keys_that_are_gone_is_given_back() {
        let mut index = Index::new(Revision(0), Revision(0));
        let key = |n: u64| n.to_le_bytes();
        for n in 1..=100_000 {
            index.put(&key(n), (n, 0), 100);
        }
        for n in 1..100_000 {
            assert_eq!(index.delete(&key(n), (100_000 + n, 0), 10).map(Packed::place), Some((n, 0)));
        }
        assert!(index.current.capacity() <= 2 * SPARSE_MIN, "{} places for one key", index.current.capacity());
        assert_eq!(index.written_at(&key(100_000)), Some(Revision(100_000)));
    }

    proptest! {
        #[test]
        fn a_size_is_off_by_a_sixteenth_at_most(bytes in prop_oneof![0usize..300, 0usize..5_000_000]) {
            let kept = Size::of(bytes).bytes();
            prop_assert!(kept.abs_diff(bytes as u64) * 16 <= bytes as u64, "{} for {}", kept, bytes);
        }
    }
}
