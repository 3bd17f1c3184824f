//! Times in the precision of objects.

use jiff::Timestamp;

/// A time in whole seconds, as it comes back from the server: written times are compared with times to be written.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
