//! The loop of all writes: read the current object, compute a [`Plan`], commit it, and start again if another write
//! came in between.

use crate::access::authz::{self, Attributes, ResourceAttributes};
use crate::shared::compute::text_bytes;
use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::request::options;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission;
use crate::write::registry::commit::{Attempt, Outcome, commit};
use crate::write::registry::current::Current;
use crate::write::registry::patch::{self, Format, Patch};
use crate::write::registry::plan::{Plan, Recorded};
use crate::write::registry::{create, delete, update};
use futures::future::BoxFuture;
use std::sync::Arc;
use steersman_kinds::catalog::Verb;
use steersman_kinds::strategy::Endpoint;
use steersman_machinery::{Object, Value};

/// The most attempts of a write that other writes overtake.
const ATTEMPTS_MAX: usize = 100;
/// The most generated names that are tried.
const NAMES_MAX: usize = 8;

/// Computes the new object of an operation within its budget, in the requested form. It may be called again, as [`Operation::computed`] says.
pub(crate) type Edit<'a> = dyn Fn(&mut Operation<'_>, &Current) -> Result<Value, Failure> + Send + Sync + 'a;

/// The change that a write makes.
pub(crate) enum Change<'a> {
    /// Sets single fields of the object, in the internal form. The caller has checked that this is allowed: `managedFields`,
    /// validation and admission are skipped.
    Assign(&'a (dyn Fn(&mut Value) -> Result<(), Failure> + Send + Sync)),
    /// Creates an object. It is in the requested form, decoded and defaulted.
    Create(Value),
    /// Deletes the object, or begins its deletion.
    Delete(&'a options::Delete),
    /// Computes the new object, in the requested form.
    Edit(&'a Edit<'a>),
    /// Like `Edit`, but the new object has its `managedFields`.
    EditRecorded(&'a Edit<'a>),
    Patch(&'a Patch),
    /// Replaces the object, in the requested form, decoded and defaulted.
    Update(Value),
}

/// Carries out a write.
///
/// Boxed, because an `async fn` is compiled again in every codegen unit that awaits it, and this one contains all
/// stages of a write.
///
/// # Errors
/// With the answer for the client.
pub(crate) fn write<'a>(
    state: &'a State,
    operation: &'a mut Operation<'_>,
    change: &'a Change<'_>,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async {
        let outcome = attempts(state, operation, change).await;
        if outcome.is_err() {
            admission::undo(state, operation).await;
        }
        outcome
    })
}

/// Plans and commits until no other write comes in between.
async fn attempts(state: &State, operation: &mut Operation<'_>, change: &Change<'_>) -> Result<Outcome, Failure> {
    let generated = match change {
        Change::Create(object) => create::generated_base(object).map(str::to_owned),
        _ => None,
    };
    let overtaken_max = if generated.is_some() { NAMES_MAX } else { ATTEMPTS_MAX };
    let (mut n_overtaken, mut n_again) = (0, 0);
    let mut marked: Option<(Arc<Object>, options::Delete)> = None;
    while n_overtaken < overtaken_max && n_again < ATTEMPTS_MAX {
        if marked.is_none() {
            operation.check_time()?;
        }
        operation.guards.clear();
        let plan = match (change, &marked) {
            (Change::Delete(_), Some((marked, options))) => {
                let found = state.get_since(operation.arrived, operation.storage(), &marked.key).await?;
                match found.filter(|found| found.meta().uid() == marked.meta().uid()) {
                    Some(stored) => delete::plan(state, operation, options, stored).await?,
                    // Another client that saw the mark, such as podgc, has removed it. An object that now has its name
                    // is a different one.
                    None => return Ok(Outcome::Deleted(Arc::clone(marked))),
                }
            }
            _ => plan(state, operation, change).await?,
        };
        match commit(state, operation, plan).await? {
            Attempt::Done(outcome) => return Ok(outcome),
            Attempt::Overtaken(failure) if matches!(change, Change::Create(_)) && generated.is_none() => {
                return Err(failure);
            }
            Attempt::Marked(object) => {
                operation.is_admitted = true;
                let Change::Delete(options) = change else { continue };
                marked = Some((object.clone(), options.after(object.revision)));
            }
            Attempt::Overtaken(_) => n_overtaken += 1,
            Attempt::Again => n_again += 1,
        }
    }
    Err(match generated.filter(|_| n_overtaken == overtaken_max) {
        Some(base) => create::no_name_left(operation, &base),
        None => Failure::modified(&operation.group_resource(), operation.name()),
    })
}

/// Computes the change to store, from the current object.
async fn plan<'s>(state: &'s State, operation: &mut Operation<'_>, change: &Change<'_>) -> Result<Plan<'s>, Failure> {
    if let Change::Create(object) = change {
        return create::plan(state, operation, object.clone(), Recorded::No).await;
    }
    let key = operation.key(operation.name());
    let Some(stored) = state.get_since(operation.arrived, operation.storage(), &key).await? else {
        return plan_for_absent(state, operation, change).await;
    };
    operation.load.expect(text_bytes(stored.json())).await;
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
            let new = operation.computed(|operation| edit(operation, &current)).await?;
            (current, new, Recorded::No)
        }
        Change::EditRecorded(edit) => {
            let current = Current::new(operation, stored).await?;
            let new = with_conversions(operation, |operation| edit(operation, &current)).await?;
            (current, new, Recorded::Yes)
        }
        Change::Patch(patch) => {
            let current = Current::new(operation, stored).await?;
            let patched = with_conversions(operation, |operation| patch::patched(operation, patch, &current));
            let (new, recorded) = patched.await?;
            (current, new, recorded)
        }
        Change::Update(object) => (Current::new(operation, stored).await?, object.clone(), Recorded::No),
    };
    update::plan(state, operation, current, new, recorded).await
}

/// The plan if the object does not exist: an apply creates it, and so does a PUT of some kinds.
async fn plan_for_absent<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    change: &Change<'_>,
) -> Result<Plan<'s>, Failure> {
    match change {
        Change::Patch(patch) if operation.attributes.subresource.is_none() => {
            if let Format::Apply(applied) = &patch.format {
                authorize_creation(state, operation).await?;
                let object =
                    operation.computed(|operation| patch::applied_to_nothing(operation, patch, applied)).await?;
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
        Change::Assign(_)
        | Change::Create(_)
        | Change::Delete(_)
        | Change::Edit(_)
        | Change::EditRecorded(_)
        | Change::Patch(_) => {}
    }
    Err(Failure::not_found(&operation.group_resource(), operation.name()))
}

/// Runs a function that may need conversions of `managedFields` by a webhook, until it has them all.
async fn with_conversions<T>(
    operation: &mut Operation<'_>,
    run: impl Fn(&mut Operation<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut outcome = operation.computed(&run).await;
    if let Some(conversions) = operation.conversions.clone() {
        while conversions.supply(operation.resource()).await {
            outcome = operation.computed(&run).await;
        }
    }
    outcome
}

async fn authorize_creation(state: &State, operation: &Operation<'_>) -> Result<(), Failure> {
    let attributes = ResourceAttributes { verb: Verb::Create.as_str(), ..operation.attributes };
    authz::authorize(&*state.authorizer, operation.user, &Attributes::Resource(attributes)).await
}
