//! POST: a new object.

use crate::answer::{Answer, Payload};
use crate::catalog::{Origin, Resource};
use crate::negotiate::{Shape, negotiate};
use crate::options::Write;
use crate::registry::context::{Context, read_failure};
use crate::registry::{admission, allocation, body, managed, metadata};
use crate::status::Failure;
use bytes::Bytes;
use rand::Rng;
use steersman_machinery::{Value, field, name, value};
use steersman_storage::WriteError;

/// How often a generated name is tried before the client is told.
const NAMES_MAX: usize = 8;

pub(crate) async fn create(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    if !cx.allows(crate::catalog::Verb::Create) {
        return Err(Failure::method_not_allowed());
    }
    let options = Write::parse(cx.query, "CreateOptions", false)?;
    let mut object = body::decode(cx, &bytes, options.field_validation)?;
    set_namespace(cx, &mut object)?;
    let payload = insert(cx, &options, object, Recorded::No).await?;
    Answer::object(cx, 201, payload, negotiated)
}

/// Whether the owners of the fields are recorded in the object already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Recorded {
    No,
    Yes,
}

/// Gives an object the namespace of the path.
pub(crate) fn set_namespace(cx: &Context<'_>, object: &mut Value) -> Result<(), Failure> {
    let given = metadata::text(object, "namespace");
    match cx.namespace() {
        None => {
            value::remove_at(object, &["metadata", "namespace"]);
        }
        Some(namespace) if given.is_empty() => {
            value::set_at(object, &["metadata", "namespace"], namespace.into());
        }
        Some(namespace) if given == namespace => {}
        Some(_) => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    if cx.is_namespaced() && cx.namespace().is_none() {
        return Err(Failure::bad_request(format!(
            "{} live in namespaces: the path must name one",
            cx.resource().plural
        )));
    }
    Ok(())
}

/// Takes a decoded, defaulted object in the requested form through the rest of the pipeline into the store.
pub(crate) async fn insert(
    cx: &mut Context<'_>,
    options: &Write,
    mut object: Value,
    recorded: Recorded,
) -> Result<Payload, Failure> {
    if cx.resource().is_terminating() {
        return Err(Failure::method_not_allowed());
    }
    if recorded == Recorded::No {
        managed::record(cx, options, None, &mut object);
    }
    let given = admission::name_of(&object).to_owned();
    admission::namespace_lifecycle(cx, &given).await?;
    admission::mutate(cx, None, &mut object)?;
    if let Some(warning) = metadata::deduplicate_owners(&mut object) {
        cx.warn(warning);
    }
    let has_version = !metadata::text(&object, "resourceVersion").is_empty();
    let strategy = cx.strategy();
    let mut object = strategy.internal(cx.version(), object);
    metadata::prepare_create(&mut object, uuid::Uuid::new_v4().to_string(), cx.now_text());
    let base = metadata::text(&object, "generateName").to_owned();
    let is_generated = given.is_empty() && !base.is_empty();
    let unprepared = object;
    for _ in 0..NAMES_MAX {
        let mut object = unprepared.clone();
        if is_generated {
            // Before it is prepared: some kinds put their name into labels.
            value::set_at(&mut object, &["metadata", "name"], generated(&base).into());
        }
        strategy.prepare_create(cx.version(), &mut object);
        let reservation = allocation::reserve(cx, &mut object, None)?;
        let mut errors = metadata::validate_create(&object, strategy, cx.resource().is_custom());
        errors.extend(strategy.validate_create(cx.version(), &object));
        let name = admission::name_of(&object).to_owned();
        refuse(cx, &name, &errors)?;
        for warning in strategy.warnings(cx.version(), &object) {
            cx.warn(warning);
        }
        if has_version {
            return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
        }
        if options.is_dry_run {
            let found =
                cx.server.store.get(cx.storage(), &cx.key(&name)).await.map_err(|error| read_failure(&error))?;
            match found {
                Some(_) if is_generated => continue,
                Some(_) => return Err(Failure::already_exists(&cx.group_resource(), &name)),
                None => return Ok(Payload::Tree(strategy.present(cx.version(), object))),
            }
        }
        let stored = stored_bytes(cx, object)?;
        match cx.server.store.create(cx.storage(), &cx.key(&name), stored).await {
            Ok(stored) => {
                if let Some(reservation) = reservation {
                    reservation.commit();
                }
                if is_overtaken(cx) {
                    return match cx.server.store.delete(cx.storage(), &stored.key, stored.revision).await {
                        // Changed since: the definition has seen it, and deletes it.
                        Ok(_) | Err(WriteError::Conflict { .. }) => Err(Failure::method_not_allowed()),
                        Err(error) => Err(cx.write_failure(&error, &name)),
                    };
                }
                cx.server.written(cx.resource(), stored.revision).await;
                return Ok(Payload::Stored(stored));
            }
            Err(WriteError::AlreadyExists { .. }) if is_generated => {}
            Err(WriteError::AlreadyExists { current }) if current.meta().is_deleting() => {
                let mut failure = Failure::already_exists(&cx.group_resource(), &name);
                failure.status.message.insert_str(0, "object is being deleted: ");
                return Err(failure);
            }
            Err(error) => return Err(cx.write_failure(&error, &name)),
        }
    }
    let mut failure = Failure::already_exists(&cx.group_resource(), &base);
    failure.status.message.push_str(", the server was not able to generate a unique name for the object");
    if let Some(details) = &mut failure.status.details {
        details.retry_after_seconds = Some(1);
    }
    Err(failure)
}

/// Whether the definition of the kind went while its object was being stored: then it may not have seen the object, which
/// it would have deleted.
fn is_overtaken(cx: &Context<'_>) -> bool {
    let resource = cx.resource();
    let face = cx.server.face();
    // One that was made again under the same name is another definition, and this object is none of its own.
    let uid = |resource: &Resource| match &resource.origin {
        Origin::Custom { uid, .. } => Some(uid.clone()),
        Origin::BuiltIn => None,
    };
    let is_same =
        |other: &Resource| other.plural == resource.plural && !other.is_terminating() && uid(other) == uid(resource);
    resource.is_custom() && !face.catalog.resources_of(&resource.group).any(is_same)
}

/// Fails with every fault, if there are any.
pub(crate) fn refuse(cx: &Context<'_>, name: &str, errors: &[field::Error]) -> Result<(), Failure> {
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid(&cx.resource().group_kind(), name, errors)) }
}

/// The bytes at rest of an object in the internal form.
///
/// Built-in kinds begin with kind and apiVersion, so that a list, whose items carry neither, can cut them off unread.
pub(crate) fn stored_bytes(cx: &Context<'_>, internal: Value) -> Result<Bytes, Failure> {
    let mut stored = cx.strategy().store(cx.resource(), cx.version(), internal);
    value::remove_at(&mut stored, &["metadata", "resourceVersion"]);
    crate::at_rest::encode(cx.resource(), stored).map_err(|error| {
        tracing::error!(%error, "an object does not serialise");
        Failure::internal("the object does not serialise")
    })
}

fn generated(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = name::GENERATED_ALPHABET;
    let mut made = name::generated_base(base).to_owned();
    made.extend((0..name::GENERATED_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])));
    made
}
