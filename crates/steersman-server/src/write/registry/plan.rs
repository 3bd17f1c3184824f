//! The plan of an attempt: the change to store.

use crate::write::registry::service_addresses::allocator::Reservation;
use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// The change that an attempt stores. Objects are in the internal form.
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
    /// The object is stored with its deletionTimestamp; the next attempt deletes it.
    MarkDeleted {
        current: Arc<Object>,
        object: Value,
    },
    /// The object already has the wanted state.
    Unchanged(Arc<Object>),
    Update {
        current: Arc<Object>,
        object: Value,
        reservation: Option<Reservation<'s>>,
    },
}

/// Whether the field owners are already recorded in the object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recorded {
    No,
    Yes,
}
