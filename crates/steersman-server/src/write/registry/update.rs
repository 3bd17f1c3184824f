//! The stages of an update.

use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::{self, Action, Review};
use crate::write::initializers::field;
use crate::write::registry::current::Current;
use crate::write::registry::delete;
use crate::write::registry::judging;
use crate::write::registry::managed;
use crate::write::registry::metadata;
use crate::write::registry::plan::{Plan, Recorded};
use crate::write::registry::rights::{admin_access, escalation};
use crate::write::registry::service_addresses::allocation;
use steersman_kinds::catalog::Verb;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::{Object, Revision, Value, value};

/// Runs the stages of an update on a decoded, defaulted object in the requested form.
pub(super) async fn plan<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    current: Current,
    mut new: Value,
    recorded: Recorded,
) -> Result<Plan<'s>, Failure> {
    let (strategy, version, endpoint) = (operation.strategy(), operation.version(), operation.endpoint());
    check_preconditions(operation, &current.stored, &new)?;
    check_version_given(operation, &new)?;
    metadata::prepare_update(&mut new, current.requested());
    let has_initializers = state.initializers.is_some();
    let is_whole = operation.attributes.subresource.is_none();
    if has_initializers && !is_whole {
        field::carry(&mut new, current.requested());
    }
    let is_unfinished = has_initializers && is_whole && field::is_given(current.requested());
    if recorded == Recorded::No {
        managed::record(operation, Some(current.requested()), &mut new).await;
    }
    if let Some(warning) = metadata::deduplicate_owners(&mut new) {
        operation.warn(warning);
    }
    let review = Review::new(Action::Update, state, operation, Some(current.requested()));
    admission::mutate(review, Some(&mut new)).await?;
    escalation::check(state, operation, &new, Some(current.requested())).await?;
    value::set_at(&mut new, &["metadata", "resourceVersion"], current.stored.revision.to_string().into());
    managed::keep_times(current.requested(), &mut new);
    let Current { stored: current, internal: old, .. } = current;
    let mut new = strategy.internal(version, new);
    strategy.prepare_update(version, endpoint, &mut new, &old);
    if is_unfinished {
        // It is still being created, so the fields that the server derives from its content are set again.
        strategy.prepare_create(version, &mut new);
    }
    strategy.set_times(&mut new, &old, &operation.now_text());
    let reservation = allocation::reserve(state, operation, &mut new, Some(&old));
    let reservation = allocation::after_errors_of_fields(operation, reservation)?;
    let mut errors = metadata::validate_update(&new, &old, strategy, endpoint);
    let validate = |operation: &mut Operation<'_>| match is_unfinished {
        true => strategy.validate_create(version, &new, &operation.budget),
        false => strategy.validate_update(version, endpoint, &new, &old, &operation.budget),
    };
    errors.extend(operation.computed(validate).await);
    let before = if is_unfinished { None } else { Some(&old) };
    admin_access::check(state, operation, &new, before, &mut errors).await?;
    // If the budget is exceeded, the field owners or the validation errors are incomplete.
    operation.budget.check()?;
    judging::judge(operation, &new, before, &mut errors).await;
    operation.refuse(operation.name(), &errors)?;
    let reservation = reservation?;
    if strategy.rules().warns_on_update {
        strategy.warnings(version, &new, &old).into_iter().for_each(|warning| operation.warn(warning));
    }
    admission::validate(Review::new(Action::Update, state, operation, Some(&old)), Some(&new)).await?;
    if new == old {
        return Ok(Plan::Unchanged(current));
    }
    if delete::is_done_waiting(&new) {
        // Dropping the reservation releases the values reserved for the update.
        return Ok(Plan::Delete { current, last: Some(new) });
    }
    Ok(Plan::Update { current, object: new, reservation })
}

/// Refuses updates without a resourceVersion for some kinds. `0` counts as none.
fn check_version_given(operation: &Operation<'_>, object: &Value) -> Result<(), Failure> {
    let is_given = !matches!(metadata::text(object, "resourceVersion"), "" | "0");
    if is_given || operation.strategy().rules().updates_unconditionally {
        return Ok(());
    }
    let path = Path::new("metadata.resourceVersion");
    operation.refuse(operation.name(), &[Error::invalid(&path, 0, "must be specified for an update")])
}

/// Checks that the uid and the version sent by the client are those of the object.
fn check_preconditions(operation: &Operation<'_>, current: &Object, new: &Value) -> Result<(), Failure> {
    let uid = metadata::text(new, "uid");
    // A patch that changes the uid changes an immutable field, which validation refuses.
    let is_update = operation.attributes.verb == Verb::Update.as_str();
    if is_update && !uid.is_empty() && uid != current.meta().uid() {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", current.meta().uid());
        return Err(Failure::conflict(&operation.group_resource(), operation.name(), &why));
    }
    let version = metadata::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    match Revision::parse(version) {
        Ok(revision) if revision == current.revision => Ok(()),
        Ok(_) => Err(Failure::modified(&operation.group_resource(), operation.name())),
        Err(error) => Err(Failure::bad_request(format!("metadata.resourceVersion: {error}"))),
    }
}
