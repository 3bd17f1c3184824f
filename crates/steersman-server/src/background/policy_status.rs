//! Maintains the status of ValidatingAdmissionPolicies, which says whether their expressions fit the kinds that they
//! match.
//!
//! Upstream this is the loop `validatingadmissionpolicy-status` of kube-controller-manager, whose field manager it
//! uses. It is here because it needs the schemas of all kinds and the compiler of expressions. A server runs it only on
//! request; admission does not wait for it.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::dynamic::policy::type_checking;
use crate::write::registry::Outcome;
use crate::write::registry::{self, Body, Change, Patch};
use bytes::Bytes;
use serde_json::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::Verb;
use steersman_machinery::Budget;
use steersman_machinery::value::at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value};
use steersman_storage::{At, Page, Scope};
use tokio::task::JoinHandle;

const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "validatingadmissionpolicies";
const MANAGER: &str = "validatingadmissionpolicy-status";
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Starts the task. It ends when the server stops.
pub(crate) fn start(state: &Arc<State>) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        let mut changes = state.policies.changes();
        // The revisions at which policies have a current status, by name.
        let mut checked = HashMap::new();
        loop {
            changes.mark_unchanged();
            while let Err(failure) = pass(&state, &mut checked).await {
                let message = &failure.status.message;
                tracing::warn!(message, "the status of a ValidatingAdmissionPolicy cannot be written; trying again");
                // Both arms are cancel-safe: they have no state.
                tokio::select! {
                    () = state.stopping() => return,
                    () = tokio::time::sleep(RETRY_INTERVAL) => {}
                }
            }
            // Both arms are cancel-safe: an unseen change is kept.
            tokio::select! {
                () = state.stopping() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    })
}

/// Writes the status of every policy that has changed since its status was written.
async fn pass(state: &State, checked: &mut HashMap<Box<str>, Revision>) -> Result<(), Failure> {
    let found = state.store.list(&GroupResource::new(GROUP, PLURAL), &Scope::All, At::Latest, Page::ALL);
    let objects = found.map_err(|error| Failure::of_read(&error))?.objects;
    let mut still = HashMap::with_capacity(objects.len());
    for object in &objects {
        let revision = match checked.get(&*object.key.name) {
            Some(revision) if *revision >= object.revision => *revision,
            _ => check(state, object).await?,
        };
        still.insert(object.key.name.to_string().into_boxed_str(), revision);
    }
    *checked = still;
    Ok(())
}

/// Writes the status of a policy, unless it is current. Returns the revision at which it is.
async fn check(state: &State, object: &Arc<Object>) -> Result<Revision, Failure> {
    let policy = conversion::parse(object)?;
    let number = |path: &[&str]| at(&policy, path).and_then(Value::as_i64).unwrap_or(0);
    let generation = number(&["metadata", "generation"]);
    if generation <= number(&["status", "observedGeneration"]) {
        return Ok(object.revision);
    }
    let catalog = state.catalog();
    let Some(served) = catalog.find(GROUP, "v1", PLURAL) else { return Ok(object.revision) };
    let warnings = type_checking::warnings(&catalog, &policy);
    let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    let applied = json!({
        "apiVersion": served.api_version(), "kind": &*served.resource.kind, "metadata": {"name": &*object.key.name},
        "status": {"observedGeneration": generation, "typeChecking": checking},
    });
    let bytes = Bytes::from(applied.to_string());
    let patch = Patch::parse(Body { media_type: "application/apply-patch+yaml", bytes: &bytes }, &Budget::unlimited())?;
    let key = ObjectKey::cluster(&*object.key.name);
    let of_system = Operation::of_system(served, Verb::Patch, state.now());
    let mut operation = of_system.on(Verb::Patch, &key);
    operation.attributes.subresource = Some("status");
    operation.manager = Cow::Borrowed(MANAGER);
    operation.options.is_forced = true;
    match registry::write(state, &mut operation, &Change::Patch(&patch)).await {
        // If the next pass finds a later revision, it is this write, or another client's.
        Ok(Outcome::Created(_) | Outcome::Deleted(_) | Outcome::Updated(_)) => Ok(object.revision),
        // The policy was deleted in the meantime.
        Err(failure) if failure.code() == 404 => Ok(object.revision),
        Err(failure) => Err(failure),
    }
}
