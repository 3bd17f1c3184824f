//! An Event to be recorded about an object, as returned by code that sends no requests.

use steersman::events::{EventRecorder, EventType};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Note {
    pub(crate) type_: EventType,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, text: impl Into<String>) -> Note {
        Note { type_: EventType::Normal, reason, text: text.into() }
    }

    pub(crate) fn warning(reason: &'static str, text: impl Into<String>) -> Note {
        Note { type_: EventType::Warning, reason, text: text.into() }
    }

    /// Records it about an object.
    pub(crate) fn record<K: kube::Resource<DynamicType = ()>>(&self, events: &EventRecorder, object: &K) {
        events.event(object, self.type_, self.reason, &self.text);
    }
}
