//! The keys of a prefix as they were at a revision, found in the log: where each one's entry is, in the order of the keys.

use crate::disk::format::{self, Packed, Place};
use crate::disk::unreadable;
use crate::kv::{Entry, Error};
use bytes::Bytes;
use redb::ReadOnlyTable;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_machinery::Revision;

type Events = ReadOnlyTable<Place, &'static [u8]>;

#[derive(Debug)]
pub(super) struct View {
    at: Revision,
    entries: Vec<(Box<[u8]>, Packed)>,
    prefix: Bytes,
    /// Bytes it takes.
    pub(super) weight: usize,
}

/// An entry that the log does not have though another one names it.
#[derive(Debug, thiserror::Error)]
#[error("the change at revision {revision} is missing from the log")]
struct Missing {
    revision: Revision,
}

impl View {
    /// Goes through the log up to a revision once. The values are not looked at.
    pub(super) fn read(table: &Events, at: Revision, prefix: &Bytes) -> Result<View, Error> {
        let mut held: HashMap<Box<[u8]>, Packed> = HashMap::new();
        for entry in table.range(..=(at.0, u32::MAX)).map_err(unreadable)? {
            let (place, stored) = entry.map_err(unreadable)?;
            let place = place.value();
            let parts = format::split(Revision(place.0), stored.value())?;
            if !parts.key.starts_with(prefix) {
                continue;
            }
            if parts.is_deletion() {
                held.remove(parts.key);
            } else {
                held.insert(parts.key.into(), Packed::new(place));
            }
        }
        let mut entries: Vec<(Box<[u8]>, Packed)> = held.into_iter().collect();
        entries.sort_unstable();
        let weight = entries.iter().map(|(key, _)| key.len() + size_of::<(Box<[u8]>, Packed)>()).sum();
        Ok(View { at, entries, prefix: prefix.clone(), weight })
    }

    pub(super) fn is_of(&self, at: Revision, prefix: &Bytes) -> bool {
        self.at == at && self.prefix == *prefix
    }

    /// The entries behind a key.
    pub(super) fn behind(&self, start_after: Option<&Bytes>) -> &[(Box<[u8]>, Packed)] {
        let start = start_after.map_or(0, |after| self.entries.partition_point(|(key, _)| **key <= **after));
        &self.entries[start..]
    }
}

/// The entry at a place of the log.
pub(super) fn entry_at(table: &Events, place: Packed, key: &[u8]) -> Result<Entry, Error> {
    let revision = place.revision();
    let missing = || Error::Read { source: Arc::new(Missing { revision }) };
    let stored = table.get(place.place()).map_err(unreadable)?.ok_or_else(missing)?;
    let value = format::split(revision, stored.value())?.value(revision)?.ok_or_else(missing)?;
    Ok(Entry { key: Bytes::copy_from_slice(key), revision, value })
}
