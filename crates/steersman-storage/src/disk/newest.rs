//! The newest acknowledged revision, in a separate file. The newest commit of the store's file is recorded in one page;
//! if that page is an older version of itself, the file is a valid older store. This file reveals that.
//!
//! A start does not depend on it: a loss of power can leave it empty, and then the store's file, which is forced to the disk with each
//! write, is right. So a damaged one is logged as an error and written again, and this start cannot notice an older store. A store whose
//! newest commit is damaged cannot do without it (`newer`).

use crate::disk::file::damage::is_damage;
use crate::disk::open::private;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use steersman_machinery::Revision;
use twox_hash::XxHash3_64;

/// The size of the file.
const BYTES: usize = 16;

/// The revision and its checksum, little endian.
#[derive(Debug)]
pub(super) struct Newest(Mutex<File>);

/// The content of the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Noted {
    /// The revision is unknown, because of this fault.
    Damaged(String),
    Missing,
    Revision(Revision),
}

/// The content of the file for a revision.
pub(super) fn encode(revision: Revision) -> Vec<u8> {
    let number = revision.0.to_le_bytes();
    [number, XxHash3_64::oneshot(&number).to_le_bytes()].concat()
}

impl Newest {
    pub(super) fn open(path: &Path) -> io::Result<Newest> {
        Ok(Newest(Mutex::new(private().create(true).truncate(false).open(path)?)))
    }

    /// Written after the commit is durable and not synced: after a power failure it may be behind, and is never ahead.
    pub(super) fn write(&self, revision: Revision) -> io::Result<()> {
        let bytes = encode(revision);
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&bytes)
    }

    /// Removes what a damaged file has beyond its size. The next write replaces the rest.
    pub(super) fn cut(&self) -> io::Result<()> {
        self.0.lock().set_len(BYTES as u64)
    }
}

impl Noted {
    pub(super) fn revision(&self) -> Option<Revision> {
        match self {
            Noted::Damaged(_) | Noted::Missing => None,
            Noted::Revision(revision) => Some(*revision),
        }
    }
}

/// Reads the file.
///
/// # Errors
/// When it cannot be read for another reason than a failing disk, such as a missing permission.
pub(super) fn read(path: &Path) -> io::Result<Noted> {
    match fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Noted::Missing),
        Err(error) if is_damage(&error) => Ok(Noted::Damaged(format!("it cannot be read: {error}"))),
        Err(error) => Err(error),
    }
}

fn parse(bytes: &[u8]) -> Noted {
    let Some((number, checksum)) = bytes.split_first_chunk::<8>().filter(|_| bytes.len() == BYTES) else {
        return Noted::Damaged(format!("it has {} bytes instead of {BYTES}", bytes.len()));
    };
    if *checksum != XxHash3_64::oneshot(number).to_le_bytes() {
        return Noted::Damaged("its checksum is wrong".to_owned());
    }
    Noted::Revision(Revision(u64::from_le_bytes(*number)))
}
