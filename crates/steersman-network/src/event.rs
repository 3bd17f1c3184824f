//! An Event about something that a reconcile did, kept until the reconcile ends and its Events are recorded.

/// What a `Normal` Event says: something was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Event {
    pub(crate) fn new(reason: &'static str, message: String) -> Event {
        Event { reason, message }
    }
}
