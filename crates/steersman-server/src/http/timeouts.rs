//! The time limits of requests.

use std::time::Duration;

/// The time limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The limit of requests that are not watches; after it they are answered with 504. The `timeout` of a request can
    /// only shorten it.
    pub request: Duration,
    /// A watch without `timeoutSeconds` ends after a random time between this and twice this, so that not all end at
    /// once; with zero it has no limit.
    pub watch_min: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { request: Duration::from_secs(60), watch_min: Duration::from_secs(1800) }
    }
}
