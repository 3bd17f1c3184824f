//! Renews old keys of service account tokens, and removes keys whose tokens have expired.

use crate::state::State;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The interval at which the keys are checked. They are valid for months.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Starts the task. It ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        loop {
            if let Err(error) = state.authenticator.service_accounts().keys().rotate(state.now()).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "the keys of service account tokens could not be renewed; it is tried again later"
                );
            }
            // Both arms are cancel-safe: they have no state.
            tokio::select! {
                () = state.stopping() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    })
}
