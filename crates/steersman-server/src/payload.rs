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

impl Payload {
    /// The bytes that are read to send it; none are counted for a tree.
    pub(crate) fn stored_bytes(&self) -> usize {
        match self {
            Payload::Stored(object) => object.json().len(),
            Payload::Tree(_) => 0,
        }
    }
}
