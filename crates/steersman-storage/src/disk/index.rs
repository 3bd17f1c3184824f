//! Which entry of the log is each key's current one, and which are only history. In memory; one scan of the log makes it.

use crate::disk::format::{self, COMPACTED, EVENTS, META, Place};
use crate::disk::unreadable;
use crate::kv::Error;
use bytes::Bytes;
use redb::{Database, ReadableDatabase};
use std::collections::{BTreeMap, HashMap, VecDeque};
use steersman_machinery::Revision;

#[derive(Debug, Default)]
pub(super) struct Index {
    compacted: Revision,
    current: HashMap<Bytes, Place>,
    /// Entries that are no longer anyone's current one, with the revision since which that is so. Ascending by it.
    history: VecDeque<(u64, Place)>,
    revision: Revision,
}

impl Index {
    pub(super) fn scan(database: &Database) -> Result<Index, redb::Error> {
        let transaction = database.begin_read()?;
        let compacted = transaction.open_table(META)?.get(COMPACTED)?.map_or(0, |compacted| compacted.value());
        let mut index = Index { compacted: Revision(compacted), ..Index::default() };
        for entry in transaction.open_table(EVENTS)?.range::<Place>(..)? {
            let (place, stored) = entry?;
            let place = place.value();
            let (key, payload) = format::split(Revision(place.0), stored.value())
                .map_err(|error| redb::Error::Corrupted(chain(&error)))?;
            match payload {
                None => index.delete(key, place),
                Some(_) => index.put(Bytes::copy_from_slice(key), place),
            }
        }
        // The newest entries may have been compacted away; the counter does not go back.
        index.revision = index.revision.max(index.compacted);
        Ok(index)
    }

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
            self.history.push_back((place.0, previous));
        }
        self.revision = Revision(place.0);
    }

    /// A deletion is history itself as soon as it is compacted.
    pub(super) fn delete(&mut self, key: &[u8], place: Place) {
        if let Some(previous) = self.current.remove(key) {
            self.history.push_back((place.0, previous));
        }
        self.history.push_back((place.0, place));
        self.revision = Revision(place.0);
    }

    /// History up to a revision may go.
    pub(super) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
    }

    /// Whether entries wait to be removed.
    pub(super) fn has_garbage(&self) -> bool {
        self.history.front().is_some_and(|(since, _)| *since <= self.compacted.0)
    }

    /// The next entry to remove.
    pub(super) fn pop_garbage(&mut self) -> Option<Place> {
        let compacted = self.compacted.0;
        let (_, place) = self.history.pop_front_if(|(since, _)| *since <= compacted)?;
        if self.history.is_empty() {
            self.history.shrink_to_fit();
        }
        Some(place)
    }
}

/// What each key holds, still packed, in the order of the keys.
type Current = BTreeMap<Bytes, (Revision, Packed)>;

/// A value as it is stored.
pub(super) struct Packed {
    payload: Bytes,
    tag: u8,
}

impl Packed {
    pub(super) fn unpack(&self, revision: Revision) -> Result<Bytes, Error> {
        format::value(revision, self.tag, &self.payload)
    }
}

/// Everything current, at the newest revision on the disk.
pub(super) fn current(database: &Database) -> Result<(Current, Revision), Error> {
    let transaction = database.begin_read().map_err(unreadable)?;
    let meta = transaction.open_table(META).map_err(unreadable)?;
    let compacted = meta.get(COMPACTED).map_err(unreadable)?.map_or(0, |compacted| compacted.value());
    let mut newest = Revision(compacted);
    let mut current = Current::new();
    let table = transaction.open_table(EVENTS).map_err(unreadable)?;
    for entry in table.range::<Place>(..).map_err(unreadable)? {
        let (place, stored) = entry.map_err(unreadable)?;
        let revision = Revision(place.value().0);
        newest = newest.max(revision);
        match format::split(revision, stored.value())? {
            (key, None) => {
                current.remove(key);
            }
            (key, Some((tag, payload))) => {
                let packed = Packed { payload: Bytes::copy_from_slice(payload), tag };
                current.insert(Bytes::copy_from_slice(key), (revision, packed));
            }
        }
    }
    Ok((current, newest))
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{cause}")
}
