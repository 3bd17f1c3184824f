//! Makes the store of a directory out of entries, at a revision that is later than theirs and without history before it.
//!
//! The file is made under another name. Before that, the file beside it gets the revision that the store will have, so that what an
//! interrupted restore leaves behind is no empty store: it is refused as one whose file is missing. A restore that fails, or is
//! dropped, leaves the directory as it was.

use crate::backup::RESTORED_REVISION_MAX;
use crate::disk::format::{self, EVENTS, FILL_BYTES, HEADS, META, Position};
use crate::disk::newest::{self, Noted};
use crate::disk::open::{OpenError, hold, make_dir, private, sync_dir, way_out};
use crate::disk::{FILE, FILE_NEW, FILE_NEWEST, PAGE_CACHE_BYTES, remove};
use crate::kv::{Entry, KEY_BYTES_MAX, TXN_OPS_MAX, VALUE_BYTES_MAX};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadableTable, StorageBackend};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use steersman_machinery::Revision;

/// The error of a restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory had a store that reached a later revision.
    #[error(
        "{newest:?} says that revision {noted} was acknowledged in this directory, and the restored store would be at {revision}: restore \
         with a larger jump (--bump-revision), or into another directory"
    )]
    Behind {
        /// The file with the revision.
        newest: PathBuf,
        /// The revision in it.
        noted: Revision,
        /// The revision that the store would have.
        revision: Revision,
    },
    /// An entry cannot be stored.
    #[error("the entry {key:?} at revision {revision} cannot be restored: {fault}")]
    Entry {
        /// Its key.
        key: String,
        /// Its revision.
        revision: Revision,
        /// The fault.
        fault: &'static str,
    },
    /// The directory has a store.
    #[error("{path:?} exists already: restore into an empty data directory, or move the old one away")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The directory is held by a process, or cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The revision leaves no room for later ones.
    #[error("a store at revision {revision} has no room for later ones: choose a smaller jump (--bump-revision)")]
    TooLate {
        /// The revision.
        revision: Revision,
    },
    /// The file cannot be written. The directory is as it was.
    #[error("{path:?} cannot be written: {}", way_out(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The store is in its place, but the disk has not confirmed its name.
    #[error(
        "{dir:?} cannot be synced: the store is restored, and after a loss of power it may be gone; mend the cause and restore again"
    )]
    Unsynced {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A store that is being made. Blocks while it writes.
#[derive(Debug)]
pub struct Restore {
    /// `None` once the file is complete.
    database: Option<Database>,
    dir: PathBuf,
    /// The earlier content of the file with the newest revision, to be put back; `None` if there was no such file.
    noted: Option<Vec<u8>>,
    pending: Vec<Entry>,
    pending_bytes: usize,
    revision: Revision,
    _lock: File,
}

impl Restore {
    /// Begins a store that will be at a revision.
    ///
    /// # Errors
    /// When the directory has a store, or is held by a process.
    pub fn begin(dir: &Path, revision: Revision) -> Result<Restore, RestoreError> {
        Restore::begin_on(dir, revision, FileBackend::new)
    }

    /// [`Restore::begin`] with a storage that `storage` makes of the file, so that a test can make it fail.
    fn begin_on<B: StorageBackend>(
        dir: &Path,
        revision: Revision,
        storage: impl FnOnce(File) -> Result<B, DatabaseError>,
    ) -> Result<Restore, RestoreError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        if RESTORED_REVISION_MAX < revision {
            return Err(RestoreError::TooLate { revision });
        }
        make_dir(dir).map_err(at(dir))?;
        let lock = hold(dir)?;
        let (path, newest) = (dir.join(FILE), dir.join(FILE_NEWEST));
        if path.try_exists().map_err(at(&path))? {
            return Err(RestoreError::Exists { path });
        }
        if let Noted::Revision(noted) = newest::read(&newest).map_err(at(&newest))?
            && revision < noted
        {
            return Err(RestoreError::Behind { newest, noted, revision });
        }
        let noted = newest.try_exists().map_err(at(&newest))?.then(|| fs::read(&newest)).transpose();
        let noted = noted.map_err(at(&newest))?;
        // From here on a drop puts everything back.
        let (pending, dir) = (Vec::new(), dir.to_owned());
        let mut restore = Restore { database: None, dir, noted, pending, pending_bytes: 0, revision, _lock: lock };
        match restore.create(storage) {
            Ok(database) => restore.database = Some(database),
            Err(source) => {
                restore.put_back();
                return Err(RestoreError::Write { path: restore.new_path(), source });
            }
        }
        Ok(restore)
    }

    fn create<B: StorageBackend>(
        &self,
        storage: impl FnOnce(File) -> Result<B, DatabaseError>,
    ) -> io::Result<Database> {
        let new = self.new_path();
        remove(&new)?;
        let mut newest = private().create(true).truncate(true).open(self.dir.join(FILE_NEWEST))?;
        newest.write_all(&newest::encode(self.revision))?;
        newest.sync_all()?;
        sync_dir(&self.dir)?;
        let storage = storage(private().create_new(true).read(true).open(&new)?).map_err(cause)?;
        let database = Builder::new().set_cache_size(PAGE_CACHE_BYTES).create_with_backend(storage).map_err(cause)?;
        format::initialize(&database).map_err(cause)?;
        Ok(database)
    }

    /// Adds entries. No key may come twice.
    ///
    /// # Errors
    /// When an entry is not one of a store, or the file cannot be written.
    pub fn put(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        for entry in entries {
            let fault = match &entry {
                Entry { key, .. } if key.is_empty() || KEY_BYTES_MAX < key.len() => "its key is empty or too long",
                Entry { value, .. } if VALUE_BYTES_MAX < value.len() => "its value is too long",
                Entry { revision, .. } if !(1..=self.revision.0).contains(&revision.0) => {
                    "its revision is not one before that of the store"
                }
                _ => {
                    self.pending_bytes += entry.key.len() + entry.value.len();
                    self.pending.push(entry);
                    continue;
                }
            };
            return Err(refused(&entry, fault));
        }
        if FILL_BYTES <= self.pending_bytes { self.flush(Stage::Before) } else { Ok(()) }
    }

    /// Completes the store. Until this returns, no process can open it.
    ///
    /// # Errors
    /// When the file cannot be written; then the directory is as it was.
    pub fn finish(mut self) -> Result<(), RestoreError> {
        self.flush(Stage::Last)?;
        // redb writes at its end too.
        let database = self.database.take();
        drop(database);
        let (new, path) = (self.new_path(), self.dir.join(FILE));
        let placed = File::open(&new).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&new, &path));
        if let Err(source) = placed {
            self.put_back();
            return Err(RestoreError::Write { path: new, source });
        }
        sync_dir(&self.dir).map_err(|source| RestoreError::Unsynced { dir: self.dir.clone(), source })
    }

    fn new_path(&self) -> PathBuf {
        self.dir.join(FILE_NEW)
    }

    fn flush(&mut self, stage: Stage) -> Result<(), RestoreError> {
        let path = self.new_path();
        let written = |error: redb::Error| RestoreError::Write { path: path.clone(), source: cause(error) };
        let Some(database) = &self.database else { return Ok(()) };
        let transaction = format::begin(database).map_err(written)?;
        let filled = |error: redb::StorageError| written(error.into());
        {
            let mut events = transaction.open_table(EVENTS).map_err(|error| written(error.into()))?;
            let mut heads = transaction.open_table(HEADS).map_err(|error| written(error.into()))?;
            for entry in self.pending.drain(..) {
                let mut place = (entry.revision.0, 0);
                while events.get(place).map_err(filled)?.is_some() {
                    place.1 += 1;
                    if TXN_OPS_MAX <= place.1 as usize {
                        return Err(refused(&entry, "too many entries have its revision"));
                    }
                }
                let mut stored = format::encode(&entry.key, Some(&entry.value));
                format::seal(&mut stored, place, None, Position::Last);
                events.insert(place, stored.as_slice()).map_err(filled)?;
                heads.insert(place, format::head_of(&stored)).map_err(filled)?;
            }
            if stage == Stage::Last {
                let mut meta = transaction.open_table(META).map_err(|error| written(error.into()))?;
                format::finish_history(&mut meta, self.revision).map_err(written)?;
            }
        }
        self.pending_bytes = 0;
        transaction.commit().map_err(|error| written(error.into()))
    }

    /// Removes what was made. The file with the newest revision is the last one to be put back: until then nothing can be opened.
    fn put_back(&mut self) {
        self.database.take();
        let (new, newest) = (self.new_path(), self.dir.join(FILE_NEWEST));
        let put_back = remove(&new).and_then(|()| match &self.noted {
            Some(noted) => fs::write(&newest, noted),
            None => remove(&newest),
        });
        if let Err(error) = put_back {
            tracing::warn!(dir = %self.dir.display(), "what a restore has left behind cannot be removed: {error}");
        }
    }
}

/// The part of a file that a transaction writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Before,
    Last,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // A finished one has no database any more.
        if self.database.is_some() {
            self.put_back();
        }
    }
}

fn refused(entry: &Entry, fault: &'static str) -> RestoreError {
    RestoreError::Entry { key: String::from_utf8_lossy(&entry.key).into_owned(), revision: entry.revision, fault }
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
    use crate::disk::{Disk, Intercepted, Operation};
    use crate::kv::{Error, Expect, Kv, Op, Outcome, Txn};
    use bytes::Bytes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const REVISION: Revision = Revision(1_000);

    fn entries() -> Vec<Entry> {
        let entry = |n: u64| Entry {
            key: Bytes::from(format!("key-{n:02}")),
            // Some of them are of one transaction.
            revision: Revision(1 + n / 2),
            value: vec![b'v'; 100 * n as usize].into(),
        };
        (0..20).map(entry).collect()
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "store.lock").collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_restored_store_has_the_entries_and_no_history_and_goes_on_after_its_revision() {
        let scratch = tempfile::tempdir().unwrap();
        let mut restore = Restore::begin(scratch.path(), REVISION).unwrap();
        restore.put(entries()).unwrap();
        assert!(matches!(Disk::open(scratch.path()), Err(OpenError::Held { .. })));
        restore.finish().unwrap();
        assert_eq!(names(scratch.path()), [FILE_NEWEST, FILE]);
        let disk = Disk::open(scratch.path()).unwrap();
        let snapshot = disk.read().await.unwrap();
        assert_eq!((snapshot.entries, snapshot.revision), (entries(), REVISION));
        assert_eq!(disk.oldest().await.unwrap(), REVISION);
        for old in [1, 10, 999] {
            let gone = disk.watch(Revision(old)).next().await;
            assert!(matches!(gone, Err(Error::Compacted { .. })), "{old}: {gone:?}");
        }
        let op = Op::Put { key: "key-03".into(), value: "new".into() };
        let outcome = disk.txn(Txn::single(Expect::At(Revision(2)), op)).await.unwrap();
        assert_eq!(outcome, Outcome::Committed { revision: Revision(1_001) });
        disk.close().await.unwrap();
        assert!(matches!(Restore::begin(scratch.path(), REVISION), Err(RestoreError::Exists { .. })));
    }

    #[tokio::test]
    async fn a_restore_that_fails_at_any_step_leaves_the_directory_as_it_was() {
        for noted in [None, Some(Revision(7))] {
            for n_done in 0.. {
                let scratch = tempfile::tempdir().unwrap();
                let dir = scratch.path();
                if let Some(noted) = noted {
                    fs::write(dir.join(FILE_NEWEST), newest::encode(noted)).unwrap();
                }
                let before = names(dir);
                let n_left = AtomicUsize::new(n_done);
                let full = move |operation| match operation {
                    Operation::Read => Ok(()),
                    _ if n_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() => {
                        Ok(())
                    }
                    _ => Err(io::ErrorKind::StorageFull.into()),
                };
                let begun =
                    Restore::begin_on(dir, REVISION, |file| Ok(Intercepted::new(FileBackend::new(file)?, full)));
                let restored = begun.and_then(|mut restore| {
                    restore.put(entries())?;
                    restore.finish()
                });
                let Err(error) = restored else {
                    assert!(9 < n_done, "it failed {n_done} times");
                    assert_eq!(Disk::open(dir).unwrap().read().await.unwrap().entries, entries());
                    break;
                };
                assert!(error.to_string().contains("the disk is full"), "after {n_done} operations: {error}");
                assert_eq!(names(dir), before, "after {n_done} operations");
                if let Some(noted) = noted {
                    assert_eq!(newest::read(&dir.join(FILE_NEWEST)).unwrap(), Noted::Revision(noted));
                }
            }
        }
    }

    #[tokio::test]
    async fn what_a_killed_restore_leaves_behind_is_not_opened_and_can_be_restored_over() {
        let mut n_killed = 0;
        for n_done in 0..40 {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path();
            let n_left = Arc::new(AtomicUsize::new(n_done));
            // After a number of operations nothing reaches the disk any more, as if the process had been killed.
            let left = n_left.clone();
            let killed = move |operation| match operation {
                Operation::Read => Ok(()),
                _ if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() => Ok(()),
                _ => Err(io::Error::other("killed")),
            };
            let begun = Restore::begin_on(dir, REVISION, |file| Ok(Intercepted::new(FileBackend::new(file)?, killed)));
            let Ok(mut restore) = begun else { continue };
            n_killed += 1;
            let ended = restore.put(entries()).and_then(|()| restore.flush(Stage::Last));
            // The files stay as they are, and the lock ends as with a process.
            let left = [FILE_NEW, FILE_NEWEST].map(|name| (dir.join(name), fs::read(dir.join(name)).unwrap()));
            drop(restore);
            left.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
            let opened = Disk::open(dir);
            assert!(matches!(opened, Err(OpenError::Missing { .. })), "{n_done} {ended:?}: {opened:?}");
            let mut again = Restore::begin(dir, REVISION).unwrap();
            again.put(entries()).unwrap();
            again.finish().unwrap();
            assert_eq!(Disk::open(dir).unwrap().read().await.unwrap().entries, entries());
        }
        assert!(9 < n_killed, "{n_killed} were killed after they had begun");
    }

    #[test]
    fn a_restore_does_not_go_back_behind_what_was_acknowledged_in_its_directory() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(FILE_NEWEST), newest::encode(Revision(1_001))).unwrap();
        let error = Restore::begin(scratch.path(), REVISION).unwrap_err();
        assert!(error.to_string().contains("revision 1001 was acknowledged"), "{error}");
        drop(Restore::begin(scratch.path(), Revision(1_001)).unwrap());
        assert!(matches!(Restore::begin(scratch.path(), Revision(1 << 60)), Err(RestoreError::TooLate { .. })));
    }

    #[test]
    fn an_entry_that_no_store_can_have_is_refused() {
        let entry = |key: &str, revision, bytes| Entry {
            key: Bytes::copy_from_slice(key.as_bytes()),
            revision: Revision(revision),
            value: vec![0; bytes].into(),
        };
        for (wrong, fault) in [
            (entry("", 1, 1), "its key is empty or too long"),
            (entry(&"k".repeat(KEY_BYTES_MAX + 1), 1, 1), "its key is empty or too long"),
            (entry("a", 1, VALUE_BYTES_MAX + 1), "its value is too long"),
            (entry("a", 0, 1), "its revision is not one before that of the store"),
            (entry("a", 1_001, 1), "its revision is not one before that of the store"),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let mut restore = Restore::begin(scratch.path(), REVISION).unwrap();
            let error = restore.put(vec![wrong]).unwrap_err();
            assert!(error.to_string().ends_with(fault), "{error}");
            drop(restore);
            assert_eq!(names(scratch.path()), [""; 0]);
        }
    }
}
