//! What an attempt to write is to store.

use crate::builtin::service::Reservation;
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
        /// What it is at the end, where a change of the object is what ends it.
        last: Option<Value>,
    },
    /// Stored with the mark of a deletion that comes right after.
    MarkDeleted {
        current: Arc<Object>,
        object: Value,
    },
    /// It is there as it should be.
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
