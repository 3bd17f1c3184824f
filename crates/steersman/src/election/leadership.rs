//! Whether a replica leads, and since when it has not renewed: what health checks and metrics ask.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whether one replica leads at present. The election tells it, others read.
#[derive(Debug)]
pub struct Leadership {
    lease: String,
    duration: Duration,
    /// When the lease was last acquired or renewed; `None` while we do not lead.
    renewed: Mutex<Option<Instant>>,
}

/// A replica believes that it leads, but its lease ran out long ago.
#[derive(Clone, Debug, thiserror::Error)]
#[error("leading {lease:?}, but the lease was last renewed {since:?} ago")]
pub struct RenewalOverdue {
    lease: String,
    since: Duration,
}

// === impl Leadership ===

impl Leadership {
    pub(crate) fn new(lease: &str, duration: Duration) -> Self {
        Self { lease: lease.to_owned(), duration, renewed: Mutex::new(None) }
    }

    /// Name of the lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Whether the lease is ours, as far as we know.
    pub fn is_leading(&self) -> bool {
        self.renewed.lock().is_some()
    }

    /// Whether all is well: we do not lead, or have renewed within the duration of the lease and `tolerance`. As a
    /// health check this restarts a leader that hangs (client-go's `healthzadaptor.go`).
    ///
    /// # Errors
    /// [`RenewalOverdue`].
    pub fn check(&self, tolerance: Duration) -> Result<(), RenewalOverdue> {
        let since = self.renewed.lock().map(|renewed| renewed.elapsed());
        match since {
            Some(since) if since > self.duration + tolerance => {
                Err(RenewalOverdue { lease: self.lease.clone(), since })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn renewed(&self) {
        *self.renewed.lock() = Some(Instant::now());
    }

    pub(crate) fn ended(&self) {
        *self.renewed.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_does_not_renew_is_unwell() {
        let leadership = Leadership::new("test", Duration::from_secs(15));
        let tolerance = Duration::from_secs(20);
        tokio::time::advance(Duration::from_secs(1_000)).await;
        leadership.check(tolerance).unwrap();
        leadership.renewed();
        tokio::time::advance(Duration::from_secs(35)).await;
        leadership.check(tolerance).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let error = leadership.check(tolerance).unwrap_err();
        assert_eq!(error.to_string(), r#"leading "test", but the lease was last renewed 36s ago"#);
        leadership.ended();
        leadership.check(tolerance).unwrap();
    }
}
