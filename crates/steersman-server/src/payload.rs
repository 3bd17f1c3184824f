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
