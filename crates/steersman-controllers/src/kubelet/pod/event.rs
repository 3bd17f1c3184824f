//! What happens to a Pod at a moment, for the Event about it.

use jiff::Timestamp;
use steersman::events::EventType;
use tokio::time::Instant;

/// The time, for what is waited for and for what is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) time: Timestamp,
}

/// An Event to be recorded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodEvent {
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Of a container; `None`: about the Pod.
    pub(crate) field_path: Option<String>,
}
