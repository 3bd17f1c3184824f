//! Records in each Secret with a ServiceAccount's token the day on which the token was last used.
//!
//! The control loop that cleans up old tokens depends on it. The authenticator notes uses
//! (`authn/service_account/legacy`); one task writes them here, so that no request waits for it. A use that cannot be
//! written is dropped: the next one is noted again.

use crate::access::authn::service_account::legacy::{LAST_USED, Use};
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use std::sync::Arc;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{ObjectKey, Value};
use tokio::task::JoinHandle;

/// Starts the task, which ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        let uses = state.authenticator.service_accounts().legacy_uses();
        loop {
            // Both arms are cancel-safe.
            let taken = tokio::select! {
                () = state.stopping() => return,
                taken = uses.taken() => taken,
            };
            for (secret, used) in taken {
                match record(&state, &secret, &used).await {
                    Ok(()) => {}
                    // The Secret is gone, or another one now has its name.
                    Err(failure) if matches!(failure.code(), 404 | 409) => {}
                    Err(failure) => {
                        let message = &failure.status.message;
                        tracing::warn!(%secret, message, "the use of the token in a Secret could not be recorded");
                    }
                }
            }
        }
    })
}

async fn record(state: &State, key: &ObjectKey, used: &Use) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find("", "v1", "secrets") else { return Ok(()) };
    let system = Operation::of_system(served, Verb::Update, state.now());
    let mut update = system.on(Verb::Update, key);
    let group_resource = update.group_resource();
    let label = |secret: &mut Value| {
        if str_at(secret, &["metadata", "uid"]) != Some(&*used.uid) {
            return Err(Failure::modified(&group_resource, &key.name));
        }
        set_at(secret, &["metadata", "labels", LAST_USED], used.day.to_string().into());
        Ok(())
    };
    registry::write(state, &mut update, &Change::Assign(&label)).await.map(|_| ())
}
