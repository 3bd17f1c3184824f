//! The one loop of all writes: read what is there, make of it what is to be, store that, and begin again if somebody else
//! wrote in between.
//!
//! What is made is a [`Draft`]: everything about it is decided, but for whether it is still in time.

use crate::admission::{self, Action, Review};
use crate::authz::{self, Attributes, ResourceAttributes};
use crate::builtin::service::Reservation;
use crate::catalog::Verb;
use crate::conversion;
use crate::operation::Operation;
use crate::options;
use crate::payload::Payload;
use crate::registry::create::Recorded;
use crate::registry::current::Current;
use crate::registry::patch::{Format, Patch};
use crate::registry::{allocation, create, delete, patch, update};
use crate::state::State;
use crate::status::Failure;
use crate::strategy::Endpoint;
use bytes::Bytes;
use std::sync::Arc;
use steersman_machinery::{Object, Value, value};
use steersman_storage::WriteError;

/// How often a change is computed anew because somebody else wrote first.
const ATTEMPTS_MAX: usize = 100;
/// How often a generated name is tried before the client is told.
const NAMES_MAX: usize = 8;

/// What a write does with the object that is there.
pub(crate) enum Change<'a> {
    /// Sets single fields of the object, in the internal form. The one who does has checked that it may be: neither the
    /// owners of fields nor the kind's rules nor admission come into it.
    Assign(&'a (dyn Fn(&mut Value) -> Result<(), Failure> + Send + Sync)),
    /// Puts a new object there. It is in the requested form, decoded and defaulted.
    Create(Value),
    /// Takes it away, or marks it as being deleted.
    Delete(&'a options::Delete),
    /// Computes the new object, in the requested form.
    Edit(&'a (dyn Fn(&Current) -> Result<Value, Failure> + Send + Sync)),
    Patch(&'a Patch),
    /// Puts another in its place, in the requested form, decoded and defaulted.
    Update(Value),
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Created(Payload),
    /// It is gone; this is what it was last.
    Deleted(Arc<Object>),
    /// It was changed, or marked as being deleted, or was already as it should be.
    Updated(Payload),
}

/// What an attempt is to store. Objects are in the internal form.
pub(super) enum Draft<'s> {
    Create {
        name: String,
        object: Value,
        reservation: Option<Reservation<'s>>,
    },
    Delete {
        current: Arc<Object>,
        /// What it is at the end, where a change of the object is what ends it.
        last: Option<Value>,
    },
    /// Stored with the mark of a deletion that comes right after.
    MarkDeleted {
        current: Arc<Object>,
        object: Value,
    },
    /// It is there as it should be.
    Unchanged(Arc<Object>),
    Update {
        current: Arc<Object>,
        object: Value,
        reservation: Option<Reservation<'s>>,
    },
}

/// What became of an attempt.
enum Attempt {
    Done(Outcome),
    /// Somebody else wrote first; this is what to say where nothing more is tried.
    Overtaken(Failure),
    /// A step was done, the next attempt goes on.
    Step,
}

/// Carries out a write.
///
/// # Errors
/// With the answer for the client.
pub(crate) async fn write(
    state: &State,
    operation: &mut Operation<'_>,
    change: &Change<'_>,
) -> Result<Outcome, Failure> {
    if let Change::Delete(_) = change {
        admission::mutate(Review { action: Action::Delete, state, operation, old: None }, None).await?;
    }
    let generated = match change {
        Change::Create(object) => create::generated_base(object).map(str::to_owned),
        _ => None,
    };
    let attempts = if generated.is_some() { NAMES_MAX } else { ATTEMPTS_MAX };
    for _ in 0..attempts {
        let draft = draft(state, operation, change).await?;
        match commit(state, operation, draft).await? {
            Attempt::Done(outcome) => return Ok(outcome),
            Attempt::Overtaken(failure) if matches!(change, Change::Create(_)) && generated.is_none() => {
                return Err(failure);
            }
            Attempt::Overtaken(_) | Attempt::Step => {}
        }
    }
    Err(match generated {
        Some(base) => create::no_name_left(operation, &base),
        None => Failure::modified(&operation.group_resource(), operation.name()),
    })
}

/// Makes of what is there what is to be.
async fn draft<'s>(state: &'s State, operation: &mut Operation<'_>, change: &Change<'_>) -> Result<Draft<'s>, Failure> {
    if let Change::Create(object) = change {
        return create::draft(state, operation, object.clone(), Recorded::No).await;
    }
    let Some(stored) = state.get(operation.storage(), &operation.key(operation.name())).await? else {
        return draft_of_absent(state, operation, change).await;
    };
    let (current, new, recorded) = match change {
        Change::Assign(assign) => {
            let old = conversion::to_internal(operation.served, conversion::parse(&stored)?).await?;
            let mut object = old.clone();
            assign(&mut object)?;
            let is_same = object == old;
            return Ok(match is_same {
                true => Draft::Unchanged(stored),
                false => Draft::Update { current: stored, object, reservation: None },
            });
        }
        Change::Create(_) => return Err(Failure::already_exists(&operation.group_resource(), operation.name())),
        Change::Delete(options) => return delete::draft(state, operation, options, stored).await,
        Change::Edit(edit) => {
            let current = Current::new(operation, stored).await?;
            let new = edit(&current)?;
            (current, new, Recorded::No)
        }
        Change::Patch(patch) => {
            let current = Current::new(operation, stored).await?;
            let (new, recorded) = patch::patched(operation, patch, &current)?;
            (current, new, recorded)
        }
        Change::Update(object) => (Current::new(operation, stored).await?, object.clone(), Recorded::No),
    };
    update::draft(state, operation, current, new, recorded).await
}

/// What a change makes where there is nothing: an apply creates, a PUT of some kinds too.
async fn draft_of_absent<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    change: &Change<'_>,
) -> Result<Draft<'s>, Failure> {
    match change {
        Change::Patch(patch) if operation.attributes.subresource.is_none() => {
            if let Format::Apply(applied) = &patch.format {
                authorize_creation(state, operation).await?;
                let object = patch::applied_to_nothing(operation, patch, applied)?;
                return create::draft(state, operation, object, Recorded::Yes).await;
            }
        }
        Change::Update(object) => {
            let is_allowed = operation.strategy().rules().creates_on_update && operation.endpoint() == Endpoint::Main;
            if is_allowed {
                authorize_creation(state, operation).await?;
                return create::draft(state, operation, object.clone(), Recorded::No).await;
            }
        }
        Change::Assign(_) | Change::Create(_) | Change::Delete(_) | Change::Edit(_) | Change::Patch(_) => {}
    }
    Err(Failure::not_found(&operation.group_resource(), operation.name()))
}

async fn authorize_creation(state: &State, operation: &Operation<'_>) -> Result<(), Failure> {
    let attributes = ResourceAttributes { verb: Verb::Create.as_str(), ..operation.attributes };
    authz::authorize(&*state.authorizer, operation.user, &Attributes::Resource(attributes)).await
}

/// Stores a draft, unless somebody else wrote first.
async fn commit(state: &State, operation: &Operation<'_>, draft: Draft<'_>) -> Result<Attempt, Failure> {
    if operation.options.is_dry_run {
        return dry_run(state, operation, draft).await;
    }
    match draft {
        Draft::Create { name, object, reservation } => {
            create::commit(state, operation, &name, object, reservation).await.map(|created| match created {
                Ok(stored) => Attempt::Done(Outcome::Created(Payload::Stored(stored))),
                Err(failure) => Attempt::Overtaken(failure),
            })
        }
        Draft::Delete { current, last } => {
            let deleted = state.store.delete(operation.storage(), &current.key, current.revision).await;
            let deleted = match deleted {
                Ok(deleted) => deleted,
                Err(error) => return overtaken(operation, &error),
            };
            allocation::release(state, operation, &deleted.object);
            state.written(operation.resource(), deleted.revision).await?;
            Ok(Attempt::Done(match last {
                Some(last) => Outcome::Updated(presented(operation, last)),
                None => Outcome::Deleted(deleted.object),
            }))
        }
        Draft::MarkDeleted { current, object } => Ok(match update(state, operation, &current, object).await? {
            Ok(_) => Attempt::Step,
            Err(failure) => Attempt::Overtaken(failure),
        }),
        Draft::Unchanged(current) => Ok(Attempt::Done(Outcome::Updated(Payload::Stored(current)))),
        Draft::Update { current, object, reservation } => {
            Ok(match update(state, operation, &current, object).await? {
                Ok(stored) => {
                    if let Some(reservation) = reservation {
                        reservation.commit();
                    }
                    Attempt::Done(Outcome::Updated(Payload::Stored(stored)))
                }
                Err(failure) => Attempt::Overtaken(failure),
            })
        }
    }
}

async fn update(
    state: &State,
    operation: &Operation<'_>,
    current: &Object,
    object: Value,
) -> Result<Result<Arc<Object>, Failure>, Failure> {
    let stored = stored_bytes(operation, object).await?;
    match state.store.update(operation.storage(), &current.key, current.revision, stored).await {
        Ok(stored) => {
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

/// What the answer would be if the draft were stored.
async fn dry_run(state: &State, operation: &Operation<'_>, draft: Draft<'_>) -> Result<Attempt, Failure> {
    Ok(match draft {
        Draft::Create { name, object, .. } => match state.get(operation.storage(), &operation.key(&name)).await? {
            Some(_) => Attempt::Overtaken(Failure::already_exists(&operation.group_resource(), &name)),
            None => Attempt::Done(Outcome::Created(presented(operation, object))),
        },
        Draft::Delete { current, last: None } => Attempt::Done(Outcome::Deleted(current)),
        Draft::Delete { last: Some(object), .. } | Draft::MarkDeleted { object, .. } | Draft::Update { object, .. } => {
            Attempt::Done(Outcome::Updated(presented(operation, object)))
        }
        Draft::Unchanged(current) => Attempt::Done(Outcome::Updated(Payload::Stored(current))),
    })
}

fn presented(operation: &Operation<'_>, internal: Value) -> Payload {
    Payload::Tree(operation.strategy().present(operation.version(), internal))
}

/// The bytes at rest of an object in the internal form.
pub(super) async fn stored_bytes(operation: &Operation<'_>, internal: Value) -> Result<Bytes, Failure> {
    let mut stored = conversion::to_stored(operation.served, internal).await?;
    value::remove_at(&mut stored, &["metadata", "resourceVersion"]);
    crate::at_rest::encode(operation.resource(), stored).map_err(|error| {
        tracing::error!(%error, "an object does not serialise");
        Failure::internal("the object does not serialise")
    })
}
