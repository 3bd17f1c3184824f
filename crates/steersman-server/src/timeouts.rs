//! How long requests may take.

use std::time::Duration;

/// How long requests may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A request that is not a watch: longer, and it is answered with 504. The `timeout` of a request can only shorten it.
    pub request: Duration,
    /// A watch without `timeoutSeconds` ends after a random time between this and twice this, so that not all end at once; zero means
    /// that it does not end by itself.
    pub watch_min: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { request: Duration::from_secs(60), watch_min: Duration::from_secs(1800) }
    }
}
