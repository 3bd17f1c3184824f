//! The failures for errors of the store.

use crate::shared::request::options::IGNORE_READ_ERROR;
use crate::shared::status::Failure;
use steersman_machinery::GroupResource;
use steersman_machinery::status::Details;
use steersman_storage::{ReadError, WriteError, kv};

impl Failure {
    /// The answer to a read that the store refused.
    pub(crate) fn of_read(error: &ReadError) -> Failure {
        match error {
            ReadError::Compacted { .. } => Failure::expired("The resourceVersion for the provided list is too old."),
            ReadError::TooLarge { requested, current } => Failure::version_too_large(requested, current),
            ReadError::Closed => Failure::unavailable("the server is shutting down"),
            ReadError::Unreadable { key, .. } => Failure::unreadable(&key.name, &error.to_string()),
            // The message of the source says what to do, which that of the outer error does not.
            ReadError::Kv(source @ (kv::Error::Unavailable { .. } | kv::Error::Replaced { .. })) => {
                tracing::error!(error = %chain(error), "a read failed");
                Failure::unavailable(source.to_string())
            }
            ReadError::Kv(_) => {
                tracing::error!(error = %chain(error), "a read failed");
                Failure::internal(error.to_string())
            }
        }
    }

    /// The answer to a write that the store refused.
    pub(crate) fn of_write(error: &WriteError, resource: &GroupResource, name: &str) -> Failure {
        match error {
            WriteError::AlreadyExists { .. } => Failure::already_exists(resource, name),
            WriteError::Conflict { .. } => Failure::modified(resource, name),
            WriteError::Busy => Failure::too_many_requests("the store's write queue is full; try again", 1),
            WriteError::TooLarge { .. } => Failure::too_large(error.to_string()),
            WriteError::Closed => Failure::unavailable("the server is shutting down"),
            WriteError::Unreadable { .. } => Failure::unreadable(name, &error.to_string()),
            // The message of the source names the remedy, which that of the outer error does not.
            WriteError::Kv(
                source @ (kv::Error::Full { .. }
                | kv::Error::Poisoned { .. }
                | kv::Error::Replaced { .. }
                | kv::Error::Unavailable { .. }
                | kv::Error::Unsealed { .. }),
            ) => {
                tracing::error!(error = %chain(error), "a write failed");
                Failure::unavailable(source.to_string())
            }
            WriteError::Kv(kv::Error::Unknown { .. }) => {
                tracing::error!(error = %chain(error), "the outcome of a write is unknown");
                Failure::outcome_unknown(name)
            }
            _ => {
                tracing::error!(error = %chain(error), "a write failed");
                Failure::internal(error.to_string())
            }
        }
    }
}

impl Failure {
    /// 504 for a write that may have been made. Without a time after which to try again, so that no client repeats it by
    /// itself.
    fn outcome_unknown(name: &str) -> Failure {
        let why = format!("it is unknown whether {name} was written: read it before trying again");
        Failure::about(504, "Timeout", why, Details { name: name.to_owned(), ..Details::default() })
    }

    /// 500 for an object whose stored form is damaged, with the remedy.
    fn unreadable(name: &str, why: &str) -> Failure {
        let why = format!("{why} (DELETE with the parameter {IGNORE_READ_ERROR}=true)");
        let details = Details { name: name.to_owned(), ..Details::default() };
        Failure::about(500, "StorageReadError", why, details)
    }
}

/// An error with its sources, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
