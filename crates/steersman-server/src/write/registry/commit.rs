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
use std::borrow::Cow;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::{Origin, Resource};
use steersman_machinery::object::Draft;
use steersman_machinery::{Object, ObjectKey, Value, value};
use steersman_storage::{Deleted, Guard, WriteError};

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
            let deleted = match remove(state, operation, &current).await? {
                Ok(deleted) => deleted,
                Err(error) => return overtaken(operation, &error),
            };
            initialization::removed(state, &deleted.object);
            Ok(Attempt::Done(match last {
                Some(last) => Outcome::Updated(presented(operation, last)),
                None => Outcome::Deleted(deleted.object),
            }))
        }
        Plan::MarkDeleted { current, object } => Ok(match update(state, operation, &current, object, &[]).await? {
            Updated::Done(marked) => Attempt::Marked(marked),
            Updated::Not(attempt) => attempt,
        }),
        // A user rotates encryption keys by writing objects as they are: those under an earlier key are stored anew.
        Plan::Unchanged(current) => match state.store.refresh(operation.storage(), &current).await {
            Ok(current) => Ok(Attempt::Done(Outcome::Updated(Payload::Stored(current)))),
            Err(error) => overtaken(operation, &error),
        },
        Plan::Update { current, object, reservation } => {
            let _turn = turn(state, reservation.as_ref()).await;
            let guards = claims(state, reservation.as_ref(), &current.key).await?;
            let Some(guards) = guards else { return Ok(Attempt::Again) };
            let stored = match update(state, operation, &current, object, &guards).await? {
                Updated::Done(stored) => stored,
                Updated::Not(attempt) => return Ok(attempt),
            };
            allocation::committed(state, reservation, &guards, stored.revision).await;
            initialization::stored(state, operation, Some(&current), &stored).await?;
            Ok(Attempt::Done(Outcome::Updated(Payload::Stored(stored))))
        }
    }
}

/// Deletes an object, together with what was allocated for it, unless another write was faster.
///
/// # Errors
/// When the store cannot be read, or the deletion was made but does not come into force.
pub(super) async fn remove(
    state: &State,
    operation: &Operation<'_>,
    current: &Object,
) -> Result<Result<Deleted, WriteError>, Failure> {
    let freed = allocation::freed(state, operation, current)?;
    let _turn = turn(state, freed.as_ref()).await;
    loop {
        let Some(guards) = claims(state, freed.as_ref(), &current.key).await? else { continue };
        match state.store.delete_with(operation.storage(), &current.key, current.revision, &guards).await {
            Ok(deleted) => {
                allocation::committed(state, freed, &guards, deleted.revision).await;
                state.written(operation.resource(), deleted.revision).await?;
                return Ok(Ok(deleted));
            }
            Err(error) if is_of_guards(&error, &guards) => {
                allocation::failed(state, &guards, &error).await?;
                operation.check_time()?;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// The changes that belong to a reservation; `None` if another server has taken one of its values.
async fn claims(
    state: &State,
    reservation: Option<&Reservation<'_>>,
    key: &ObjectKey,
) -> Result<Option<Vec<Guard>>, Failure> {
    let Some(reservation) = reservation else { return Ok(Some(Vec::new())) };
    allocation::claims(state, reservation, key).await
}

/// The turn of a write that changes node ports. It is held until the write is committed.
async fn turn<'s>(state: &'s State, reservation: Option<&Reservation<'_>>) -> Option<tokio::sync::MutexGuard<'s, ()>> {
    let changes_ports = reservation.is_some_and(|reservation| {
        let (added, removed) = reservation.node_ports();
        !added.is_empty() || !removed.is_empty()
    });
    if changes_ports { Some(state.services.writing_node_ports.lock().await) } else { None }
}

/// Whether a write failed because of one of its guards, and not of its own object.
fn is_of_guards(error: &WriteError, guards: &[Guard]) -> bool {
    match error {
        WriteError::Guard { .. } => true,
        WriteError::Unreadable { key, .. } => guards.iter().any(|guard| guard.key == *key),
        _ => false,
    }
}

/// Another attempt, once it is known why a guard did not hold.
async fn again(state: &State, guards: &[Guard], error: &WriteError) -> Result<Attempt, Failure> {
    allocation::failed(state, guards, error).await?;
    Ok(Attempt::Again)
}

/// The outcome of storing an update.
enum Updated {
    Done(Arc<Object>),
    Not(Attempt),
}

async fn update(
    state: &State,
    operation: &Operation<'_>,
    current: &Object,
    object: Value,
    guards: &[Guard],
) -> Result<Updated, Failure> {
    let draft = draft(operation, object).await?;
    match state.store.update_with(operation.storage(), &current.key, current.revision, draft, guards).await {
        Ok(stored) => {
            state.written(operation.resource(), stored.revision).await?;
            Ok(Updated::Done(stored))
        }
        Err(error @ WriteError::Conflict { .. }) => {
            let failure = Failure::of_write(&error, &operation.group_resource(), operation.name());
            Ok(Updated::Not(Attempt::Overtaken(failure)))
        }
        Err(error) if is_of_guards(&error, guards) => again(state, guards, &error).await.map(Updated::Not),
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
    let _turn = turn(state, reservation.as_ref()).await;
    let Some(claims) = claims(state, reservation.as_ref(), &key).await? else { return Ok(Attempt::Again) };
    // Most objects claim nothing.
    let guards = match claims.is_empty() {
        true => Cow::Borrowed(operation.guards.as_slice()),
        false => Cow::Owned([operation.guards.as_slice(), &claims].concat()),
    };
    let stored = match state.store.create_with(operation.storage(), &key, draft, &guards).await {
        Ok(stored) => stored,
        Err(error @ WriteError::AlreadyExists { .. }) => {
            let mut failure = Failure::of_write(&error, &operation.group_resource(), name);
            if matches!(error, WriteError::AlreadyExists { current } if current.meta().is_deleting()) {
                failure.status.message.insert_str(0, "object is being deleted: ");
            }
            return Ok(Attempt::Overtaken(failure));
        }
        // The namespace has changed since admission read it, or another server has taken an address or a port.
        Err(error) if is_of_guards(&error, &claims) => return again(state, &guards, &error).await,
        // The server creates the same object again, so nothing is lost when it replaces the damaged one.
        Err(error @ WriteError::Unreadable { .. }) if operation.is_of_system() => {
            let failure = Failure::of_write(&error, &operation.group_resource(), name);
            state.remove_own(operation.storage(), &key, &failure).await?;
            return Ok(Attempt::Again);
        }
        Err(error) => return Err(Failure::of_write(&error, &operation.group_resource(), name)),
    };
    allocation::committed(state, reservation, &guards, stored.revision).await;
    if operation.resource().is_custom() && state.store.is_shared() {
        // Another server may have begun the deletion of the definition before this write.
        state.wait_for(stored.revision).await?;
        state.catch_up_with_definitions().await;
    }
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
