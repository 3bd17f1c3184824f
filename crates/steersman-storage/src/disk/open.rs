//! The errors of an open, the lock of a directory, and the permissions of its files.

use crate::disk::file::damage::is_damage;
use crate::disk::format::FORMAT;
use crate::disk::survey::SurveyError;
use crate::kv::Cause;
use redb::DatabaseError;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_machinery::Revision;

const LOCK: &str = "store.lock";

/// The error of a directory that could not be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file lacks acknowledged changes: it is an older version of itself.
    #[error(
        "{path:?} ends at revision {found}, but revision {acknowledged} was acknowledged: restore a copy that is not older, or \
         remove {newest:?} to go on without the changes in between"
    )]
    Behind {
        /// The file.
        path: PathBuf,
        /// Its newest revision.
        found: Revision,
        /// The newest revision that was acknowledged.
        acknowledged: Revision,
        /// The file with that revision.
        newest: PathBuf,
    },
    /// The file is damaged, or is no store of this program.
    #[error(
        "{path:?} is damaged or no store of Steersman: restore it from a copy, or move it and store.newest away to start anew; \
         `steersman store check` says what is damaged"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: Cause,
    },
    /// The file was written by another version of this program.
    #[error("{path:?} has format {found}, this version reads format {want}: open it with the version that wrote it")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The format this version reads and writes.
        want: u64,
    },
    /// A process, possibly this one, has the directory open.
    #[error("another process holds {dir:?}: stop it, or choose another data directory")]
    Held {
        /// The directory.
        dir: PathBuf,
    },
    /// The newest commit is damaged, and not even the keys of all its changes are known.
    #[error(
        "{path:?} is damaged: its newest commit is lost, the one before it ends at revision {before}, and {missing}; \
         restore it from a copy, or move it and store.newest away to start anew"
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The newest revision of the commit before.
        before: Revision,
        /// The reason why the changes after that are unknown.
        missing: String,
    },
    /// The file is damaged and could not be rewritten, which needs room for a second file. It is unchanged.
    #[error("{path:?} is damaged and cannot be written anew as {new:?}: {}", way_out(source))]
    Rebuild {
        /// The file.
        path: PathBuf,
        /// The file that was to take its place. It is removed.
        new: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file could not be opened, read or written.
    #[error("{path:?} cannot be opened, read or written: mend the cause and start again")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is gone, but the file beside it says that changes were acknowledged.
    #[error(
        "{path:?} does not exist, but revision {acknowledged} was acknowledged: restore the file, or remove {newest:?} to start with an \
         empty store"
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The newest revision that was acknowledged.
        acknowledged: Revision,
        /// The file with that revision.
        newest: PathBuf,
    },
    /// The file was damaged and is written anew, but the disk has not confirmed the new file's name. The next start syncs the directory again.
    #[error(
        "{path:?} was damaged and is written anew, but {dir:?} cannot be synced: after a loss of power the damaged file may be there again, so \
         nothing is written to the new one; mend the cause and start again"
    )]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// The directory that has it.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Forces the names in a directory to the disk.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The advice for a file that cannot be written.
pub(super) fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::FileTooLarge => {
            "it would be larger than the process may write, so raise the limit of file sizes (ulimit -f) and start again"
        }
        io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull => {
            "the disk is full, so make room for a second file and start again"
        }
        _ => "mend the cause and start again, or restore the file from a copy",
    }
}

/// Makes a directory, for its owner alone, because stored data may be secret. The files are private for the same
/// reason.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

pub(super) fn private() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Locks the directory for this process. The lock lasts as long as the returned file.
pub(super) fn hold(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK);
    let opened = private().create(true).truncate(false).open(&path);
    let file = opened.map_err(|source| OpenError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Held { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

pub(super) fn damaged<E: Into<redb::Error>>(path: &Path) -> impl Fn(E) -> OpenError {
    move |error| {
        let error: redb::Error = error.into();
        OpenError::Damaged { path: path.to_owned(), source: Arc::new(error) }
    }
}

pub(super) fn behind(path: &Path, newest: &Path, found: Revision, acknowledged: Revision) -> OpenError {
    OpenError::Behind { path: path.to_owned(), found, acknowledged, newest: newest.to_owned() }
}

/// The error of a surveyed file that cannot be used.
pub(super) fn refused(path: &Path) -> impl Fn(SurveyError) -> OpenError {
    move |error| match error {
        SurveyError::Commit { before, missing } => {
            OpenError::Incomplete { path: path.to_owned(), before, missing: missing.to_string() }
        }
        SurveyError::Format { found } => OpenError::Format { path: path.to_owned(), found, want: FORMAT },
        SurveyError::Io(source) if !is_damage(&source) => OpenError::Io { path: path.to_owned(), source },
        error => OpenError::Damaged { path: path.to_owned(), source: Arc::new(error) },
    }
}

pub(super) fn opening(path: &Path) -> impl Fn(DatabaseError) -> OpenError {
    move |error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Held { dir: path.parent().unwrap_or(path).to_owned() },
        // redb returns invalid data for a file that was overwritten.
        DatabaseError::Storage(redb::StorageError::Io(source))
            if source.kind() != io::ErrorKind::InvalidData && !is_damage(&source) =>
        {
            OpenError::Io { path: path.to_owned(), source }
        }
        error => damaged(path)(error),
    }
}
