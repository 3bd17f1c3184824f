//! The stages of a creation.

use crate::shared::identity::uid;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::{self, Action, Review};
use crate::write::registry::identity;
use crate::write::registry::judging;
use crate::write::registry::managed;
use crate::write::registry::metadata;
use crate::write::registry::plan::{Plan, Recorded};
use crate::write::registry::rights::{admin_access, escalation};
use crate::write::registry::service_addresses::allocation;
use rand::Rng;
use steersman_machinery::{Value, name, value};

/// Runs the stages of a creation on a decoded, defaulted object in the requested form.
pub(super) async fn plan<'s>(
    state: &'s State,
    operation: &mut Operation<'_>,
    mut object: Value,
    recorded: Recorded,
) -> Result<Plan<'s>, Failure> {
    if operation.resource().is_terminating() {
        return Err(Failure::method_not_allowed());
    }
    if recorded == Recorded::No {
        metadata::drop_system_fields(&mut object);
        managed::record(operation, None, &mut object).await;
    }
    let review = Review::new(Action::Create, state, operation, None);
    admission::mutate(review, Some(&mut object)).await?;
    // A webhook may have changed its name or namespace.
    let generated = generated_base(&object).map(generate);
    identity::set_namespace(operation, &mut object)?;
    escalation::check(state, operation, &object, None).await?;
    if let Some(warning) = metadata::deduplicate_owners(&mut object) {
        operation.warn(warning);
    }
    let has_version = !metadata::text(&object, "resourceVersion").is_empty();
    let (strategy, version) = (operation.strategy(), operation.version());
    let mut object = strategy.internal(version, object);
    metadata::prepare_create(&mut object, uid::random(), operation.now_text());
    if let Some(generated) = generated {
        // Set before `prepare_create`: some kinds copy their name into labels.
        value::set_at(&mut object, &["metadata", "name"], generated.into());
    }
    strategy.prepare_create(version, &mut object);
    strategy.set_creator(&mut object, operation.user);
    strategy.set_times(&mut object, &Value::Null, &operation.now_text());
    let reservation = allocation::reserve(state, operation, &mut object, None);
    let reservation = allocation::after_errors_of_fields(operation, reservation)?;
    let mut errors = metadata::validate_create(&object, strategy);
    let validate = |operation: &mut Operation<'_>| strategy.validate_create(version, &object, &operation.budget);
    errors.extend(operation.computed(validate).await);
    admin_access::check(state, operation, &object, None, &mut errors).await?;
    // Within an exceeded budget the owners of fields, or the faults, are not complete.
    operation.budget.check()?;
    judging::judge(operation, &object, None, &mut errors).await;
    let name = metadata::text(&object, "name").to_owned();
    operation.refuse(&name, &errors)?;
    let reservation = reservation?;
    for warning in strategy.warnings(version, &object, &Value::Null) {
        operation.warn(warning);
    }
    // Upstream checks this in the store, which a dry run does not reach.
    if has_version && !operation.options.is_dry_run {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    admission::validate(Review::new(Action::Create, state, operation, None), Some(&object)).await?;
    Ok(Plan::Create { name, object, reservation })
}

/// The `generateName` of a new object, if the server is to generate its name.
pub(super) fn generated_base(object: &Value) -> Option<&str> {
    let base = metadata::text(object, "generateName");
    (metadata::text(object, "name").is_empty() && !base.is_empty()).then_some(base)
}

/// The answer when every generated name was taken.
pub(super) fn no_name_left(operation: &Operation<'_>, base: &str) -> Failure {
    let mut failure = Failure::already_exists(&operation.group_resource(), base);
    failure.status.message.push_str(", the server was not able to generate a unique name for the object");
    if let Some(details) = &mut failure.status.details {
        details.retry_after_seconds = Some(1);
    }
    failure
}

fn generate(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = name::GENERATED_ALPHABET;
    let mut made = name::generated_base(base).to_owned();
    made.extend((0..name::GENERATED_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])));
    made
}
