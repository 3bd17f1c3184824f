//! Checks the store in a directory that no process has open, and changes nothing.

use crate::disk::file::storage::Storage;
use crate::disk::format::{self, FORMAT, old};
use crate::disk::newest::{self, Noted};
use crate::disk::open::{OpenError, hold, refused};
use crate::disk::survey::{self, Survey};
use crate::disk::{FILE, FILE_NEWEST};
use crate::kv::{Damaged, Entry};
use bytes::Bytes;
use std::io;
use std::path::Path;
use steersman_machinery::Revision;

/// The result of a check of a store's file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The newest revision that was acknowledged, if the file ends before it.
    pub acknowledged: Option<Revision>,
    /// The keys whose values are lost, sorted.
    pub damaged: Vec<Damaged>,
    /// Other damage, in this file or in the one with the newest revision. A server that starts writes a damaged file anew.
    pub faults: Vec<String>,
    /// The file's format.
    pub format: u64,
    /// The number of lost changes whose keys are unknown.
    pub n_unknown: u64,
    /// The newest revision.
    pub revision: Revision,
}

/// Checks the store in a directory and passes on its current entries.
///
/// # Errors
/// When the store is open, does not exist, or is so damaged that the lost changes are unknown.
pub fn check(dir: &Path, take: impl FnMut(Entry)) -> Result<Report, OpenError> {
    check_on(dir, take, Storage::file)
}

/// [`check`] with a storage that `storage` makes of a path, so that a test can make it fail.
pub(super) fn check_on(
    dir: &Path,
    mut take: impl FnMut(Entry),
    storage: impl FnOnce(&Path) -> Result<Storage, OpenError>,
) -> Result<Report, OpenError> {
    let path = dir.join(FILE);
    let newest = dir.join(FILE_NEWEST);
    let noted = newest::read(&newest).map_err(|source| OpenError::Io { path: newest.clone(), source })?;
    if let Err(source) = std::fs::metadata(&path) {
        return Err(match noted.revision() {
            Some(acknowledged) if source.kind() == io::ErrorKind::NotFound => {
                OpenError::Missing { path, acknowledged, newest }
            }
            _ => OpenError::Io { path, source },
        });
    }
    // Nobody can write to a store on a file system that is read-only, such as a snapshot.
    let _lock = match hold(dir) {
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => None,
        lock => Some(lock?),
    };
    let storage = storage(&path)?;
    let acknowledged = noted.revision();
    let Survey { mut faults, format, index, lost, n_unknown, stored, .. } =
        survey::survey(&storage, acknowledged.into()).map_err(refused(&path))?;
    if let Noted::Damaged(fault) = noted {
        faults.push(format!("{FILE_NEWEST} is damaged ({fault}): an older copy of the store would not be noticed"));
    }
    let lost = lost.into_iter().map(|lost| Damaged {
        key: lost.key,
        revision: Revision(lost.place.0),
        fault: "its value is lost".to_owned(),
    });
    let mut damaged: Vec<Damaged> = lost.collect();
    for (place, bytes) in stored.current() {
        let revision = Revision(place.0);
        let (key, value) = if format == FORMAT {
            match format::split(place, bytes) {
                Ok(parts) => (parts.head.key, parts.value(revision)),
                Err(malformed) => (&[][..], Err(malformed)),
            }
        } else {
            match old::split(revision, bytes) {
                Ok(parts) => (parts.key, parts.value(revision)),
                Err(malformed) => (&[][..], Err(malformed)),
            }
        };
        let key = Bytes::copy_from_slice(key);
        match value {
            Ok(value) => take(Entry { key, revision, value: value.unwrap_or_default() }),
            Err(malformed) => damaged.push(Damaged { key, revision, fault: malformed.fault.to_owned() }),
        }
    }
    damaged.sort_by(|a, b| a.key.cmp(&b.key));
    let revision = index.revision();
    let acknowledged = acknowledged.filter(|acknowledged| revision < *acknowledged);
    Ok(Report { acknowledged, damaged, faults, format, n_unknown, revision })
}
