//! The end of an attempt: stores the plan, unless another write was faster.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::initialization;
use crate::write::registry::plan::Plan;
use crate::write::registry::service_addresses::allocation;
use crate::write::registry::service_addresses::allocator::Reservation;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::{Origin, Resource};
use steersman_machinery::object::Draft;
use steersman_machinery::{Object, Value, value};
use steersman_storage::WriteError;

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Created(Payload),
    /// The object was deleted; this is its last state.
    Deleted(Arc<Object>),
    /// The object was changed, is now being deleted, or needed no change.
    Updated(Payload),
}

/// The outcome of an attempt.
pub(super) enum Attempt {
    Done(Outcome),
    /// Another write was faster. This is the failure to answer with if there is no further attempt.
    Overtaken(Failure),
    /// A guard has changed: another attempt follows.
    Again,
    /// The object is marked as being deleted: the next attempt removes it.
    Marked(Arc<Object>),
}

/// Carries out a plan, unless another write was faster.
pub(super) async fn commit(state: &State, operation: &Operation<'_>, plan: Plan<'_>) -> Result<Attempt, Failure> {
    if operation.options.is_dry_run {
        return dry_run(state, operation, plan).await;
    }
    operation.load.write();
    match plan {
        Plan::Create { name, object, reservation } => create(state, operation, &name, object, reservation).await,
        Plan::Delete { current, last } => {
            let deleted = state.store.delete(operation.storage(), &current.key, current.revision).await;
            let deleted = match deleted {
                Ok(deleted) => deleted,
                Err(error) => return overtaken(operation, &error),
            };
            allocation::release(state, operation, &deleted.object).await?;
            initialization::removed(state, &deleted.object);
            state.written(operation.resource(), deleted.revision).await?;
            Ok(Attempt::Done(match last {
                Some(last) => Outcome::Updated(presented(operation, last)),
                None => Outcome::Deleted(deleted.object),
            }))
        }
        Plan::MarkDeleted { current, object } => Ok(match update(state, operation, &current, object).await? {
            Ok(marked) => Attempt::Marked(marked),
            Err(failure) => Attempt::Overtaken(failure),
        }),
        Plan::Unchanged(current) => Ok(Attempt::Done(Outcome::Updated(Payload::Stored(current)))),
        Plan::Update { current, object, reservation } => Ok(match update(state, operation, &current, object).await? {
            Ok(stored) => {
                allocation::stored(state, operation, reservation, &stored).await?;
                initialization::stored(state, operation, Some(&current), &stored).await?;
                Attempt::Done(Outcome::Updated(Payload::Stored(stored)))
            }
            Err(failure) => Attempt::Overtaken(failure),
        }),
    }
}

async fn update(
    state: &State,
    operation: &Operation<'_>,
    current: &Object,
    object: Value,
) -> Result<Result<Arc<Object>, Failure>, Failure> {
    let draft = draft(operation, object).await?;
    match state.store.update_with(operation.storage(), &current.key, current.revision, draft, &[]).await {
        Ok(stored) => {
            allocation::written(state, operation, &stored)?;
            state.written(operation.resource(), stored.revision).await?;
            Ok(Ok(stored))
        }
        Err(error @ WriteError::Conflict { .. }) => {
            Ok(Err(Failure::of_write(&error, &operation.group_resource(), operation.name())))
        }
        Err(error) => Err(Failure::of_write(&error, &operation.group_resource(), operation.name())),
    }
}

fn overtaken(operation: &Operation<'_>, error: &WriteError) -> Result<Attempt, Failure> {
    let failure = Failure::of_write(error, &operation.group_resource(), operation.name());
    if matches!(error, WriteError::Conflict { .. }) { Ok(Attempt::Overtaken(failure)) } else { Err(failure) }
}

/// The result that the plan would have.
async fn dry_run(state: &State, operation: &Operation<'_>, plan: Plan<'_>) -> Result<Attempt, Failure> {
    Ok(match plan {
        Plan::Create { name, object, .. } => match state.get(operation.storage(), &operation.key(&name)).await? {
            Some(_) => Attempt::Overtaken(Failure::already_exists(&operation.group_resource(), &name)),
            None => Attempt::Done(Outcome::Created(presented(operation, object))),
        },
        Plan::Delete { current, last: None } => Attempt::Done(Outcome::Deleted(current)),
        Plan::Delete { last: Some(object), .. } | Plan::MarkDeleted { object, .. } | Plan::Update { object, .. } => {
            Attempt::Done(Outcome::Updated(presented(operation, object)))
        }
        Plan::Unchanged(current) => Attempt::Done(Outcome::Updated(Payload::Stored(current))),
    })
}

fn presented(operation: &Operation<'_>, internal: Value) -> Payload {
    Payload::Tree(operation.strategy().present(operation.version(), internal))
}

/// An object in the internal form as a draft for the store.
async fn draft(operation: &Operation<'_>, internal: Value) -> Result<Draft, Failure> {
    let mut stored = conversion::to_stored(operation.served, internal).await?;
    value::remove_at(&mut stored, &["metadata", "resourceVersion"]);
    at_rest::draft(operation.resource(), stored).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an object cannot be stored");
        Failure::internal(error.to_string())
    })
}

/// Stores a new object.
async fn create(
    state: &State,
    operation: &Operation<'_>,
    name: &str,
    object: Value,
    reservation: Option<Reservation<'_>>,
) -> Result<Attempt, Failure> {
    let (key, draft) = (operation.key(name), draft(operation, object).await?);
    let stored = match state.store.create_with(operation.storage(), &key, draft, &operation.guards).await {
        Ok(stored) => stored,
        Err(error @ WriteError::AlreadyExists { .. }) => {
            let mut failure = Failure::of_write(&error, &operation.group_resource(), name);
            if matches!(error, WriteError::AlreadyExists { current } if current.meta().is_deleting()) {
                failure.status.message.insert_str(0, "object is being deleted: ");
            }
            return Ok(Attempt::Overtaken(failure));
        }
        // The namespace has changed since admission read it.
        Err(WriteError::Guard { .. }) => return Ok(Attempt::Again),
        // The server creates the same object again, so nothing is lost when it replaces the damaged one.
        Err(error @ WriteError::Unreadable { .. }) if operation.is_of_system() => {
            tracing::warn!(%error, "an object of the server's own is made anew");
            let removed = state.store.delete_unreadable(operation.storage(), &key).await;
            removed.map_err(|error| Failure::of_write(&error, &operation.group_resource(), name))?;
            return Ok(Attempt::Again);
        }
        Err(error) => return Err(Failure::of_write(&error, &operation.group_resource(), name)),
    };
    allocation::stored(state, operation, reservation, &stored).await?;
    allocation::written(state, operation, &stored)?;
    if is_overtaken(state, operation) {
        return match state.store.delete(operation.storage(), &stored.key, stored.revision).await {
            // On a conflict the deletion of the definition has already found the object, and deletes it.
            Ok(_) | Err(WriteError::Conflict { .. }) => Err(Failure::method_not_allowed()),
            Err(error) => Err(Failure::of_write(&error, &operation.group_resource(), name)),
        };
    }
    state.written(operation.resource(), stored.revision).await?;
    initialization::stored(state, operation, None, &stored).await?;
    Ok(Attempt::Done(Outcome::Created(Payload::Stored(stored))))
}

/// Whether the definition of the kind was deleted while the object was being stored: then its deletion may have missed the
/// object.
fn is_overtaken(state: &State, operation: &Operation<'_>) -> bool {
    let resource = operation.resource();
    if !resource.is_custom() {
        return false;
    }
    // A definition that was created again under the same name is a different one, and this object does not belong to
    // it.
    let is_same =
        |other: &Resource| other.plural == resource.plural && !other.is_terminating() && uid(other) == uid(resource);
    !state.catalog().resources_of(&resource.group).any(is_same)
}

/// The uid of the definition of a kind.
fn uid(resource: &Resource) -> Option<&str> {
    match &resource.origin {
        Origin::Custom { uid, .. } => Some(uid),
        Origin::BuiltIn => None,
    }
}
