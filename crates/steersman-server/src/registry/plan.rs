//! The plan of an attempt: what is to be stored.

use crate::registry::allocator::Reservation;
use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// What an attempt is to store. Objects are in the internal form.
pub(super) enum Plan<'s> {
    Create {
        name: String,
        object: Value,
        reservation: Option<Reservation<'s>>,
    },
    Delete {
        current: Arc<Object>,
        /// The last state, if an update has removed the last finalizer of the object.
        last: Option<Value>,
    },
    /// Stored with its deletionTimestamp; the deletion follows in the next attempt.
    MarkDeleted {
        current: Arc<Object>,
        object: Value,
    },
    /// The object is already as it should be.
    Unchanged(Arc<Object>),
    Update {
        current: Arc<Object>,
        object: Value,
        reservation: Option<Reservation<'s>>,
    },
}

/// Whether the owners of the fields are recorded in the object already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recorded {
    No,
    Yes,
}
