//! PUT, and what every change of an object has in common.

use crate::answer::{Answer, Payload};
use crate::negotiate::{Shape, negotiate};
use crate::options::Write;
use crate::registry::context::Context;
use crate::registry::create::{self, Recorded, refuse, stored_bytes};
use crate::registry::current::Current;
use crate::registry::{admission, allocation, body, delete, managed, metadata};
use crate::status::Failure;
use crate::strategy::Endpoint;
use bytes::Bytes;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::{Object, Revision, Value, value};
use steersman_storage::WriteError;

/// How often a change is computed anew because somebody else wrote first.
const ATTEMPTS_MAX: usize = 100;

pub(crate) async fn update(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    let options = Write::parse(cx.query, "UpdateOptions", false)?;
    let mut object = body::decode(cx, &bytes, options.field_validation)?;
    create::set_namespace(cx, &mut object)?;
    check_name(cx, &object)?;
    let payload = put(cx, &options, object).await?;
    let code = if payload.1 { 201 } else { 200 };
    Answer::object(cx, code, payload.0, negotiated)
}

/// Puts an object in place of the one that is there. Returns whether it was created.
pub(crate) async fn put(cx: &mut Context<'_>, options: &Write, object: Value) -> Result<(Payload, bool), Failure> {
    let rules = cx.strategy().rules();
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = cx.find().await? else {
            if rules.creates_on_update && cx.endpoint() == Endpoint::Main {
                cx.authorize("create")?;
                match create::insert(cx, options, object.clone(), Recorded::No).await {
                    Ok(payload) => return Ok((payload, true)),
                    // Somebody else created it in the meantime: replace that.
                    Err(failure) if failure.is_already_exists() && !options.is_dry_run => continue,
                    Err(failure) => return Err(failure),
                }
            }
            return Err(Failure::not_found(&cx.group_resource(), cx.name()));
        };
        let has_version = !metadata::text(&object, "resourceVersion").is_empty();
        if !has_version && !rules.updates_unconditionally {
            let path = Path::new("metadata.resourceVersion");
            refuse(cx, cx.name(), &[Error::invalid(&path, 0, "must be specified for an update")])?;
        }
        let current = Current::new(cx, found)?;
        if let Some(payload) = replace(cx, options, &current, object.clone(), Recorded::No).await? {
            return Ok((payload, false));
        }
    }
    Err(Failure::modified(&cx.group_resource(), cx.name()))
}

/// The name of the body must be that of the path.
pub(crate) fn check_name(cx: &Context<'_>, object: &Value) -> Result<(), Failure> {
    let given = metadata::text(object, "name");
    if given.is_empty() {
        return Err(Failure::bad_request("name must be provided"));
    }
    if given != cx.name() {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({})", cx.name());
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// Takes a decoded, defaulted object in the requested form through the pipeline and puts it in place of `current`.
///
/// `None` if somebody else wrote in the meantime: compute again from what is there then.
pub(crate) async fn replace(
    cx: &mut Context<'_>,
    options: &Write,
    current: &Current,
    mut new: Value,
    recorded: Recorded,
) -> Result<Option<Payload>, Failure> {
    let strategy = cx.strategy();
    let Current { stored: current, internal: old, requested: old_requested } = current;
    check_preconditions(cx, current, &new)?;
    metadata::prepare_update(&mut new, old_requested);
    if recorded == Recorded::No {
        managed::record(cx, options, Some(old_requested), &mut new);
    }
    if let Some(warning) = metadata::deduplicate_owners(&mut new) {
        cx.warn(warning);
    }
    admission::mutate(cx, Some(old_requested), &mut new)?;
    value::set_at(&mut new, &["metadata", "resourceVersion"], current.revision.to_string().into());
    managed::keep_times(old_requested, &mut new);
    let mut new = strategy.internal(cx.version(), new);
    strategy.prepare_update(cx.version(), cx.endpoint(), &mut new, old);
    let reservation = allocation::reserve(cx, &mut new, Some(old))?;
    let mut errors = metadata::validate_update(&new, old, cx.resource().is_custom());
    errors.extend(strategy.validate_update(cx.version(), cx.endpoint(), &new, old));
    refuse(cx, cx.name(), &errors)?;
    for warning in strategy.warnings(cx.version(), &new) {
        cx.warn(warning);
    }
    if new == *old {
        return Ok(Some(Payload::Stored(current.clone())));
    }
    if options.is_dry_run {
        return Ok(Some(Payload::Tree(strategy.present(cx.version(), new))));
    }
    let key = cx.key(cx.name());
    let is_gone = delete::is_done_waiting(&new);
    let written = if is_gone {
        cx.server.store.delete(cx.storage(), &key, current.revision).await.map(|deleted| {
            allocation::release(cx, &deleted.object);
            (Payload::Tree(strategy.present(cx.version(), new)), deleted.revision)
        })
    } else {
        let stored = stored_bytes(cx, new)?;
        cx.server
            .store
            .update(cx.storage(), &key, current.revision, stored)
            .await
            .map(|object| (Payload::Stored(object.clone()), object.revision))
    };
    match written {
        Ok((payload, revision)) => {
            // What was taken for an object that went instead is given back.
            if let Some(reservation) = reservation.filter(|_| !is_gone) {
                reservation.commit();
            }
            cx.server.written(cx.resource(), revision).await;
            Ok(Some(payload))
        }
        Err(WriteError::Conflict { .. }) => Ok(None),
        Err(error) => Err(cx.write_failure(&error, cx.name())),
    }
}

/// The uid and the version that the client supposes must be those of the object.
fn check_preconditions(cx: &Context<'_>, current: &Object, new: &Value) -> Result<(), Failure> {
    let uid = metadata::text(new, "uid");
    if !uid.is_empty() && uid != current.meta().uid() {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", current.meta().uid());
        return Err(Failure::conflict(&cx.group_resource(), cx.name(), &why));
    }
    let version = metadata::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    match Revision::parse(version) {
        Ok(revision) if revision == current.revision => Ok(()),
        Ok(_) => Err(Failure::modified(&cx.group_resource(), cx.name())),
        Err(error) => Err(Failure::bad_request(format!("metadata.resourceVersion: {error}"))),
    }
}
