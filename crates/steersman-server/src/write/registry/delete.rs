//! The stages of a deletion.
//!
//! The object is removed at once, or it gets a deletionTimestamp and waits: for its finalizers, for the grace period of a Pod
//! on a node, for the finalizers in a Namespace's spec.

use crate::shared::conversion;
use crate::shared::operation::{Operation, seconds};
use crate::shared::request::options::Delete;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::{self, Action, Phase, Review};
use crate::write::registry::metadata;
use crate::write::registry::plan::Plan;
use jiff::SignedDuration;
use std::sync::Arc;
use steersman_kinds::catalog::Verb;
use steersman_kinds::strategy::{Grace, Propagation};
use steersman_machinery::{GroupResource, Object, Value, value};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Runs the stages of a deletion on the current object.
pub(super) async fn plan<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    options: &Delete,
    current: Arc<Object>,
) -> Result<Plan<'s>, Failure> {
    warn_of_orphans(operation, options);
    check_preconditions(operation, options, current.meta().uid(), &current.revision.to_string())?;
    let is_handled =
        |phase| !operation.is_admitted && admission::is_handled(state, phase, Action::Delete, &operation.attributes);
    let (is_mutated, is_validated) = (is_handled(Phase::Mutate), is_handled(Phase::Validate));
    if !is_mutated && !is_validated && goes_unread(operation, options, &current) {
        return Ok(Plan::Delete { current, last: None });
    }
    let mut object = conversion::to_internal(operation.served, conversion::parse(&current)?).await?;
    if is_mutated {
        // Nothing will be changed, but mutating plugins may also refuse a deletion. They get the requested form.
        let (strategy, version) = (operation.strategy(), operation.version());
        let presented = (!strategy.is_internal_form(version)).then(|| strategy.present(version, object.clone()));
        let old = presented.as_ref().unwrap_or(&object);
        admission::mutate(Review::new(Action::Delete, state, operation, Some(old)).with_deletion(options), None)
            .await?;
    }
    if is_validated {
        let review = Review::new(Action::Delete, state, operation, Some(&object)).with_deletion(options);
        admission::validate(review, None).await?;
    }
    let is_marked = mark(operation, options, &mut object);
    if is_waiting(&object) {
        return Ok(match is_marked {
            true => Plan::Update { current, object, reservation: None },
            false => Plan::Unchanged(current),
        });
    }
    // The deletionTimestamp of a Pod is written separately even without a grace period, so that watchers see both
    // events.
    let is_marked_first = is_marked && operation.strategy().rules().grace == Grace::Node;
    Ok(match is_marked_first && !operation.options.is_dry_run {
        true => Plan::MarkDeleted { current, object },
        // A dry run answers with the result of the first of the two writes.
        false => Plan::Delete { current, last: is_marked_first.then_some(object) },
    })
}

fn warn_of_orphans(operation: &mut Operation<'_>, options: &Delete) {
    const WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    let is_unsaid = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    let is_single = operation.attributes.verb == Verb::Delete.as_str();
    if is_unsaid && is_single && operation.strategy().rules().warns_of_orphans {
        operation.warn(WARNING.to_owned());
    }
}

/// Whether nothing in the object can keep it, so that it need not be parsed.
fn goes_unread(operation: &Operation<'_>, options: &Delete, current: &Object) -> bool {
    let rules = operation.strategy().rules();
    let is_kept = rules.grace != Grace::None || current.meta().finalizers().next().is_some();
    !is_kept && policy(options, rules.propagation, &[]) == Propagation::Background
}

/// Checks the preconditions of a deletion against the object's uid and version.
///
/// # Errors
/// 409 if they do not match.
pub(crate) fn check_preconditions(
    operation: &Operation<'_>,
    options: &Delete,
    live_uid: &str,
    revision: &str,
) -> Result<(), Failure> {
    // Upstream names the kind here, while all other conflicts name the resource.
    let kind = GroupResource::new(&*operation.resource().group, &*operation.resource().kind);
    if let Some(uid) = options.preconditions.uid.as_deref().filter(|uid| *uid != live_uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({live_uid}). The object might have been deleted and then recreated"
        );
        return Err(Failure::conflict(&kind, operation.name(), &why));
    }
    if let Some(version) = options.preconditions.resource_version.as_deref().filter(|version| *version != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        );
        return Err(Failure::conflict(&kind, operation.name(), &why));
    }
    Ok(())
}

/// Sets the deletionTimestamp, grace period and finalizers of the deletion; false if that changes nothing.
fn mark(operation: &Operation<'_>, options: &Delete, object: &mut Value) -> bool {
    let before = object.clone();
    let is_deleting = !metadata::text(object, "deletionTimestamp").is_empty();
    set_finalizers(options, operation.strategy().rules().propagation, object);
    operation.strategy().prepare_delete(operation.version(), object, &operation.now_text());
    if operation.strategy().rules().grace == Grace::Instances {
        // A definition has no grace period, and its deletion does not increase its generation.
        if !is_deleting {
            value::set_at(object, &["metadata", "deletionTimestamp"], seconds(operation.now).into());
        }
        return *object != before;
    }
    let grace = grace_seconds(operation, options, object);
    let asked_before = value::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let is_shorter = asked_before.is_none_or(|before| grace < before);
    if !is_deleting || is_shorter {
        let at = operation.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(operation.now);
        value::set_at(object, &["metadata", "deletionTimestamp"], seconds(at).into());
        if operation.strategy().rules().grace != Grace::SpecFinalizers {
            value::set_at(object, &["metadata", "deletionGracePeriodSeconds"], grace.into());
        }
    }
    let generation = value::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
    if let (false, Some(generation)) = (is_deleting, generation) {
        value::set_at(object, &["metadata", "generation"], (generation + 1).into());
    }
    *object != before
}

/// The grace period of the object, in seconds.
fn grace_seconds(operation: &Operation<'_>, options: &Delete, object: &Value) -> i64 {
    if operation.strategy().rules().grace != Grace::Node {
        return 0;
    }
    let is_bound = value::str_at(object, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let is_over = matches!(value::str_at(object, &["status", "phase"]), Some("Failed" | "Succeeded"));
    if !is_bound || is_over {
        return 0;
    }
    let own = value::at(object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let wanted = options.grace_period_seconds.or(own).unwrap_or(30);
    // A negative period means at once, but the node must still notice.
    if wanted < 0 { 1 } else { wanted }
}

/// Sets the finalizers of garbage collection by the propagation policy.
fn set_finalizers(options: &Delete, default: Propagation, object: &mut Value) {
    let present = metadata::finalizers(object);
    let wanted = match policy(options, default, &present) {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let mut finalizers: Vec<Value> =
        present.iter().filter(|one| ![ORPHAN, FOREGROUND].contains(*one)).map(|one| Value::from(*one)).collect();
    finalizers.extend(wanted.map(Value::from));
    if finalizers.is_empty() {
        value::remove_at(object, &["metadata", "finalizers"]);
    } else {
        value::set_at(object, &["metadata", "finalizers"], finalizers.into());
    }
}

/// The propagation policy: the client's, else the one that the present finalizers imply, else the kind's default.
fn policy(options: &Delete, default: Propagation, present: &[&str]) -> Propagation {
    match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
        (Some("Foreground"), _) => Propagation::Foreground,
        (Some(_), _) | (None, Some(false)) => Propagation::Background,
        (None, None) if present.contains(&ORPHAN) => Propagation::Orphan,
        (None, None) if present.contains(&FOREGROUND) => Propagation::Foreground,
        (None, None) => default,
    }
}

/// Whether finalizers or a grace period still keep the object.
fn is_waiting(object: &Value) -> bool {
    let has_spec_finalizers = object.get("kind").and_then(Value::as_str) == Some("Namespace")
        && value::at(object, &["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let grace = value::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    has_spec_finalizers || !metadata::finalizers(object).is_empty() || grace > 0
}

/// Whether an object is being deleted and nothing keeps it any longer.
pub(crate) fn is_done_waiting(object: &Value) -> bool {
    !metadata::text(object, "deletionTimestamp").is_empty() && !is_waiting(object)
}
