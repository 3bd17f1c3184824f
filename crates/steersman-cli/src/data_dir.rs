//! The data directory: its lock, and the paths in it.

pub(crate) mod files;
pub(crate) mod kubeconfig;
pub(crate) mod pki;
pub(crate) mod renewal;
pub(crate) mod shared_ca;

use crate::Failure;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";

/// A data directory that this process alone uses.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// Locked for as long as the process lives.
    _lock: File,
}

impl DataDir {
    /// The subdirectory of the objects.
    pub(crate) const STORE: &str = "store";
    /// The kubeconfig of the administrator.
    pub(crate) const KUBECONFIG: &str = "kubeconfig";
    /// The subdirectory of the certificates.
    pub(crate) const PKI: &str = "pki";

    /// Refuses a directory that another process holds. Changes nothing.
    pub(crate) fn check_free(path: &Path) -> Result<(), Failure> {
        if DataDir::is_held(path) { Err(held(path)) } else { Ok(()) }
    }

    /// Whether another process holds a directory. Changes nothing.
    pub(crate) fn is_held(path: &Path) -> bool {
        // `take` creates a missing directory, and refuses an unreadable one.
        matches!(File::open(path.join(LOCK)).map(|lock| lock.try_lock()), Ok(Err(TryLockError::WouldBlock)))
    }

    /// Locks a directory, creating it if it does not exist.
    pub(crate) fn take(path: &Path) -> Result<DataDir, Failure> {
        let refused = |what: &str, error: std::io::Error| {
            Failure::Refused(format!(
                "cannot {what} the data directory {}: {error}; choose another with --data-dir",
                path.display()
            ))
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| refused("make", error))?;
        let path = path.canonicalize().map_err(|error| refused("find", error))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path.join(LOCK));
        let lock = lock.map_err(|error| refused("write to", error))?;
        match lock.try_lock() {
            Ok(()) => Ok(DataDir { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(held(&path)),
            Err(TryLockError::Error(error)) => Err(refused("lock", error)),
        }
    }

    /// The directory, as an absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.path.join(DataDir::PKI)
    }

    /// The directory of the keys of ServiceAccount tokens.
    pub(crate) fn account_keys(&self) -> PathBuf {
        self.pki().join("service-accounts")
    }

    /// The directory of the objects.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join(DataDir::STORE)
    }

    /// The kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join(DataDir::KUBECONFIG)
    }
}

fn held(path: &Path) -> Failure {
    Failure::Refused(format!(
        "another process holds the data directory {}: stop it, or choose another directory with --data-dir",
        path.display()
    ))
}
