//! Applies the JSON patch of a mutating webhook to the object that was sent, and decodes the result like an object that
//! a client sends.

use crate::shared::status::Failure;
use crate::write::admission::admitted_write::{self, AdmittedWrite};
use crate::write::admission::dynamic::webhooks::hook::Hook;
use steersman_kinds::catalog::Served;
use steersman_kinds::strategy::DecodeError;
use steersman_machinery::Value;
use steersman_machinery::budget;
use steersman_machinery::value::{at, remove_at, set_at};
use steersman_schema::decode::{self, Body};
use steersman_schema::json_patch::{self, Patch};
use steersman_schema::{Definitions, managed};

/// The path of the managed fields.
const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// An object after a patch.
#[derive(Debug)]
pub(super) struct Patched {
    /// The object, in the version of the request.
    pub(super) object: Value,
    /// Whether the object has changed. Differences only in defaults do not count.
    pub(super) is_changed: bool,
    pub(super) warning: Option<String>,
}

/// Applies a patch to an object in the version that a webhook expects. `None` if the patch is empty.
pub(super) async fn apply(
    hook: &Hook,
    write: &AdmittedWrite<'_>,
    target: &Served,
    object: Option<&Value>,
    patch: &[u8],
) -> Result<Option<Patched>, Failure> {
    let name = &hook.name;
    let wrong = |why: String| Failure::internal(format!("admission webhook {name:?} {why}"));
    let too_much = |error: budget::Error| too_much(hook, &error);
    let budget = &write.operation.budget;
    let patch = Patch::parse(patch, budget).map_err(|error| match error {
        json_patch::Error::Budget(error) => too_much(error),
        error => wrong(format!("sent a patch that cannot be read: {error}")),
    })?;
    if patch.is_empty() {
        return Ok(None);
    }
    let (Some(before), Some(new)) = (object, write.new) else {
        return Err(wrong("attempted to modify the object, which is not supported for this operation".to_owned()));
    };
    let patched = patch.apply(before, budget).map_err(|error| match error {
        json_patch::Error::Budget(error) => too_much(error),
        error => wrong(format!("sent a patch that cannot be applied: {error}")),
    })?;
    for key in ["apiVersion", "kind"] {
        if patched.get(key) != before.get(key) {
            return Err(wrong(format!("changed {key}: that is not possible")));
        }
    }
    let (mut after, warning) = read(write, target, before, patched).map_err(|error| match error {
        DecodeError::Budget(error) => too_much(error),
        error => wrong(format!("made an object that cannot be read: {error}")),
    })?;
    let is_changed = after != *before;
    if is_of_own_kind(write) {
        target.resource.strategy.default(target.version(), &mut after, budget).map_err(too_much)?;
    }
    let object = write.returned(new, target, after).await?;
    Ok(Some(Patched { object, is_changed, warning }))
}

/// The request needs too much, or was canceled. That is no error of the webhook, whose patch may only be what comes last.
fn too_much(hook: &Hook, error: &budget::Error) -> Failure {
    let mut failure = Failure::of_budget(error);
    if matches!(error, budget::Error::Exceeded { .. }) {
        let why = &failure.status.message;
        failure.status.message = format!("the patch of the admission webhook {:?} is not applied: {why}", hook.name);
    }
    failure
}

/// Whether the object is of the resource's own kind, and not of a subresource's.
fn is_of_own_kind(write: &AdmittedWrite<'_>) -> bool {
    !write.is_of_other_kind() && !write.is_of_scale()
}

/// Decodes an object like one that a client sends. Fields that its kind does not have are dropped. Invalid managed
/// fields are replaced by the previous ones, with a warning.
fn read(
    write: &AdmittedWrite<'_>,
    target: &Served,
    before: &Value,
    mut patched: Value,
) -> Result<(Value, Option<String>), DecodeError> {
    let owners_before = at(before, &MANAGED_FIELDS);
    // Managed fields that the server has written itself need not be checked again, and they may be half of the object.
    let is_same = at(&patched, &MANAGED_FIELDS) == owners_before;
    let mut warning = None;
    if !is_same && let Err(error) = managed::check(&patched) {
        warning = Some(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {error}"
        ));
    }
    let budget = &write.operation.budget;
    let keeps = is_same || warning.is_some();
    if keeps {
        remove_at(&mut patched, &MANAGED_FIELDS);
    }
    let mut object = match is_of_own_kind(write) {
        true => target.resource.strategy.decode(target.version(), Body::Tree(patched), budget)?.value,
        false => {
            let kind = admitted_write::kind(target, write.attributes.subresource).unwrap_or_else(|| target.kind());
            match Definitions::builtin().schema_of(&kind) {
                Some(schema) => decode::from_value(schema, &patched, budget)?.value,
                None => patched,
            }
        }
    };
    if let (true, Some(owners)) = (keeps, owners_before) {
        set_at(&mut object, &MANAGED_FIELDS, owners.clone());
    }
    Ok((object, warning))
}
