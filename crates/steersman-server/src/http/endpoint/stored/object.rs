//! POST, PUT, PATCH and DELETE of one object: turns the request into a change, and the outcome into an answer.

use crate::access::authz::{self, Attributes, ResourceAttributes};
use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::creation::Creation;
use crate::http::representation::Representation;
use crate::shared::request::negotiate::{Encoding, Shape};
use crate::shared::request::options::{Delete, IGNORE_READ_ERROR, WriteKind};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::write::initializers::figures::Waiting;
use crate::write::registry::{self, Body, Change, Outcome, Patch};
use bytes::Bytes;
use steersman_kinds::catalog::Verb;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::status::{Details, Status};
use steersman_machinery::{GroupKind, Object};

/// The verb that the removal of an unreadable object needs.
const UNSAFE_DELETE: &str = "unsafe-delete-ignore-read-errors";

pub(super) async fn create(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    if !cx.operation.allows(Verb::Create) {
        return Err(Failure::method_not_allowed());
    }
    let object = cx.read_object(WriteKind::Create, &bytes).await?;
    write(cx, &Change::Create(object), &representation).await
}

pub(super) async fn update(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    let object = cx.read_object(WriteKind::Update, &bytes).await?;
    registry::check_name(&cx.operation, &object)?;
    write(cx, &Change::Update(object), &representation).await
}

pub(super) async fn patch(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    Patch::check_type(&cx.operation, cx.media_type())?;
    cx.read_patch_options()?;
    let body = Body { media_type: cx.media_type(), bytes: &bytes };
    let patch = cx.operation.computed(|operation| Patch::parse(body, &operation.budget)).await?;
    write(cx, &Change::Patch(&patch), &representation).await
}

pub(super) async fn delete(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    let options = delete_options(cx, &bytes)?;
    if options.ignores_read_error() {
        return delete_unreadable(cx, representation.encoding()).await;
    }
    write(cx, &Change::Delete(&options), &representation).await
}

/// Removes a stored object that cannot be read: nothing in it, finalizers included, can be honored. As upstream, that
/// needs a verb of its own beside `delete`.
async fn delete_unreadable(cx: &Context<'_>, encoding: Encoding) -> Result<Answer, Failure> {
    let operation = &cx.operation;
    let (resource, name) = (operation.group_resource(), operation.name());
    let attributes = ResourceAttributes { verb: UNSAFE_DELETE, ..operation.attributes };
    let verdict = authz::verdict(&*cx.state.authorizer, operation.user, &Attributes::Resource(attributes)).await;
    if !verdict.is_allowed() {
        let why = format!("not permitted to do {UNSAFE_DELETE:?}, which {IGNORE_READ_ERROR} takes");
        return Err(Failure::forbidden(&resource, name, &why));
    }
    let key = operation.key(name);
    let removed = cx.state.store.delete_unreadable(operation.storage(), &key).await;
    match removed.map_err(|error| Failure::of_write(&error, &resource, name))? {
        Some(revision) => {
            tracing::warn!(%resource, %key, %revision, "what could not be read is removed");
            let details =
                Details { name: name.to_owned(), group: resource.group, kind: resource.resource, ..Details::default() };
            Ok(Answer::status(200, &Status::success().with_details(details), encoding))
        }
        None => {
            let detail = "is exclusively used to delete corrupt object(s), try again by removing this option";
            let error = Error::invalid(&Path::new(IGNORE_READ_ERROR), true, detail);
            Err(Failure::invalid(&GroupKind::new(resource.group, resource.resource), name, &[error]))
        }
    }
}

/// The options of a deletion, from its body or its query.
pub(super) fn delete_options(cx: &mut Context<'_>, bytes: &Bytes) -> Result<Delete, Failure> {
    let body = match bytes.is_empty() {
        true => None,
        false => {
            let body = Body { media_type: cx.media_type(), bytes };
            Some(registry::parse(&cx.operation, body, "DeleteOptions")?.value)
        }
    };
    let options = Delete::parse(cx.query, body)?;
    cx.operation.options.is_dry_run = options.is_dry_run();
    Ok(options)
}

async fn write(cx: &mut Context<'_>, change: &Change<'_>, representation: &Representation) -> Result<Answer, Failure> {
    match registry::write(cx.state, &mut cx.operation, change).await? {
        Outcome::Created(payload) => created(cx, payload, representation).await,
        Outcome::Deleted(object) if cx.operation.strategy().rules().returns_deleted => {
            Answer::object(200, Payload::Stored(object), representation).await
        }
        Outcome::Deleted(object) => Ok(deleted(cx, &object, representation.encoding())),
        Outcome::Updated(payload) => Answer::object(200, payload, representation).await,
    }
}

/// The answer for a new object. If it has initializers, the answer comes when it is initialized.
async fn created(cx: &Context<'_>, payload: Payload, representation: &Representation) -> Result<Answer, Failure> {
    let initializers = cx.state.initializers.as_ref().filter(|_| !cx.query.is_true("includeUninitialized"));
    match (payload, initializers) {
        (Payload::Stored(created), Some(configured)) if created.meta().is_uninitialized() => {
            let creation = Creation {
                state: cx.state.clone(),
                _counted: Waiting::begin(configured.clone()),
                storage: cx.operation.storage().clone(),
                resource: cx.operation.group_resource(),
                created,
                representation: representation.clone(),
            };
            Ok(Answer::later(Box::pin(creation.finish())))
        }
        (payload, _) => Answer::object(201, payload, representation).await,
    }
}

/// The answer for a deleted object: a Status with its uid.
fn deleted(cx: &Context<'_>, object: &Object, encoding: Encoding) -> Answer {
    let group_resource = cx.operation.group_resource();
    let details = Details {
        name: cx.operation.name().to_owned(),
        group: group_resource.group,
        kind: group_resource.resource,
        uid: object.meta().uid().to_string(),
        ..Details::default()
    };
    Answer::status(200, &Status::success().with_details(details), encoding)
}
