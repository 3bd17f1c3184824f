//! How far the definitions in the store are in force, so that the writer of one is answered when the next request can use it.
//!
//! The task that follows the definitions reports here; writers wait here.

use std::time::Duration;
use steersman_machinery::Revision;
use tokio::sync::watch;

/// How long a writer waits for its definition to be in force before it is answered all the same.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The revision up to which definitions are in force.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    applied: watch::Sender<Revision>,
}

impl InForce {
    /// Reports that every definition written up to a revision is in force.
    pub(crate) fn report(&self, revision: Revision) {
        self.applied.send_replace(revision);
    }

    /// Waits until a definition that was written at a revision is in force.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        let mut applied = self.applied.subscribe();
        let in_force = applied.wait_for(|applied| *applied >= revision);
        if tokio::time::timeout(WAIT_MAX, in_force).await.is_err() {
            tracing::warn!(%revision, "a definition is not in force yet; its writer is answered");
        }
    }
}
