//! An object to be sent to a client.

use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// An object to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The object in its stored form.
    Stored(Arc<Object>),
    /// The object in the requested form.
    Tree(Value),
}

impl Payload {
    /// The bytes that are read to send it; zero for a tree.
    pub(crate) fn stored_bytes(&self) -> usize {
        match self {
            Payload::Stored(object) => object.json().len(),
            Payload::Tree(_) => 0,
        }
    }
}
