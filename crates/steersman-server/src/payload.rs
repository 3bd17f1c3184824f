//! An object on its way to the client.

use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// An object to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// As it is stored.
    Stored(Arc<Object>),
    /// In the requested form.
    Tree(Value),
}
