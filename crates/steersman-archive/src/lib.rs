//! Reads a dump of a cluster: its objects as entries of a store, and the logs of its containers.
//!
//! ```text
//! a file or directory ── source      by its content: a snapshot of etcd, a backup, a tree of files (a directory, a tar), documents
//!                          │
//!                          ├─ logs      where the log of each container is; read when somebody asks
//!                          │
//!                        objects     which resource each object is of, definitions made up for unknown kinds, the stored form
//!                          │
//!                        Archive     entries at their revisions, for an engine in memory
//! ```
//!
//! Objects stay as they are in the dump: uid, resourceVersion, status and managedFields too. Nothing is defaulted or validated, except for
//! what kube-apiserver does itself when it reads its etcd.
//!
//! A dump may be hostile. [`Limits`] bound what is read of it, in bytes and in number; names of files are never joined to a path that is
//! written, links are not followed, and no work is more than linear in the size of a dump but for sorting.
//!
//! Deliberately not here: HTTP, servers, and whatever is done with the entries.

mod error;
mod limits;
mod logs;
mod objects;
mod options;
mod source;

pub use crate::error::{DocumentError, OpenError};
pub use crate::limits::Limits;
pub use crate::logs::{Container, Lines, LogError, LogOptions, Logs, Run};
pub use crate::objects::LeftOut;
pub use crate::options::{Options, Redaction};
pub use crate::source::layout::{LAYOUTS, Layout, Place, plain_place};
pub use crate::source::recognized::{Recognized, recognize};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use crate::source::{documents::fuzz_documents, tree::fuzz_tar};

use crate::objects::Objects;
use crate::source::Source;
use std::path::Path;
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;

/// A dump that was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Archive {
    /// The format, for people, such as `a must-gather`.
    pub format: &'static str,
    /// The objects under the keys of a store, in the stored form of Steersman.
    pub entries: Vec<Entry>,
    /// The revision of the state: that of no entry is greater.
    pub revision: Revision,
    /// The revisions whose states a snapshot of etcd has, from the oldest to the newest.
    pub history: Option<(Revision, Revision)>,
    /// The logs of containers.
    pub logs: Logs,
    /// The kinds for which there was no definition, as `PLURAL.GROUP`.
    pub made_up: Vec<String>,
    /// The objects of the dump that are not among the entries.
    pub left_out: LeftOut,
    /// Sentences about the dump as a whole, for whoever opens it.
    pub notes: Vec<String>,
}

/// Reads a dump. `scratch` is a directory for what must be unpacked, such as the logs in a compressed tar; nothing that is put there has
/// a name. Blocks.
///
/// # Errors
/// When it is damaged, encrypted, too large or nothing that is known, each in one sentence.
pub fn open(path: &Path, scratch: &Path, options: &Options) -> Result<Archive, OpenError> {
    let Source { format, found, logs, history, notes } = Source::read(path, scratch, options)?;
    let Objects { entries, revision, made_up, left_out } = Objects::of(found, path, options)?;
    Ok(Archive { format, entries, revision, history, logs, made_up, left_out, notes })
}
