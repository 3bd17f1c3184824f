//! The current leader, and for how long it has not renewed: for health checks, metrics and dashboards.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::election::ElectionOptions;

/// The current leader as one replica has seen it. Written by the election, read by others.
#[derive(Debug)]
pub struct Leadership {
    lease: String,
    identity: String,
    duration: Duration,
    leader: watch::Sender<Option<String>>,
    /// While we lead: when the last renewal that succeeded was sent.
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
    pub(crate) fn new(options: &ElectionOptions) -> Self {
        Self {
            lease: options.name.clone(),
            identity: options.identity.clone(),
            duration: options.lease,
            leader: watch::Sender::default(),
            renewed: Mutex::new(None),
        }
    }

    /// Name of the lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Whether the lease is ours, as far as we know.
    pub fn is_leading(&self) -> bool {
        self.renewed().is_some()
    }

    /// The identity of the leader as last seen. `None` if there is no leader, or the lease was not read yet.
    pub fn leader(&self) -> Option<String> {
        self.leader.borrow().clone()
    }

    /// The leader as last seen, and every change of it.
    pub fn watch(&self) -> watch::Receiver<Option<String>> {
        self.leader.subscribe()
    }

    /// Whether all is well: we do not lead, or have renewed within the duration of the lease and `tolerance`. As a
    /// health check this restarts a leader that hangs (client-go's `healthzadaptor.go`).
    ///
    /// # Errors
    /// [`RenewalOverdue`].
    pub fn check(&self, tolerance: Duration) -> Result<(), RenewalOverdue> {
        let since = self.renewed().map(|renewed| renewed.elapsed());
        match since {
            Some(since) if since > self.duration.saturating_add(tolerance) => {
                Err(RenewalOverdue { lease: self.lease.clone(), since })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn renewed(&self) -> Option<Instant> {
        *self.renewed.lock()
    }

    /// A renewal succeeded that was sent then.
    pub(crate) fn renew(&self, sent: Instant) {
        *self.renewed.lock() = Some(sent);
        self.tell(Some(&self.identity));
    }

    /// Records the holder of the lease; an empty text means that there is none.
    pub(crate) fn observe(&self, holder: &str) {
        if holder != self.identity {
            *self.renewed.lock() = None;
        }
        self.tell(Some(holder).filter(|holder| !holder.is_empty()));
    }

    /// Records that this replica no longer leads, and that the new leader is not known yet.
    pub(crate) fn give_up(&self) {
        let was_leading = self.renewed.lock().take().is_some();
        if was_leading {
            self.tell(None);
        }
    }

    fn tell(&self, leader: Option<&str>) {
        self.leader.send_if_modified(|known| {
            let is_new = known.as_deref() != leader;
            if is_new {
                *known = leader.map(str::to_owned);
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_does_not_renew_is_unwell() {
        let leadership = Leadership::new(&ElectionOptions::new("test", "kube-system"));
        let tolerance = Duration::from_secs(20);
        tokio::time::advance(Duration::from_secs(1_000)).await;
        leadership.check(tolerance).unwrap();
        leadership.renew(Instant::now());
        tokio::time::advance(Duration::from_secs(35)).await;
        leadership.check(tolerance).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let error = leadership.check(tolerance).unwrap_err();
        assert_eq!(error.to_string(), r#"leading "test", but the lease was last renewed 36s ago"#);
        leadership.give_up();
        leadership.check(tolerance).unwrap();
    }
}
