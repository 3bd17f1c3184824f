//! The errors of the store.

use crate::key::KeyError;
use crate::kv;
use std::sync::Arc;
use steersman_machinery::object::DecodeError;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};

/// The error of a store that did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine could not be read.
    #[error("the store cannot be read")]
    Kv(#[source] kv::Error),
}

/// The error of a write. Nothing was written, except that this is unknown with [`kv::Error::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The key has an object already.
    #[error("{} exists already", .current.key)]
    AlreadyExists {
        /// The existing object.
        current: Arc<Object>,
    },
    /// Too many writes wait already. Nothing was done; try again shortly.
    #[error("the store's write queue is full: try again shortly")]
    Busy,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The object is no longer at the revision that the writer read.
    #[error("the object was changed or deleted since it was read")]
    Conflict {
        /// The current object; `None` if it was deleted.
        current: Option<Arc<Object>>,
    },
    /// Another object that the write depends on was changed or deleted since it was read. Nothing was done: read that
    /// object again.
    #[error("{resource} {key} was changed or deleted since it was read")]
    Guard {
        /// Its resource.
        resource: GroupResource,
        /// Its key.
        key: ObjectKey,
        /// The current object; `None` if it was deleted.
        current: Option<Arc<Object>>,
    },
    /// The store takes no key of this form. The source says which part is wrong.
    #[error("the store takes no object with this key")]
    Key(#[source] KeyError),
    /// The engine failed. The source says whether anything was written, and what to do.
    #[error("the store could not make the write")]
    Kv(#[source] kv::Error),
    /// The content cannot be decoded as an object. The source says why.
    #[error("the content cannot be decoded as an object")]
    Object(#[source] DecodeError),
    /// A part of the object exceeds a limit.
    #[error("{what} of {actual} exceeds the maximum of {max}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// The entry under the key is damaged or no object, so the content that would be overwritten is unknown.
    #[error(
        "the object {key}, stored at revision {revision}, cannot be read: if it is encrypted, give the server its key; otherwise restore it from a copy of the store, or delete it"
    )]
    Unreadable {
        /// The key.
        key: ObjectKey,
        /// The revision that wrote it.
        revision: Revision,
    },
}

/// The error of a read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The store was closed, or can no longer follow its log.
    #[error("the store is closed")]
    Closed,
    /// History from before this revision is gone. Start over from the current state; retrying cannot help.
    #[error("revision {requested} is compacted (oldest is {oldest})")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The engine failed.
    #[error("the store cannot be read")]
    Kv(#[source] kv::Error),
    /// The entry under the key is damaged or no object.
    #[error(
        "the object {key}, stored at revision {revision}, cannot be read: if it is encrypted, give the server its key; otherwise restore it from a copy of the store, or delete it"
    )]
    Unreadable {
        /// The key.
        key: ObjectKey,
        /// The revision that wrote it.
        revision: Revision,
    },
    /// The revision does not exist yet. Wait for it first.
    #[error("revision {requested} is of the future (current is {current})")]
    TooLarge {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
}

/// The error of waiting for a revision.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WaitError {
    /// The store was closed, or can no longer follow its log.
    #[error("the store is closed")]
    Closed,
    /// The revision did not exist within the time limit.
    #[error("revision {requested} is of the future (current is {current})")]
    TooLarge {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
}

impl From<kv::Error> for WriteError {
    fn from(error: kv::Error) -> WriteError {
        match error {
            kv::Error::Busy => WriteError::Busy,
            kv::Error::Closed => WriteError::Closed,
            kv::Error::TooLarge { what, actual, max } => WriteError::TooLarge { what, actual, max },
            error => WriteError::Kv(error),
        }
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> WriteError {
        match error {
            ReadError::Kv(error) => error.into(),
            ReadError::Unreadable { key, revision } => WriteError::Unreadable { key, revision },
            // A write reads the current state, which is neither compacted nor in the future.
            ReadError::Closed | ReadError::Compacted { .. } | ReadError::TooLarge { .. } => WriteError::Closed,
        }
    }
}
