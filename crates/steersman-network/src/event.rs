//! An Event about a change that a reconcile made, kept until the reconcile ends and its Events are recorded.

/// The content of a `Normal` Event about a change.
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
