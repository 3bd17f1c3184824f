//! The one loop of all writes: read what is there, make of it what is to be, store that, and begin again if somebody else
//! wrote in between.
//!
//! What is to be is a [`Plan`]: everything about it is decided, but for whether it is still in time.

use crate::admission::{self, Action, Review};
use crate::at_rest;
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
use std::sync::Arc;
use steersman_machinery::object::Draft;
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
pub(super) enum Plan<'s> {
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
pub(super) enum Attempt {
    Done(Outcome),
    /// Somebody else wrote first; this is what to say where nothing more is tried.
    Overtaken(Failure),
    /// What it depends on has changed, or one step of several was done: the next attempt goes on.
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
        operation.guards.clear();
        let plan = plan(state, operation, change).await?;
        match commit(state, operation, plan).await? {
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
async fn plan<'s>(state: &'s State, operation: &mut Operation<'_>, change: &Change<'_>) -> Result<Plan<'s>, Failure> {
    if let Change::Create(object) = change {
        return create::plan(state, operation, object.clone(), Recorded::No).await;
    }
    let Some(stored) = state.get(operation.storage(), &operation.key(operation.name())).await? else {
        return plan_for_absent(state, operation, change).await;
    };
    let (current, new, recorded) = match change {
        Change::Assign(assign) => {
            let old = conversion::to_internal(operation.served, conversion::parse(&stored)?).await?;
            let mut object = old.clone();
            assign(&mut object)?;
            let is_same = object == old;
            return Ok(match is_same {
                true => Plan::Unchanged(stored),
                false => Plan::Update { current: stored, object, reservation: None },
            });
        }
        Change::Create(_) => return Err(Failure::already_exists(&operation.group_resource(), operation.name())),
        Change::Delete(options) => return delete::plan(state, operation, options, stored).await,
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
    update::plan(state, operation, current, new, recorded).await
}

/// What a change makes where there is nothing: an apply creates, a PUT of some kinds too.
async fn plan_for_absent<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    change: &Change<'_>,
) -> Result<Plan<'s>, Failure> {
    match change {
        Change::Patch(patch) if operation.attributes.subresource.is_none() => {
            if let Format::Apply(applied) = &patch.format {
                authorize_creation(state, operation).await?;
                let object = patch::applied_to_nothing(operation, patch, applied)?;
                return create::plan(state, operation, object, Recorded::Yes).await;
            }
        }
        Change::Update(object) => {
            let is_allowed = operation.strategy().rules().creates_on_update && operation.endpoint() == Endpoint::Main;
            if is_allowed {
                authorize_creation(state, operation).await?;
                return create::plan(state, operation, object.clone(), Recorded::No).await;
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

/// Carries out a plan, unless somebody else wrote first.
async fn commit(state: &State, operation: &Operation<'_>, plan: Plan<'_>) -> Result<Attempt, Failure> {
    if operation.options.is_dry_run {
        return dry_run(state, operation, plan).await;
    }
    match plan {
        Plan::Create { name, object, reservation } => {
            create::commit(state, operation, &name, object, reservation).await
        }
        Plan::Delete { current, last } => {
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
        Plan::MarkDeleted { current, object } => Ok(match update(state, operation, &current, object).await? {
            Ok(_) => Attempt::Step,
            Err(failure) => Attempt::Overtaken(failure),
        }),
        Plan::Unchanged(current) => Ok(Attempt::Done(Outcome::Updated(Payload::Stored(current)))),
        Plan::Update { current, object, reservation } => Ok(match update(state, operation, &current, object).await? {
            Ok(stored) => {
                if let Some(reservation) = reservation {
                    reservation.commit();
                }
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

/// What the answer would be if the plan were carried out.
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

/// An object of the internal form as it goes to the store.
pub(super) async fn draft(operation: &Operation<'_>, internal: Value) -> Result<Draft, Failure> {
    let mut stored = conversion::to_stored(operation.served, internal).await?;
    value::remove_at(&mut stored, &["metadata", "resourceVersion"]);
    at_rest::draft(operation.resource(), stored).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an object cannot be stored");
        Failure::internal(error.to_string())
    })
}
