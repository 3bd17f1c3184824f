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
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// While the log is scanned, ascending by place; history included.
    entries: Vec<PackedEntry>,
    revision: Revision,
}

#[derive(Debug)]
struct PackedEntry {
    key: Bytes,
    /// `None` once it turned out to be history.
    payload: Option<Bytes>,
    place: Place,
    tag: u8,
}

/// Reads the whole log once.
pub(super) fn scan(database: &Database) -> Result<(Index, Packed), Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let meta = transaction.open_table(META).map_err(unreadable)?;
    // The newest entries may have been compacted away; the counter does not go back.
    let compacted = Revision(meta.get(COMPACTED).map_err(unreadable)?.map_or(0, |compacted| compacted.value()));
    let mut revision = compacted;
    let mut current: HashMap<Bytes, Place> = HashMap::new();
    let mut history = History::default();
    let mut packed = Packed::default();
    let events = transaction.open_table(EVENTS).map_err(unreadable)?;
    for entry in events.range::<Place>(..).map_err(unreadable)? {
        let (place, stored) = entry.map_err(unreadable)?;
        let place = place.value();
        revision = revision.max(Revision(place.0));
        let (key, payload) = format::split(Revision(place.0), stored.value())?;
        let previous = match payload {
            None => current.remove(key),
            Some((tag, payload)) => {
                let key = Bytes::copy_from_slice(key);
                let payload = Some(Bytes::copy_from_slice(payload));
                packed.entries.push(PackedEntry { key: key.clone(), payload, place, tag });
                current.insert(key, place)
            }
        };
        if let Some(previous) = previous {
            packed.forget(previous);
            history.replaced(place, previous);
        }
        if payload.is_none() {
            history.deleted(place);
        }
    }
    packed.revision = revision;
    Ok((Index { compacted, current, history, revision }, packed))
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
        if let Some(previous) = self.current.insert(key, place) {
            self.history.replaced(place, previous);
        }
        self.revision = Revision(place.0);
    }

    pub(super) fn delete(&mut self, key: &[u8], place: Place) {
        if let Some(previous) = self.current.remove(key) {
            self.history.replaced(place, previous);
        }
        self.history.deleted(place);
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
    fn replaced(&mut self, by: Place, previous: Place) {
        self.0.push_back((by.0, previous));
    }

    /// A deletion is history itself as soon as it is compacted.
    fn deleted(&mut self, by: Place) {
        self.0.push_back((by.0, by));
    }
}

// === impl Packed ===

impl Packed {
    fn forget(&mut self, place: Place) {
        if let Ok(at) = self.entries.binary_search_by_key(&place, |entry| entry.place) {
            self.entries[at].payload = None;
        }
    }

    /// The contents, in the order of the keys.
    pub(super) fn unpack(mut self) -> Result<Snapshot, Error> {
        self.entries.retain(|entry| entry.payload.is_some());
        self.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let entries = parallel::try_map(self.entries, |PackedEntry { key, payload, place, tag }| {
            let revision = Revision(place.0);
            let value = format::value(revision, tag, payload.as_deref().unwrap_or_default())?;
            Ok(Entry { key, revision, value })
        })?;
        Ok(Snapshot { entries, revision: self.revision })
    }
}
