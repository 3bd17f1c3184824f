//! The order in which keys are processed.

use crate::cache::handler::EventKind;
use crate::cache::outcome::Arrival;

/// The order in which keys are processed. Also shows, roughly, why a key runs.
///
/// None waits for ever: a priority that has keys and has been passed over 16 times in favor of higher ones gets the
/// next turn. So in a queue that is never empty, about one turn in 17 goes to each lower priority that has keys.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    /// Work that is not urgent: the initial list, resyncs.
    Low,
    /// Events.
    #[default]
    Normal,
    /// Work that must not queue behind events.
    High,
}

impl Priority {
    /// The priority of a key for an event: low for the initial state and resyncs.
    pub fn of(event: EventKind) -> Self {
        match event {
            EventKind::Added(Arrival::Initial) | EventKind::Resync => Self::Low,
            EventKind::Added(Arrival::Later) | EventKind::Deleted | EventKind::Undecodable | EventKind::Updated => {
                Self::Normal
            }
        }
    }
}
