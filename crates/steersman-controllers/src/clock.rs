//! Times as objects have them.

use jiff::Timestamp;

/// A time as it comes back from the server, in whole seconds: what was written is compared with what is to be written.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
