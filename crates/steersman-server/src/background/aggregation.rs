//! Aggregates ClusterRoles such as `admin`, `edit` and `view`: their rules are those of all ClusterRoles that match
//! their selectors.
//!
//! Upstream this is a loop of kube-controller-manager. Here it is a task of the server, since a server without it would
//! have roles that grant nothing, and the start waits for its first pass. It writes the same rules in the same order as
//! upstream's loop, so that both may run at the same time.

use crate::access::authz::rbac::resource::Resource;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change, Current};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::Verb;
use steersman_machinery::{ObjectKey, Value};
use tokio::task::JoinHandle;

/// The pause after a failed pass.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The most passes in a row. Roles that aggregate each other need one for each link of the chain.
const PASSES_MAX: usize = 16;
/// The field manager of the rules, the same as that of upstream's loop.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// Starts the task. It ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        loop {
            // Both arms are cancel-safe: a notification that is not taken stays.
            tokio::select! {
                () = state.stopping() => return,
                () = state.rbac.cluster_roles_changed() => {}
            }
            while let Err(failure) = bring_up_to_date(&state).await {
                let message = &failure.status.message;
                tracing::warn!(message, "the rules of an aggregated ClusterRole cannot be written; trying again");
                // Both arms are cancel-safe: they have no state.
                tokio::select! {
                    () = state.stopping() => return,
                    () = tokio::time::sleep(RETRY_INTERVAL) => {}
                }
            }
        }
    })
}

/// Writes the rules of every aggregated ClusterRole whose rules are not the wanted ones.
///
/// # Errors
/// When the store refuses a write.
pub(crate) async fn bring_up_to_date(state: &State) -> Result<(), Failure> {
    for _ in 0..PASSES_MAX {
        let mut has_written = false;
        for name in state.rbac.aggregated() {
            // Computed for each role in turn, because it may aggregate the role before it.
            let Some(rules) = state.rbac.gathered(&name) else { continue };
            let rules = serde_json::to_value(rules).map_err(|error| Failure::internal(error.to_string()))?;
            has_written |= write(state, &name, &rules).await?;
        }
        if !has_written {
            break;
        }
    }
    Ok(())
}

/// Writes rules into a ClusterRole, if it still exists and is still aggregated.
async fn write(state: &State, name: &str, rules: &Value) -> Result<bool, Failure> {
    let catalog = state.catalog();
    let storage = Resource::ClusterRoles.storage();
    let Some(served) = catalog.find(&storage.group, "v1", &storage.resource) else { return Ok(false) };
    let key = ObjectKey::cluster(name);
    let of_system = Operation::of_system(served, Verb::Update, state.now());
    let mut operation = of_system.on(Verb::Update, &key);
    operation.manager = Cow::Borrowed(MANAGER);
    let edit = |_: &mut Operation<'_>, current: &Current| {
        let mut new = current.requested().clone();
        if new.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
            new["rules"] = rules.clone();
        }
        Ok(new)
    };
    match registry::write(state, &mut operation, &Change::Edit(&edit)).await {
        Ok(_) => Ok(true),
        // It was deleted in the meantime.
        Err(failure) if failure.code() == 404 => Ok(false),
        Err(failure) => Err(failure),
    }
}
