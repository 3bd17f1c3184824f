//! Moments that lie ahead, also those that never come: a wait of `Duration::MAX` says "never", and no moment is that late.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than any process runs, and short enough to be added to any moment.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The moment `wait` after `start`; one that no process lives to see, if there is none so late.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    start.checked_add(wait).unwrap_or_else(|| start + FAR)
}
