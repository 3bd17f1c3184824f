//! The newest acknowledged revision, in a separate file. The newest commit of the store's file is recorded in one page;
//! if that page is an older version of itself, the file is a valid older store. This file reveals that.

use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use steersman_machinery::Revision;
use twox_hash::XxHash3_64;

use crate::disk::open::private;

/// The revision and its checksum, little endian.
#[derive(Debug)]
pub(super) struct Newest(Mutex<File>);

impl Newest {
    pub(super) fn open(path: &Path) -> io::Result<Newest> {
        Ok(Newest(Mutex::new(private().create(true).truncate(false).open(path)?)))
    }

    /// Written after the commit is durable and not synced: after a power failure it may be behind, and is never ahead.
    pub(super) fn write(&self, revision: Revision) -> io::Result<()> {
        let number = revision.0.to_le_bytes();
        let bytes = [number, XxHash3_64::oneshot(&number).to_le_bytes()].concat();
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&bytes)
    }
}

/// Reads the revision, if the file exists and its checksum is right.
pub(super) fn read(path: &Path) -> Option<Revision> {
    let bytes = fs::read(path).ok()?;
    let (number, checksum) = bytes.split_first_chunk::<8>()?;
    (*checksum == XxHash3_64::oneshot(number).to_le_bytes()).then(|| Revision(u64::from_le_bytes(*number)))
}
