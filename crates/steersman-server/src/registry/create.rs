//! What becomes of a new object on its way into the store.

use crate::admission::{self, Action, Review};
use crate::builtin::service::Reservation;
use crate::catalog::{Origin, Resource};
use crate::operation::Operation;
use crate::payload::Payload;
use crate::registry::write::{self, Attempt, Outcome, Plan};
use crate::registry::{allocation, managed, metadata, update};
use crate::state::State;
use crate::status::Failure;
use rand::Rng;
use steersman_machinery::{Value, name, value};
use steersman_storage::WriteError;

/// Whether the owners of the fields are recorded in the object already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recorded {
    No,
    Yes,
}

/// Takes a decoded, defaulted object in the requested form through the stages of a creation.
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
        managed::record(operation, None, &mut object);
    }
    let generated = generated_base(&object).map(generate);
    let review = Review { action: Action::Create, state, operation, old: None };
    admission::mutate(review, Some(&mut object)).await?;
    if let Some(warning) = metadata::deduplicate_owners(&mut object) {
        operation.warn(warning);
    }
    let has_version = !metadata::text(&object, "resourceVersion").is_empty();
    let (strategy, version) = (operation.strategy(), operation.version());
    let mut object = strategy.internal(version, object);
    metadata::prepare_create(&mut object, uuid::Uuid::new_v4().to_string(), operation.now_text());
    if let Some(generated) = generated {
        // Before it is prepared: some kinds put their name into labels.
        value::set_at(&mut object, &["metadata", "name"], generated.into());
    }
    strategy.prepare_create(version, &mut object);
    let reservation = allocation::reserve(state, operation, &mut object, None)?;
    let mut errors = metadata::validate_create(&object, strategy, operation.resource().is_custom());
    errors.extend(strategy.validate_create(version, &object));
    let name = metadata::text(&object, "name").to_owned();
    update::refuse(operation, &name, &errors)?;
    for warning in strategy.warnings(version, &object) {
        operation.warn(warning);
    }
    if has_version {
        return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
    }
    admission::validate(Review { action: Action::Create, state, operation, old: None }, Some(&object)).await?;
    Ok(Plan::Create { name, object, reservation })
}

/// Stores a new object.
pub(super) async fn commit(
    state: &State,
    operation: &Operation<'_>,
    name: &str,
    object: Value,
    reservation: Option<Reservation<'_>>,
) -> Result<Attempt, Failure> {
    let group_resource = operation.group_resource();
    let (key, draft) = (operation.key(name), write::draft(operation, object).await?);
    let stored = match state.store.create_with(operation.storage(), &key, draft, &operation.guards).await {
        Ok(stored) => stored,
        Err(error @ WriteError::AlreadyExists { .. }) => {
            let mut failure = Failure::of_write(&error, &group_resource, name);
            if matches!(error, WriteError::AlreadyExists { current } if current.meta().is_deleting()) {
                failure.status.message.insert_str(0, "object is being deleted: ");
            }
            return Ok(Attempt::Overtaken(failure));
        }
        // The namespace is not as it was when it was looked at.
        Err(WriteError::Guard { .. }) => return Ok(Attempt::Step),
        Err(error) => return Err(Failure::of_write(&error, &group_resource, name)),
    };
    if let Some(reservation) = reservation {
        reservation.commit();
    }
    if is_overtaken(state, operation) {
        return match state.store.delete(operation.storage(), &stored.key, stored.revision).await {
            // Changed since: the definition has seen it, and deletes it.
            Ok(_) | Err(WriteError::Conflict { .. }) => Err(Failure::method_not_allowed()),
            Err(error) => Err(Failure::of_write(&error, &group_resource, name)),
        };
    }
    state.written(operation.resource(), stored.revision).await?;
    Ok(Attempt::Done(Outcome::Created(Payload::Stored(stored))))
}

/// What the name of a new object is to begin with, if the server makes it.
pub(super) fn generated_base(object: &Value) -> Option<&str> {
    let base = metadata::text(object, "generateName");
    (metadata::text(object, "name").is_empty() && !base.is_empty()).then_some(base)
}

/// The answer where every generated name was taken.
pub(super) fn no_name_left(operation: &Operation<'_>, base: &str) -> Failure {
    let mut failure = Failure::already_exists(&operation.group_resource(), base);
    failure.status.message.push_str(", the server was not able to generate a unique name for the object");
    if let Some(details) = &mut failure.status.details {
        details.retry_after_seconds = Some(1);
    }
    failure
}

/// Whether the definition of the kind went while its object was being stored: then it may not have seen the object, which
/// it would have deleted.
fn is_overtaken(state: &State, operation: &Operation<'_>) -> bool {
    let resource = operation.resource();
    if !resource.is_custom() {
        return false;
    }
    // One that was made again under the same name is another definition, and this object is none of its own.
    let uid = |resource: &Resource| match &resource.origin {
        Origin::Custom { uid, .. } => Some(uid.clone()),
        Origin::BuiltIn => None,
    };
    let is_same =
        |other: &Resource| other.plural == resource.plural && !other.is_terminating() && uid(other) == uid(resource);
    !state.catalog().resources_of(&resource.group).any(is_same)
}

fn generate(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = name::GENERATED_ALPHABET;
    let mut made = name::generated_base(base).to_owned();
    made.extend((0..name::GENERATED_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])));
    made
}
