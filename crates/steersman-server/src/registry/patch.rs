//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use crate::answer::{Answer, Payload};
use crate::codec;
use crate::negotiate::{Shape, negotiate};
use crate::options::Write;
use crate::registry::context::Context;
use crate::registry::create::{self, Recorded};
use crate::registry::current::Current;
use crate::registry::{body, managed, metadata, update};
use crate::status::Failure;
use bytes::Bytes;
use steersman_machinery::Value;
use steersman_schema::{json_patch, merge_patch, strategic};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// How often a patch is computed anew because somebody else wrote first.
const ATTEMPTS_MAX: usize = 100;

/// A patch as it was sent, read once however often it is tried.
pub(crate) enum Patch {
    Apply(Value),
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

pub(crate) async fn patch(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    let is_apply = body::media_type(cx) == APPLY_PATCH;
    check_type(cx)?;
    let options = Write::parse(cx.query, "PatchOptions", is_apply)?;
    let patch = parse(cx, &bytes)?;
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = cx.find().await? else {
            let Patch::Apply(applied) = &patch else {
                return Err(Failure::not_found(&cx.group_resource(), cx.name()));
            };
            match create_applied(cx, &options, applied, &bytes).await {
                Ok(payload) => return Answer::object(cx, 201, payload, negotiated),
                // Somebody else created it in the meantime: merge into that.
                Err(failure) if failure.is_already_exists() && !options.is_dry_run => continue,
                Err(failure) => return Err(failure),
            }
        };
        let current = Current::new(cx, found)?;
        let (patched, recorded) = match &patch {
            Patch::Apply(applied) => {
                check_applied_name(cx, applied)?;
                (managed::apply(cx, &options, Some(&current.requested), applied)?, Recorded::Yes)
            }
            _ => (patch_tree(cx, &patch, current.requested.clone())?, Recorded::No),
        };
        let mut new = body::decode_patched(cx, patched, &bytes, options.field_validation)?;
        create::set_namespace(cx, &mut new)?;
        update::check_name(cx, &new)?;
        if let Some(payload) = update::replace(cx, &options, &current, new, recorded).await? {
            return Answer::object(cx, 200, payload, negotiated);
        }
    }
    Err(Failure::modified(&cx.group_resource(), cx.name()))
}

/// Applies any patch but an apply to a tree.
pub(crate) fn patch_tree(cx: &Context<'_>, patch: &Patch, live: Value) -> Result<Value, Failure> {
    match patch {
        Patch::Json(patch) => patch.apply(&live).map_err(|error| json_patch_failure(&error)),
        Patch::Merge(patch) => {
            let mut patched = live;
            merge_patch::apply(&mut patched, patch);
            Ok(patched)
        }
        Patch::Strategic(patch) => {
            strategic::apply(&cx.version().schema, live, patch.clone()).map_err(|error| match error.class() {
                strategic::Class::Malformed => Failure::bad_request(error.to_string()),
                strategic::Class::Unprocessable => Failure::unprocessable(),
                strategic::Class::Internal => Failure::unclassified(error.to_string()),
            })
        }
        Patch::Apply(_) => Err(Failure::internal("an apply is no patch of a tree")),
    }
}

/// Refuses a media type that is no patch of this kind.
pub(crate) fn check_type(cx: &Context<'_>) -> Result<(), Failure> {
    match body::media_type(cx) {
        JSON_PATCH | MERGE_PATCH | APPLY_PATCH => Ok(()),
        STRATEGIC_MERGE_PATCH if !cx.resource().is_custom() => Ok(()),
        STRATEGIC_MERGE_PATCH => Err(Failure::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
        _ => Err(Failure::not_a_patch_type()),
    }
}

/// Reads a patch of a type that has been checked.
pub(crate) fn parse(cx: &Context<'_>, bytes: &Bytes) -> Result<Patch, Failure> {
    match body::media_type(cx) {
        JSON_PATCH => json_patch::Patch::parse(bytes).map(Patch::Json).map_err(|error| json_patch_failure(&error)),
        MERGE_PATCH => merge_patch::parse(bytes)
            .map(|patch| Patch::Merge(patch.value))
            .map_err(|error| Failure::bad_request(error.to_string())),
        STRATEGIC_MERGE_PATCH => merge_patch::parse(bytes)
            .map(|patch| Patch::Strategic(patch.value))
            .map_err(|error| Failure::bad_request(error.to_string())),
        _ => {
            let applied = codec::decode_yaml(bytes)
                .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?;
            if !applied.is_object() {
                return Err(Failure::bad_request("error decoding YAML: the applied configuration is no object"));
            }
            Ok(Patch::Apply(applied))
        }
    }
}

fn json_patch_failure(error: &json_patch::Error) -> Failure {
    match error {
        json_patch::Error::Malformed { .. } => Failure::bad_request(format!("error decoding patch: {error}")),
        json_patch::Error::TooManyOperations { .. } => Failure::too_large(error.to_string()),
        _ => Failure::unprocessable(),
    }
}

/// An apply of what is not there creates it.
async fn create_applied(
    cx: &mut Context<'_>,
    options: &Write,
    applied: &Value,
    bytes: &Bytes,
) -> Result<Payload, Failure> {
    if cx.target.subresource.is_some() {
        return Err(Failure::not_found(&cx.group_resource(), cx.name()));
    }
    cx.authorize("create")?;
    check_applied_name(cx, applied)?;
    let merged = managed::apply(cx, options, None, applied)?;
    let uid = metadata::text(applied, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(&cx.group_resource(), cx.name(), &why));
    }
    let mut object = body::decode_patched(cx, merged, bytes, options.field_validation)?;
    create::set_namespace(cx, &mut object)?;
    create::insert(cx, options, object, Recorded::Yes).await
}

fn check_applied_name(cx: &Context<'_>, applied: &Value) -> Result<(), Failure> {
    match metadata::text(applied, "name") {
        "" => Ok(()),
        _ => update::check_name(cx, applied),
    }
}
