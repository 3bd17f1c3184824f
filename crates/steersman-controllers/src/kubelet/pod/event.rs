//! The Event about something that happens to a Pod.

use jiff::Timestamp;
use steersman::events::EventType;
use tokio::time::Instant;

/// The current time: `instant` for timers, `time` for what is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) time: Timestamp,
}

/// An Event to record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodEvent {
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The field of the container; `None` for the Pod as a whole.
    pub(crate) field_path: Option<String>,
}
