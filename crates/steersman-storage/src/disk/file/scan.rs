//! All entries at one revision, read from the file a part at a time.
//!
//! The state is that of one read transaction of redb, whose pages are not used again while it is open: the file grows by what is written
//! meanwhile. The log has superseded changes too. They are found first, by the heads, and take eight bytes each. A damaged change is left
//! out, and named by [`LeftOut`].

use crate::backup::LeftOut;
use crate::disk::format::{self, COMPACTED, ChangeId, EVENTS, HEADS, META, Malformed, Packed};
use crate::disk::{Shared, guarded, unreadable};
use crate::kv::{BoxFuture, Damaged, Entry, Error, SCAN_BYTES, Scan};
use bytes::Bytes;
use redb::{ReadOnlyTable, ReadableDatabase};
use std::sync::Arc;
use steersman_machinery::Revision;

/// A scan of the file.
pub(in crate::disk) struct Scanning {
    /// The damaged entries among the last part that are not yet named.
    left_out: Vec<Damaged>,
    /// The place after which the next part begins; `None` after an error.
    log: Option<Log>,
    revision: Revision,
}

struct Log {
    events: redb::Range<'static, ChangeId, &'static [u8]>,
    /// The keys of damaged changes.
    heads: ReadOnlyTable<ChangeId, &'static [u8]>,
    /// The places of superseded changes, sorted.
    superseded: Arc<[Packed]>,
}

/// A part of the log.
#[derive(Default)]
struct Part {
    entries: Vec<Entry>,
    damaged: Vec<Damaged>,
}

impl Scanning {
    /// Begins with the state that the file has now.
    pub(in crate::disk) fn begin(shared: &Shared) -> Result<Scanning, Error> {
        let database = shared.database()?;
        let transaction = database.begin_read().map_err(unreadable)?;
        let heads = transaction.open_table(HEADS).map_err(unreadable)?;
        let events = transaction.open_table(EVENTS).map_err(unreadable)?;
        let meta = transaction.open_table(META).map_err(unreadable)?;
        let compacted = meta.get(COMPACTED).map_err(unreadable)?.map_or(0, |compacted| compacted.value());
        let (mut superseded, mut revision) = (Vec::new(), Revision(compacted));
        for entry in heads.range::<ChangeId>(..).map_err(unreadable)? {
            let (place, head) = entry.map_err(unreadable)?;
            let place = place.value();
            let (head, _) = format::split_head(place, head.value())?;
            revision = revision.max(Revision(place.0));
            superseded.extend(head.previous);
            superseded.extend(head.is_deletion().then(|| Packed::new(place)));
        }
        superseded.sort_unstable();
        let events = events.range::<ChangeId>(..).map_err(unreadable)?;
        let log = Log { events, heads, superseded: superseded.into() };
        Ok(Scanning { left_out: Vec::new(), log: Some(log), revision })
    }
}

impl Scan for Scanning {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        Box::pin(async {
            loop {
                if let Some(damaged) = self.left_out.pop() {
                    return Err(LeftOut(damaged).into());
                }
                let Some(mut log) = self.log.take() else { return Err(Error::Closed) };
                let read = move || {
                    let part = guarded(|| log.part());
                    part.map(|part| part.map(|part| (part, log)))
                };
                // The runtime is shutting down.
                let read = tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)?;
                let (part, log) = read.unwrap_or_else(|panicked| Err(Error::Read { source: Arc::new(panicked) }))?;
                self.log = Some(log);
                self.left_out = part.damaged;
                // No entries would mean the end.
                if !part.entries.is_empty() || self.left_out.is_empty() {
                    return Ok(part.entries);
                }
            }
        })
    }
}

impl Log {
    fn part(&mut self) -> Result<Part, Error> {
        let (mut part, mut n_bytes) = (Part::default(), 0);
        while n_bytes < SCAN_BYTES
            && let Some(entry) = self.events.next()
        {
            let (place, stored) = entry.map_err(unreadable)?;
            let place = place.value();
            if self.superseded.binary_search(&Packed::new(place)).is_ok() {
                continue;
            }
            match decode(place, stored.value()) {
                Ok(entry) => {
                    n_bytes += entry.key.len() + entry.value.len();
                    part.entries.push(entry);
                }
                Err(malformed) => {
                    let key = self.key(place, &malformed)?;
                    tracing::error!(key = %String::from_utf8_lossy(&key), "{malformed}: it is left out of a backup");
                    n_bytes += key.len();
                    part.damaged.push(Damaged { key, revision: malformed.revision, fault: malformed.fault.to_owned() });
                }
            }
        }
        Ok(part)
    }

    /// The key of a damaged change, from the copy of its head. The scan ends where that is missing too: a backup cannot name the entry then.
    fn key(&self, place: ChangeId, malformed: &Malformed) -> Result<Bytes, Error> {
        let head = self.heads.get(place).map_err(unreadable)?.ok_or_else(|| malformed.clone())?;
        let (head, _) = format::split_head(place, head.value())?;
        Ok(Bytes::copy_from_slice(head.key))
    }
}

fn decode(place: ChangeId, stored: &[u8]) -> Result<Entry, Malformed> {
    let revision = Revision(place.0);
    let parts = format::split(place, stored)?;
    let value = parts.value(revision)?.unwrap_or_default();
    Ok(Entry { key: Bytes::copy_from_slice(parts.head.key), revision, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{Backup, Decoder, Found};
    use crate::disk::Disk;
    use crate::kv::{Kv, Op, Txn};
    use redb::ReadableTable as _;

    /// Flips bits of the change that the log has at a revision. The checksums of the pages are right.
    fn flip(disk: &Disk, revision: Revision, at: impl FnOnce(&[u8]) -> usize) {
        let transaction = disk.shared.database().unwrap().begin_write().unwrap();
        {
            let mut events = transaction.open_table(EVENTS).unwrap();
            let mut stored = events.get((revision.0, 0)).unwrap().unwrap().value().to_vec();
            let at = at(&stored);
            stored[at] ^= 6;
            events.insert((revision.0, 0), stored.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
    }

    #[tokio::test]
    async fn a_backup_names_the_entries_that_are_damaged_and_has_all_others() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = Disk::open(scratch.path()).unwrap();
        let mut revisions = Vec::new();
        for key in ["first", "key", "value", "last"] {
            let op = Op::Put { key: key.into(), value: "some value".into() };
            disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.unwrap();
            revisions.push(disk.revision().await.unwrap());
        }
        flip(&disk, revisions[1], |stored| format::head_of(stored).len() - 9);
        flip(&disk, revisions[2], |stored| stored.len() - 1);
        let mut backup = Backup::begin(&disk, None).await.unwrap();
        let mut decoder = Decoder::new();
        while let Some(bytes) = backup.next().await.unwrap() {
            decoder.push(&bytes);
        }
        decoder.finish();
        let (mut entries, mut lost, mut ends) = (Vec::new(), Vec::new(), 0);
        while let Some(found) = decoder.next() {
            match found {
                Found::Entry(entry) => entries.push((entry.key, entry.revision)),
                Found::Lost(damaged) => lost.push((damaged.key, damaged.revision)),
                Found::End(_) => ends += 1,
                Found::Header(_) => {}
                Found::Fault(fault) => panic!("{fault}"),
            }
        }
        assert_eq!(entries, [("first".into(), revisions[0]), ("last".into(), revisions[3])]);
        assert_eq!(lost, [("key".into(), revisions[1]), ("value".into(), revisions[2])]);
        assert_eq!(ends, 1);
    }
}
