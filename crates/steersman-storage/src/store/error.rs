//! Why the store did not do what was asked.

use crate::key::KeyError;
use crate::kv;
use std::sync::Arc;
use steersman_machinery::object::DecodeError;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine could not be read.
    #[error("the store cannot be read")]
    Kv(#[source] kv::Error),
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is an object with this key.
    #[error("{} exists already", .current.key)]
    AlreadyExists {
        /// The object.
        current: Arc<Object>,
    },
    /// Too many writes wait already. Nothing was done; try again shortly.
    #[error("the store's write queue is full: try again shortly")]
    Busy,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The object is not at the revision the writer saw.
    #[error("the object was changed or deleted since it was read")]
    Conflict {
        /// What is there; `None` when it is gone.
        current: Option<Arc<Object>>,
    },
    /// Another object that the write depends on was changed or deleted since it was read. Nothing was done: look at it again.
    #[error("{resource} {key} was changed or deleted since it was read")]
    Guard {
        /// Its resource.
        resource: GroupResource,
        /// Its key.
        key: ObjectKey,
        /// What is there; `None` when it is gone.
        current: Option<Arc<Object>>,
    },
    /// The key cannot be stored.
    #[error("the key cannot be stored")]
    Key(#[source] KeyError),
    /// The engine failed.
    #[error("the store did not take the write")]
    Kv(#[source] kv::Error),
    /// The bytes are no object.
    #[error("the content is no object")]
    Object(#[source] DecodeError),
    /// The object is larger than the store takes.
    #[error("{what} of {actual} exceeds the maximum of {max}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The largest size taken.
        max: usize,
    },
    /// The entry under the key is damaged or no object, so it is not known what would be overwritten.
    #[error(
        "what is stored as {key} since revision {revision} cannot be read: delete it, or restore it from a copy of the store"
    )]
    Unreadable {
        /// The key.
        key: ObjectKey,
        /// The revision that wrote it.
        revision: Revision,
    },
}

/// Why a read was not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The store was closed, or can no longer follow its log.
    #[error("the store is closed")]
    Closed,
    /// History from before this revision is gone. Start over from the current state; retrying cannot help.
    #[error("revision {requested} is compacted (oldest is {oldest})")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can be had.
        oldest: Revision,
    },
    /// The engine failed.
    #[error("the store cannot be read")]
    Kv(#[source] kv::Error),
    /// The entry under the key is damaged or no object.
    #[error(
        "what is stored as {key} since revision {revision} cannot be read: delete it, or restore it from a copy of the store"
    )]
    Unreadable {
        /// The key.
        key: ObjectKey,
        /// The revision that wrote it.
        revision: Revision,
    },
    /// The revision is of the future. Wait for it first.
    #[error("revision {requested} is of the future (current is {current})")]
    TooLarge {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
}

/// Why waiting for a revision ended without it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WaitError {
    /// The store was closed, or can no longer follow its log.
    #[error("the store is closed")]
    Closed,
    /// It did not come in time.
    #[error("revision {requested} is of the future (current is {current})")]
    TooLarge {
        /// What was asked for.
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
            // What a write reads is the present, which is neither compacted nor of the future.
            ReadError::Closed | ReadError::Compacted { .. } | ReadError::TooLarge { .. } => WriteError::Closed,
        }
    }
}
