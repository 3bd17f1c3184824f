//! Rewrites a damaged store: undamaged current changes go into a new file, and the heads of lost ones, which mark their
//! keys as damaged. History is dropped. The damaged file is kept beside the new one.
//!
//! If that fails, for example because the disk is full, the damaged file stays in its place and the half-written one is removed. If only
//! the sync of the directory fails, the new file is in its place, and nothing may be written to it: a loss of power may take it away.

use crate::disk::open::{OpenError, private, sync_dir};
use crate::disk::survey::Survey;
use crate::disk::{FILE, FILE_DAMAGED, FILE_NEW, PAGE_CACHE_BYTES, format, remove};
use redb::backends::FileBackend;
use redb::{Builder, DatabaseError, StorageBackend};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use steersman_machinery::Revision;

/// The most lost keys that are logged individually.
const LOGGED_MAX: usize = 100;

/// Replaces the file in a directory.
pub(in crate::disk) fn rebuild(dir: &Path, survey: &Survey, newest: Revision) -> Result<(), OpenError> {
    rebuild_on(dir, survey, newest, FileBackend::new, sync_dir)
}

/// [`rebuild`] with a storage that `storage` makes of the new file, and with `sync` for the directory, so that a test can make them fail.
fn rebuild_on<B: StorageBackend>(
    dir: &Path,
    survey: &Survey,
    newest: Revision,
    storage: impl FnOnce(File) -> Result<B, DatabaseError>,
    sync: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), OpenError> {
    let (path, new, kept) = (dir.join(FILE), dir.join(FILE_NEW), dir.join(FILE_DAMAGED));
    for fault in survey.faults.iter().take(LOGGED_MAX) {
        tracing::error!(path = %path.display(), "the store is damaged: {fault}");
    }
    let replaced =
        remove(&new).and_then(|()| write(&new, survey, newest, storage)).and_then(|()| exchange(&path, &new, &kept));
    if let Err(source) = replaced {
        // The half-written file takes room that others need on a full disk.
        if let Err(error) = remove(&new) {
            tracing::warn!(path = %new.display(), "a half-written file cannot be removed: {error}");
        }
        return Err(OpenError::Rebuild { path, new, source });
    }
    for lost in survey.lost.iter().take(LOGGED_MAX) {
        let key = String::from_utf8_lossy(&lost.key);
        tracing::error!(%key, revision = lost.place.0, "the value of a key is lost: delete it, or restore it from a copy");
    }
    tracing::error!(
        n_lost = survey.lost.len() as u64 + survey.n_unknown,
        kept = %kept.display(),
        "the store was damaged and is written anew: everything else is served, history is gone, and the damaged file is kept"
    );
    sync(dir).map_err(|source| OpenError::Unsynced { path, dir: dir.to_owned(), source })
}

/// Writes the new file, durably, and closes it.
fn write<B: StorageBackend>(
    new: &Path,
    survey: &Survey,
    newest: Revision,
    storage: impl FnOnce(File) -> Result<B, DatabaseError>,
) -> io::Result<()> {
    let file = private().create_new(true).read(true).open(new)?;
    let storage = storage(file).map_err(cause)?;
    let database = Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_with_backend(storage).map_err(cause)?;
    format::initialize(&database).map_err(cause)?;
    let lost = survey.lost.iter().map(|lost| (lost.place, &*lost.head));
    format::fill(&database, newest, survey.stored.current(), lost).map_err(cause)
}

/// Puts the new file in the place of the damaged one. That has both names for a moment, so that a store always exists under the right one.
fn exchange(path: &Path, new: &Path, kept: &Path) -> io::Result<()> {
    remove(kept)?;
    if fs::hard_link(path, kept).is_err()
        && let Err(error) = fs::copy(path, kept)
    {
        // A part of the file is of no use. The first error is returned.
        let _left = remove(kept);
        return Err(error);
    }
    fs::rename(new, path)
}

fn cause(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::storage::Storage;
    use crate::disk::newer::Acknowledged;
    use crate::disk::{Disk, Intercepted, Operation, poisoned, survey};
    use crate::kv::{Error, Kv, Op, Remedy, Txn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_disk_that_is_full_at_any_moment_leaves_the_file_as_it_was_and_nothing_beside_it() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let disk = Disk::open(dir).unwrap();
        for n in 0..20 {
            let op = Op::Put { key: format!("key-{n}").into(), value: vec![b'v'; 9_000].into() };
            disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.unwrap();
        }
        disk.close().await.unwrap();
        let (path, new) = (dir.join(FILE), dir.join(FILE_NEW));
        let image = fs::read(&path).unwrap();
        let storage = Storage::file(&path).unwrap();
        let survey = survey::survey(&storage, Acknowledged::Unknown).ok().unwrap();
        for n_done in 0.. {
            let n_left = AtomicUsize::new(n_done);
            let rebuilt = rebuild_on(
                dir,
                &survey,
                Revision(20),
                |file| {
                    let full = move |operation| match operation {
                        Operation::Read => Ok(()),
                        _ if n_left
                            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                            .is_ok() =>
                        {
                            Ok(())
                        }
                        _ => Err(io::ErrorKind::StorageFull.into()),
                    };
                    Ok(Intercepted::new(FileBackend::new(file)?, full))
                },
                sync_dir,
            );
            let Err(error) = rebuilt else {
                // The last writes are those of the close, after which a crash would leave the file whole.
                assert!(9 < n_done, "it failed {n_done} times");
                break;
            };
            assert!(!new.exists(), "a half-written file is left after {n_done} operations");
            assert_eq!(fs::read(&path).unwrap(), image);
            let want = format!(
                "{path:?} is damaged and cannot be written anew as {new:?}: the disk is full, so make room for a second file and start again"
            );
            assert_eq!(error.to_string(), want, "after {n_done} operations");
        }
        assert!(!new.exists() && dir.join(FILE_DAMAGED).exists());
        assert_eq!(Disk::open(dir).unwrap().read().await.unwrap().entries.len(), 20);
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_synced_is_an_error_that_says_that_the_new_file_is_in_place() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        Disk::open(dir).unwrap().close().await.unwrap();
        let (path, kept) = (dir.join(FILE), dir.join(FILE_DAMAGED));
        let before = fs::read(&path).unwrap();
        let storage = Storage::file(&path).unwrap();
        let survey = survey::survey(&storage, Acknowledged::Unknown).ok().unwrap();
        let failing = |_: &Path| Err(io::Error::from_raw_os_error(5));
        let error = rebuild_on(dir, &survey, Revision(20), FileBackend::new, failing).unwrap_err();
        let want = format!(
            "{path:?} was damaged and is written anew, but {dir:?} cannot be synced: after a loss of power the damaged file may be there again, so \
             nothing is written to the new one; mend the cause and start again"
        );
        assert_eq!(error.to_string(), want);
        assert!(fs::read(&kept).unwrap() == before && fs::read(&path).unwrap() != before);
        assert!(!dir.join(FILE_NEW).exists());
        let cause: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
        assert!(matches!(poisoned(&cause), Error::Poisoned { remedy: Remedy::Restart, .. }));
    }

    #[tokio::test]
    async fn what_a_process_that_was_killed_has_half_written_is_removed_at_the_next_open() {
        let scratch = tempfile::tempdir().unwrap();
        Disk::open(scratch.path()).unwrap().close().await.unwrap();
        fs::write(scratch.path().join(FILE_NEW), "half").unwrap();
        Disk::open(scratch.path()).unwrap().close().await.unwrap();
        assert!(!scratch.path().join(FILE_NEW).exists());
    }
}
