//! The keys with a prefix at a revision, found in the log: the place of each one's entry, sorted by key.

use crate::disk::format::{self, ChangeId, Malformed, Packed};
use crate::disk::unreadable;
use crate::kv::{Entry, Error};
use bytes::Bytes;
use redb::ReadOnlyTable;
use std::collections::HashMap;
use steersman_machinery::Revision;

type Events = ReadOnlyTable<ChangeId, &'static [u8]>;

#[derive(Debug)]
pub(super) struct View {
    at: Revision,
    entries: Vec<(Box<[u8]>, Packed)>,
    prefix: Bytes,
    /// The memory that it takes.
    pub(super) weight: usize,
}

impl View {
    /// Reads the heads of the log up to a revision, once.
    pub(super) fn read(heads: &Events, at: Revision, prefix: &Bytes) -> Result<View, Error> {
        let mut held: HashMap<Box<[u8]>, Packed> = HashMap::new();
        for entry in heads.range(..=(at.0, u32::MAX)).map_err(unreadable)? {
            let (place, head) = entry.map_err(unreadable)?;
            let place = place.value();
            let (head, _) = format::split_head(place, head.value())?;
            if !head.key.starts_with(prefix) {
                continue;
            }
            if head.is_deletion() {
                held.remove(head.key);
            } else {
                held.insert(head.key.into(), Packed::new(place));
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

    /// The entries after a key.
    pub(super) fn behind(&self, start_after: Option<&Bytes>) -> &[(Box<[u8]>, Packed)] {
        let start = start_after.map_or(0, |after| self.entries.partition_point(|(key, _)| **key <= **after));
        &self.entries[start..]
    }
}

/// The entry at a place of the log, or its fault.
pub(super) fn entry_at(table: &Events, place: Packed, key: &[u8]) -> Result<Result<Entry, Malformed>, Error> {
    let revision = place.revision();
    let Some(stored) = table.get(place.place()).map_err(unreadable)? else {
        return Ok(Err(Malformed { fault: "it is missing", revision }));
    };
    Ok(decode(place, key, stored.value()))
}

fn decode(place: Packed, key: &[u8], stored: &[u8]) -> Result<Entry, Malformed> {
    let revision = place.revision();
    let parts = format::split(place.place(), stored)?;
    if parts.head.key != key {
        return Err(Malformed { fault: "it is of another key", revision });
    }
    let value = parts.value(revision)?.ok_or(Malformed { fault: "it is a deletion", revision })?;
    Ok(Entry { key: Bytes::copy_from_slice(key), revision, value })
}
