//! An object to be sent to a client.

use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// An object to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The stored bytes.
    Stored(Arc<Object>),
    /// In the requested form.
    Tree(Value),
}

/// What was to be sent is not JSON, although all that is stored is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the object is not readable as JSON")]
pub(crate) struct NotJson;
