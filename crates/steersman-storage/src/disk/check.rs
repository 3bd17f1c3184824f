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
pub fn check(dir: &Path, mut take: impl FnMut(Entry)) -> Result<Report, OpenError> {
    read(dir, |_| (), |(), entry| take(entry)).map(|(report, ())| report)
}

/// Reads the store in a directory that no process has open, of this format or an older one, and changes nothing. `begin` gets its revision, and
/// `take` all current entries after that, in the order of their revisions. All that is damaged is in the report.
///
/// It holds the whole store in memory, as a start does.
///
/// # Errors
/// When the store is open, does not exist, or is so damaged that the lost changes are unknown.
pub fn read<T>(
    dir: &Path,
    begin: impl FnOnce(Revision) -> T,
    take: impl FnMut(&mut T, Entry),
) -> Result<(Report, T), OpenError> {
    read_on(dir, begin, take, Storage::file)
}

/// [`read`] with a storage that `storage` makes of a path, so that a test can make it fail.
pub(super) fn read_on<T>(
    dir: &Path,
    begin: impl FnOnce(Revision) -> T,
    mut take: impl FnMut(&mut T, Entry),
    storage: impl FnOnce(&Path) -> Result<Storage, OpenError>,
) -> Result<(Report, T), OpenError> {
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
    let revision = index.revision();
    let mut state = begin(revision);
    for (place, bytes) in stored.current() {
        let written_at = Revision(place.0);
        let (key, value) = if format == FORMAT {
            match format::split(place, bytes) {
                Ok(parts) => (parts.head.key, parts.value(written_at)),
                Err(malformed) => (&[][..], Err(malformed)),
            }
        } else {
            match old::split(written_at, bytes) {
                Ok(parts) => (parts.key, parts.value(written_at)),
                Err(malformed) => (&[][..], Err(malformed)),
            }
        };
        let key = Bytes::copy_from_slice(key);
        match value {
            Ok(value) => take(&mut state, Entry { key, revision: written_at, value: value.unwrap_or_default() }),
            Err(malformed) => damaged.push(Damaged { key, revision: written_at, fault: malformed.fault.to_owned() }),
        }
    }
    damaged.sort_by(|a, b| a.key.cmp(&b.key));
    let acknowledged = acknowledged.filter(|acknowledged| revision < *acknowledged);
    Ok((Report { acknowledged, damaged, faults, format, n_unknown, revision }, state))
}
