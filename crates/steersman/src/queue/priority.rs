//! Which keys come first.

use crate::handler::EventKind;
use crate::outcome::Arrival;

/// Which keys come first. Also says, roughly, why a key runs.
///
/// None waits for ever: while a priority has keys and has been passed over 16 times in favor of higher ones, the next turn is
/// its. So of the turns of a queue that is never empty, about one in 17 goes to each lower priority that has keys.
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
    /// What an event is worth that makes a key run: what was there at the start, and what a resync repeats, can wait.
    pub fn of(event: EventKind) -> Self {
        match event {
            EventKind::Added(Arrival::Initial) | EventKind::Resync => Self::Low,
            EventKind::Added(Arrival::Later) | EventKind::Deleted | EventKind::Undecodable | EventKind::Updated => {
                Self::Normal
            }
        }
    }
}
