//! A backup of an engine, made while it is read.

use crate::backup::{Encoder, Header, LeftOut, Totals};
use crate::kv::{Damaged, Entry, Error, KEY_BYTES_MAX, Kv, Scan, VALUE_BYTES_MAX};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use steersman_machinery::Revision;

/// The bytes of a backup, a part at a time: all entries at one revision, whatever is written meanwhile. It holds about one part of a
/// [`Scan`] in memory.
pub struct Backup {
    /// The entries that the engine has lost, by key: those that it names, and those that the scan leaves out.
    lost: BTreeMap<Bytes, Damaged>,
    revision: Revision,
    scan: Box<dyn Scan>,
    stage: Stage,
}

enum Stage {
    Header(Header),
    Entries(Box<Encoder>),
    Ended,
}

impl Backup {
    /// Begins a backup of the newest state of an engine. `seconds` is the time, in seconds since 1970.
    ///
    /// # Errors
    /// When the engine cannot be read.
    pub async fn begin(kv: &dyn Kv, seconds: Option<u64>) -> Result<Backup, Error> {
        // Known before the state is: what is lost later may be in it.
        let lost = kv.damaged().into_iter().map(|lost| (lost.key.clone(), lost)).collect();
        let scan = kv.scan().await?;
        let revision = scan.revision();
        let stage = Stage::Header(Header::new(kv.engine(), revision, seconds));
        Ok(Backup { lost, revision, scan, stage })
    }

    /// The revision of the state.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The next bytes; `None` after the last.
    ///
    /// # Errors
    /// When the engine cannot be read. The bytes so far are no backup then.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut out = Vec::new();
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Header(header) => {
                self.stage = Stage::Entries(Box::new(Encoder::begin(&header, &mut out)));
            }
            Stage::Entries(mut encoder) => {
                let part = self.part().await?;
                if part.is_empty() {
                    for lost in self.lost.values().filter(|lost| lost.revision <= self.revision) {
                        encoder.lost(lost, &mut out);
                    }
                    let Totals { entries, lost } = encoder.end(&mut out);
                    tracing::info!(revision = %self.revision, entries, lost, "a backup was made");
                } else {
                    for entry in &part {
                        match fault(entry) {
                            None => encoder.entry(entry, &mut out),
                            Some(lost) => {
                                self.lost.insert(lost.key.clone(), lost);
                            }
                        }
                    }
                    self.stage = Stage::Entries(encoder);
                }
            }
            Stage::Ended => return Ok(None),
        }
        Ok(Some(out.into()))
    }

    /// The next entries of the scan. Notes those that it leaves out.
    async fn part(&mut self) -> Result<Vec<Entry>, Error> {
        loop {
            match self.scan.next().await {
                Ok(part) => return Ok(part),
                Err(error) => {
                    let lost = LeftOut::of(&error).cloned().ok_or(error)?;
                    self.lost.insert(lost.key.clone(), lost);
                }
            }
        }
    }
}

/// Why an entry cannot be in a backup. Only other programs write such entries into a shared engine.
fn fault(entry: &Entry) -> Option<Damaged> {
    let fault = match entry {
        Entry { key, .. } if KEY_BYTES_MAX < key.len() => "its key is too long",
        Entry { value, .. } if VALUE_BYTES_MAX < value.len() => "its value is too long",
        _ => return None,
    };
    // A backup has only the beginning of such a key.
    let key = entry.key.slice(..entry.key.len().min(KEY_BYTES_MAX));
    Some(Damaged { key, revision: entry.revision, fault: fault.into() })
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("revision", &self.revision).finish_non_exhaustive()
    }
}
