//! Which entry of the log is each key's current one, and which are only history. In memory; one scan of the log makes it.

use crate::disk::format::{self, COMPACTED, EVENTS, META, Place};
use crate::disk::unreadable;
use crate::kv::{Entry, Error, Snapshot};
use crate::parallel;
use bytes::Bytes;
use redb::{Database, ReadableDatabase};
use std::collections::{HashMap, VecDeque};
use steersman_machinery::Revision;

#[derive(Debug, Default)]
pub(super) struct Index {
    compacted: Revision,
    current: HashMap<Bytes, Place>,
    history: History,
    revision: Revision,
}

/// Entries that are no longer anyone's current one, with the revision since which that is so. Ascending by it.
#[derive(Debug, Default)]
struct History(VecDeque<(u64, Place)>);

/// What the keys hold at one revision, still packed.
#[derive(Debug)]
pub(super) struct Packed {
    entries: Vec<PackedEntry>,
    revision: Revision,
}

#[derive(Debug)]
struct PackedEntry {
    key: Bytes,
    payload: Bytes,
    revision: Revision,
    tag: u8,
}

/// Reads the whole log once.
pub(super) fn scan(database: &Database) -> Result<(Index, Packed), Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let meta = transaction.open_table(META).map_err(unreadable)?;
    // The newest entries may have been compacted away; the counter does not go back.
    let compacted = Revision(meta.get(COMPACTED).map_err(unreadable)?.map_or(0, |compacted| compacted.value()));
    let mut revision = compacted;
    let mut history = History::default();
    let mut found: HashMap<Bytes, (Place, u8, Bytes)> = HashMap::new();
    let events = transaction.open_table(EVENTS).map_err(unreadable)?;
    for entry in events.range::<Place>(..).map_err(unreadable)? {
        let (place, stored) = entry.map_err(unreadable)?;
        let place = place.value();
        revision = revision.max(Revision(place.0));
        match format::split(Revision(place.0), stored.value())? {
            (key, None) => history.deleted(place, found.remove(key).map(|(previous, ..)| previous)),
            (key, Some((tag, payload))) => {
                let entry = (place, tag, Bytes::copy_from_slice(payload));
                match found.get_mut(key) {
                    Some(held) => history.replaced(place, Some(std::mem::replace(held, entry).0)),
                    None => drop(found.insert(Bytes::copy_from_slice(key), entry)),
                }
            }
        }
    }
    let mut current = HashMap::with_capacity(found.len());
    let mut entries = Vec::with_capacity(found.len());
    for (key, (place, tag, payload)) in found {
        current.insert(key.clone(), place);
        entries.push(PackedEntry { key, payload, revision: Revision(place.0), tag });
    }
    Ok((Index { compacted, current, history, revision }, Packed { entries, revision }))
}

// === impl Index ===

impl Index {
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// The revision a key was last written at.
    pub(super) fn written_at(&self, key: &[u8]) -> Option<Revision> {
        self.current.get(key).map(|(revision, _)| Revision(*revision))
    }

    pub(super) fn put(&mut self, key: Bytes, place: Place) {
        let previous = self.current.insert(key, place);
        self.history.replaced(place, previous);
        self.revision = Revision(place.0);
    }

    pub(super) fn delete(&mut self, key: &[u8], place: Place) {
        let previous = self.current.remove(key);
        self.history.deleted(place, previous);
        self.revision = Revision(place.0);
    }

    /// History up to a revision may go.
    pub(super) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
    }

    /// Whether entries wait to be removed.
    pub(super) fn has_garbage(&self) -> bool {
        self.history.0.front().is_some_and(|(since, _)| *since <= self.compacted.0)
    }

    /// The next entry to remove. A key's entries come in their order, its deletion last: whatever was removed when the power
    /// goes, what is left says the same.
    pub(super) fn pop_garbage(&mut self) -> Option<Place> {
        let compacted = self.compacted.0;
        let (_, place) = self.history.0.pop_front_if(|(since, _)| *since <= compacted)?;
        if self.history.0.is_empty() {
            self.history.0.shrink_to_fit();
        }
        Some(place)
    }
}

impl History {
    fn replaced(&mut self, by: Place, previous: Option<Place>) {
        self.0.extend(previous.map(|previous| (by.0, previous)));
    }

    /// A deletion is history itself as soon as it is compacted.
    fn deleted(&mut self, by: Place, previous: Option<Place>) {
        self.replaced(by, previous);
        self.0.push_back((by.0, by));
    }
}

// === impl Packed ===

impl Packed {
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// The contents, in the order of the keys.
    pub(super) fn unpack(mut self) -> Result<Snapshot, Error> {
        self.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let entries = parallel::try_map(self.entries, |PackedEntry { key, payload, revision, tag }| {
            Ok(Entry { key, revision, value: format::value(revision, tag, &payload)? })
        })?;
        Ok(Snapshot { entries, revision: self.revision })
    }
}
