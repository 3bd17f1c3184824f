//! DELETE of one object and of a collection.
//!
//! An object goes at once, or is marked and waits: for its finalizers, for the grace period of a Pod on a node, for the
//! finalizers of a Namespace's spec.

use crate::answer::{Answer, Payload};
use crate::negotiate::{Shape, negotiate};
use crate::options::{self, Delete};
use crate::registry::context::{Context, seconds};
use crate::registry::create::stored_bytes;
use crate::registry::{admission, allocation, body, list, metadata, select};
use crate::status::Failure;
use crate::strategy::{Grace, Propagation};
use bytes::Bytes;
use jiff::SignedDuration;
use std::sync::Arc;
use steersman_machinery::status::{Details, Status};
use steersman_machinery::{GroupResource, Object, Value, value};
use steersman_storage::{Page, WriteError};

const ATTEMPTS_MAX: usize = 100;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What became of an object that was to be deleted.
#[derive(Debug)]
pub(crate) enum DeleteOutcome {
    /// It is gone; this is what it was last.
    Gone(Arc<Object>),
    /// It is marked and waits.
    Waiting(Payload),
}

pub(crate) async fn delete(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    let options = parse(cx, &bytes)?;
    match delete_object(cx, &options).await? {
        DeleteOutcome::Waiting(payload) => Answer::object(cx, 200, payload, negotiated),
        DeleteOutcome::Gone(object) => {
            let group_resource = cx.group_resource();
            let details = Details {
                name: cx.name().to_owned(),
                group: group_resource.group,
                kind: group_resource.resource,
                uid: object.meta().uid().to_owned(),
                ..Details::default()
            };
            Ok(Answer::status(200, &Status::success().with_details(details), negotiated.encoding))
        }
    }
}

/// Deletes every object that the selectors of the request select, and answers with them.
pub(crate) async fn delete_collection(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::List)?;
    let options = parse(cx, &bytes)?;
    let list = options::List::parse(cx.query, false)?;
    let selection = select::Selection::new(cx, &list)?;
    let at = list::version(cx, &list).await?;
    let keep = |object: &Object| selection.selects(cx, object);
    let found = cx.server.store.list_where(cx.storage(), &cx.list_scope(), at, Page::ALL, keep);
    let found = found.map_err(|error| crate::registry::context::read_failure(&error))?;
    let revision = found.revision;
    let mut deleted = Vec::with_capacity(found.objects.len());
    for object in found.objects {
        let mut target = cx.target.clone();
        target.name = Some(object.key.name.to_string());
        target.namespace = object.key.namespace.as_deref().map(str::to_owned);
        let mut one = cx.narrowed(&target);
        match delete_object(&mut one, &options).await {
            Ok(_) => deleted.push(object),
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    list::answer(cx, deleted, revision, None, None, negotiated)
}

fn parse(cx: &Context<'_>, bytes: &Bytes) -> Result<Delete, Failure> {
    let body = if bytes.is_empty() { None } else { Some(body::parse(cx, bytes, "DeleteOptions")?.value) };
    Delete::parse(cx.query, body)
}

/// Deletes the object of the path, or marks it.
pub(crate) async fn delete_object(cx: &mut Context<'_>, options: &Delete) -> Result<DeleteOutcome, Failure> {
    admission::deletion(&cx.group_resource(), cx.name())?;
    for _ in 0..ATTEMPTS_MAX {
        let current = cx.current().await?;
        check_preconditions(cx, options, &current)?;
        let mut new = cx.internal(&current)?;
        let is_marked = mark(cx, options, &mut new);
        // A Pod is marked before it goes, however short its grace: its watchers see both.
        let is_marked_first = is_marked && cx.strategy().rules().grace == Grace::Node && !options.is_dry_run();
        if !is_waiting(&new) && !is_marked_first {
            if options.is_dry_run() {
                return Ok(DeleteOutcome::Gone(current));
            }
            match cx.server.store.delete(cx.storage(), &current.key, current.revision).await {
                Ok(deleted) => {
                    allocation::release(cx, &deleted.object);
                    cx.server.written(cx.resource(), deleted.revision).await;
                    return Ok(DeleteOutcome::Gone(deleted.object));
                }
                Err(WriteError::Conflict { .. }) => continue,
                Err(error) => return Err(cx.write_failure(&error, cx.name())),
            }
        }
        if !is_marked {
            return Ok(DeleteOutcome::Waiting(Payload::Stored(current)));
        }
        if options.is_dry_run() {
            return Ok(DeleteOutcome::Waiting(Payload::Tree(cx.strategy().present(cx.version(), new))));
        }
        let is_waiting = is_waiting(&new);
        let stored = stored_bytes(cx, new)?;
        match cx.server.store.update(cx.storage(), &current.key, current.revision, stored).await {
            Ok(object) => {
                cx.server.written(cx.resource(), object.revision).await;
                if is_waiting {
                    return Ok(DeleteOutcome::Waiting(Payload::Stored(object)));
                }
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(cx.write_failure(&error, cx.name())),
        }
    }
    Err(Failure::modified(&cx.group_resource(), cx.name()))
}

fn check_preconditions(cx: &Context<'_>, options: &Delete, current: &Object) -> Result<(), Failure> {
    // Upstream names the kind here, where every other conflict names the resource.
    let kind = GroupResource::new(&*cx.resource().group, &*cx.resource().kind);
    if let Some(uid) = options.preconditions.uid.as_deref().filter(|uid| *uid != current.meta().uid()) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            current.meta().uid()
        );
        return Err(Failure::conflict(&kind, cx.name(), &why));
    }
    let revision = current.revision.to_string();
    if let Some(version) = options.preconditions.resource_version.as_deref().filter(|version| *version != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        );
        return Err(Failure::conflict(&kind, cx.name(), &why));
    }
    Ok(())
}

/// Puts the marks of a deletion on an object; false if it has them all already.
fn mark(cx: &Context<'_>, options: &Delete, object: &mut Value) -> bool {
    let before = object.clone();
    let is_deleting = !metadata::text(object, "deletionTimestamp").is_empty();
    set_finalizers(options, cx.strategy().rules().propagation, object);
    cx.strategy().prepare_delete(cx.version(), object, &cx.now_text());
    let grace = grace_seconds(cx, options, object);
    let asked_before = value::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let is_shorter = asked_before.is_none_or(|before| grace < before);
    if !is_deleting || is_shorter {
        let at = cx.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(cx.now);
        value::set_at(object, &["metadata", "deletionTimestamp"], seconds(at).into());
        value::set_at(object, &["metadata", "deletionGracePeriodSeconds"], grace.into());
    }
    let generation = value::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
    if let (false, Some(generation)) = (is_deleting, generation) {
        value::set_at(object, &["metadata", "generation"], (generation + 1).into());
    }
    *object != before
}

/// Seconds that the object has left.
fn grace_seconds(cx: &Context<'_>, options: &Delete, object: &Value) -> i64 {
    if cx.strategy().rules().grace != Grace::Node {
        return 0;
    }
    let is_bound = value::str_at(object, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let is_over = matches!(value::str_at(object, &["status", "phase"]), Some("Failed" | "Succeeded"));
    if !is_bound || is_over {
        return 0;
    }
    let own = value::at(object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let wanted = options.grace_period_seconds.or(own).unwrap_or(30);
    // A negative period means: now, but let the node know.
    if wanted < 0 { 1 } else { wanted }
}

/// The finalizers of garbage collection, as the client's policy wants them.
fn set_finalizers(options: &Delete, default: Propagation, object: &mut Value) {
    let present = metadata::finalizers(object);
    let policy = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
        (Some("Foreground"), _) => Propagation::Foreground,
        (Some(_), _) | (None, Some(false)) => Propagation::Background,
        (None, None) if present.contains(&ORPHAN) => Propagation::Orphan,
        (None, None) if present.contains(&FOREGROUND) => Propagation::Foreground,
        (None, None) => default,
    };
    let wanted = match policy {
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

/// Whether somebody still has a word in the object's end.
fn is_waiting(object: &Value) -> bool {
    let has_spec_finalizers = object.get("kind").and_then(Value::as_str) == Some("Namespace")
        && value::at(object, &["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let grace = value::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    has_spec_finalizers || !metadata::finalizers(object).is_empty() || grace > 0
}

/// Whether an object was marked and nobody has a word in its end any more.
pub(crate) fn is_done_waiting(object: &Value) -> bool {
    !metadata::text(object, "deletionTimestamp").is_empty() && !is_waiting(object)
}
