//! The files to restore from, read piece by piece: backups, and snapshots of etcd.

use crate::Failure;
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use steersman_storage::backup::{Decoder, Fault, Found, Header};
use steersman_storage::kv::{Damaged, Entry, SCAN_BYTES};
use steersman_storage_etcd::{Snapshot, SnapshotEntries};

/// The bytes by which a file is recognized.
const BEGINNING_BYTES: u64 = 64;
/// The size of a piece.
const PIECE_BYTES: usize = 256 * 1024;
/// The most faults of a file that are kept for their messages; more are counted.
const FAULTS_MAX: usize = 1_000;

/// Where the entries of a store that is made come from.
pub(super) trait Source {
    /// The next entries, about a megabyte of them; none after the last.
    fn entries(&mut self) -> anyhow::Result<Vec<Entry>>;
}

impl Source for SnapshotEntries<'_> {
    fn entries(&mut self) -> anyhow::Result<Vec<Entry>> {
        let (mut entries, mut n_bytes) = (Vec::new(), 0);
        while n_bytes < SCAN_BYTES
            && let Some(entry) = self.next()?
        {
            n_bytes += entry.key.len() + entry.value.len();
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Whether a file is a database of etcd.
pub(super) fn is_snapshot(path: &Path) -> Result<bool, Failure> {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut beginning));
    read.map_err(|error| unreadable(path, &error))?;
    Ok(Snapshot::is_one(&beginning))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::Refused(format!("cannot read {}: {error}; name a backup", path.display()))
}

/// A backup, read from its beginning.
pub(super) struct Input {
    decoder: Decoder,
    file: File,
    is_read: bool,
    path: PathBuf,
    piece: Vec<u8>,
}

/// The findings in a whole backup.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The first faults.
    pub(super) faults: Vec<Fault>,
    pub(super) header: Option<Header>,
    pub(super) lost: Vec<Damaged>,
    pub(super) n_entries: u64,
    pub(super) n_faults: usize,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Input, Failure> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let (decoder, piece) = (Decoder::new(), vec![0; PIECE_BYTES]);
        Ok(Input { decoder, file, is_read: false, path: path.to_owned(), piece })
    }

    /// The next part of the backup; `None` after the last.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Found>> {
        loop {
            if let Some(found) = self.decoder.next() {
                return Ok(Some(found));
            }
            if self.is_read {
                return Ok(None);
            }
            let n_read = self.file.read(&mut self.piece);
            let n_read = n_read.with_context(|| format!("cannot read {}", self.path.display()))?;
            if n_read == 0 {
                self.is_read = true;
                self.decoder.finish();
            } else {
                self.decoder.push(&self.piece[..n_read]);
            }
        }
    }

    /// Reads all of it, and shows the entries to `look`.
    pub(super) fn contents(mut self, mut look: impl FnMut(&Entry)) -> anyhow::Result<Contents> {
        let mut contents = Contents::default();
        while let Some(found) = self.next()? {
            match found {
                Found::Header(header) => contents.header = Some(header),
                Found::Entry(entry) => {
                    look(&entry);
                    contents.n_entries += 1;
                }
                Found::Lost(lost) => contents.lost.push(lost),
                Found::End(_) => {}
                Found::Fault(fault) => {
                    contents.n_faults += 1;
                    if contents.faults.len() < FAULTS_MAX {
                        contents.faults.push(fault);
                    }
                }
            }
        }
        Ok(contents)
    }
}

impl Contents {
    /// The number of faults that are counted only.
    pub(super) fn n_more_faults(&self) -> usize {
        self.n_faults - self.faults.len()
    }
}

impl Source for Input {
    /// Faults are passed over: they are known.
    fn entries(&mut self) -> anyhow::Result<Vec<Entry>> {
        let (mut entries, mut n_bytes) = (Vec::new(), 0);
        while n_bytes < SCAN_BYTES
            && let Some(found) = self.next()?
        {
            if let Found::Entry(entry) = found {
                n_bytes += entry.key.len() + entry.value.len();
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}
