//! Why a dump cannot be opened: one sentence each, with the way out.

use std::io;
use std::path::PathBuf;
use steersman_machinery::Revision;
use steersman_storage::backup;
use steersman_storage_etcd::SnapshotError;

/// Why a dump cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A backup of Steersman is damaged.
    #[error("{path:?} is damaged: {fault}; `steersman backup --verify` names all that is damaged")]
    Backup {
        /// The file.
        path: PathBuf,
        /// The first fault.
        #[source]
        fault: backup::Fault,
    },
    /// A document has objects that cannot be read.
    #[error("{path:?} cannot be read: {source}")]
    Document {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: DocumentError,
    },
    /// There is nothing in it.
    #[error("{path:?} is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// All values are encrypted.
    #[error(
        "all values in {path:?} are encrypted at rest ({prefix}), and their key is not in it: ask its server for the objects, with `kubectl get -A -o yaml` or a backup"
    )]
    Encrypted {
        /// The file.
        path: PathBuf,
        /// The beginning of the values.
        prefix: String,
    },
    /// It cannot be read.
    #[error("{path:?} cannot be read: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It has more than is read.
    #[error("{path:?} is refused, because it has more than {limit} {of}")]
    Limit {
        /// The file or directory.
        path: PathBuf,
        /// The limit.
        limit: u64,
        /// The things that are counted.
        of: &'static str,
    },
    /// It is neither a file nor a directory.
    #[error("{path:?} is neither a file nor a directory: write what comes out of it to a file, and open that")]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// There are no objects in it.
    #[error("{path:?} has no objects of Kubernetes: {}", KNOWN)]
    NoObjects {
        /// The file or directory.
        path: PathBuf,
    },
    /// A file that is read in any order is compressed.
    #[error("{path:?} is compressed: unpack it with gunzip first")]
    Packed {
        /// The file.
        path: PathBuf,
    },
    /// Only snapshots of etcd have several states.
    #[error("{path:?} is {format}, which has one state only: leave out --at {requested}")]
    Revision {
        /// The file or directory.
        path: PathBuf,
        /// The format of the dump.
        format: &'static str,
        /// The revision.
        requested: Revision,
    },
    /// A snapshot of etcd is damaged, or does not have a revision.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A compressed file or a tar ends too early, or is damaged.
    #[error("{path:?} is damaged or ends too early, {at}: {source}; use another copy")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// How far it could be read.
        at: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is nothing that is known.
    #[error("{path:?} is nothing that can be opened: {}", KNOWN)]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

/// The formats, for a sentence.
const KNOWN: &str = "want a snapshot of etcd, the output of `kubectl get -o yaml` or `-o json`, a must-gather, a Velero backup, a support bundle, the directory of `kubectl cluster-info dump` or a backup of Steersman";

/// Why a document with objects cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Its JSON is damaged.
    #[error("its JSON is damaged or cut off, {0}")]
    Json(String),
    /// It has more than is read.
    #[error("it has more than {limit} {of}")]
    Limit {
        /// The limit.
        limit: u64,
        /// The things that are counted.
        of: &'static str,
    },
    /// It is no text.
    #[error("it is neither JSON nor YAML")]
    Text,
    /// Its YAML is damaged.
    #[error("its YAML is damaged, {0}")]
    Yaml(String),
}
