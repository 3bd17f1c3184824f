//! Patches: JSON patch, merge patch, strategic merge patch and server-side apply.

use crate::shared::operation::Operation;
use crate::shared::request::codec::{self, Faults};
use crate::shared::request::options::FieldValidation;
use crate::shared::status::Failure;
use crate::write::registry::current::Current;
use crate::write::registry::decode::{Body, Misfit};
use crate::write::registry::plan::Recorded;
use crate::write::registry::{decode, identity, managed, metadata};
use bytes::Bytes;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{Value, value};
use steersman_schema::{Schema, json_patch, merge_patch, strategic};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A patch, parsed once for all attempts.
pub(crate) struct Patch {
    pub(crate) format: Format,
    /// Faults of the patch as a document, such as duplicate keys, for strict validation.
    faults: Faults,
    /// The patch as it was sent, for messages.
    text: Bytes,
}

/// The parsed patch.
pub(crate) enum Format {
    Apply(Value),
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Whether a media type is that of server-side apply.
    pub(crate) fn is_apply(media_type: &str) -> bool {
        media_type == APPLY_PATCH
    }

    /// Parses a patch of an accepted type.
    ///
    /// # Errors
    /// 400 if it is not a patch of its type.
    pub(crate) fn parse(body: Body<'_>, budget: &Budget) -> Result<Patch, Failure> {
        let merge = |bytes| {
            merge_patch::parse(bytes, budget).map_err(|error| match error {
                merge_patch::Error::Budget(error) => Failure::of_budget(&error),
                error @ merge_patch::Error::Malformed { .. } => Failure::bad_request(error.to_string()),
            })
        };
        let (format, faults) = match body.media_type {
            JSON_PATCH => {
                let patch = json_patch::Patch::parse(body.bytes, budget).map_err(|error| json_patch_failure(&error))?;
                let faults = Faults::of_json(&patch.faults);
                (Format::Json(patch), faults)
            }
            MERGE_PATCH => {
                let patch = merge(body.bytes)?;
                (Format::Merge(patch.value), Faults::of_json(&patch.faults))
            }
            STRATEGIC_MERGE_PATCH => {
                let patch = merge(body.bytes)?;
                (Format::Strategic(patch.value), Faults::of_json(&patch.faults))
            }
            _ => {
                let applied = codec::decode_yaml(body.bytes, budget).map_err(|error| match error {
                    codec::Error::Budget(error) => Failure::of_budget(&error),
                    error => Failure::bad_request(format!("error decoding YAML: {error}")),
                })?;
                if !applied.value.is_object() {
                    return Err(Failure::bad_request("error decoding YAML: the applied configuration is no object"));
                }
                (Format::Apply(applied.value), applied.faults)
            }
        };
        Ok(Patch { format, faults, text: body.bytes.clone() })
    }

    /// Applies any patch but an apply to a tree with a schema.
    ///
    /// # Errors
    /// When it does not fit the tree.
    pub(crate) fn apply_to(&self, schema: &Schema, live: Value, budget: &Budget) -> Result<Value, Failure> {
        match &self.format {
            Format::Json(patch) => patch.apply(&live, budget).map_err(|error| json_patch_failure(&error)),
            Format::Merge(patch) => {
                charge_merge(budget, &live, patch)?;
                let mut patched = live;
                merge_patch::apply(&mut patched, patch);
                Ok(patched)
            }
            Format::Strategic(patch) => {
                charge_merge(budget, &live, patch)?;
                let applied = strategic::apply(schema, live, patch.clone());
                applied.map_err(|error| match error.class() {
                    strategic::Class::Malformed => Failure::bad_request(error.to_string()),
                    strategic::Class::Unprocessable => Failure::unfitting_patch(),
                })
            }
            Format::Apply(_) => Err(Failure::internal("an apply is no patch of a tree")),
        }
    }

    /// Refuses media types that are no patch of this kind.
    ///
    /// # Errors
    /// 415 for such a type.
    pub(crate) fn check_type(operation: &Operation<'_>, media_type: &str) -> Result<(), Failure> {
        match media_type {
            JSON_PATCH | MERGE_PATCH | APPLY_PATCH => Ok(()),
            STRATEGIC_MERGE_PATCH if !operation.resource().is_custom() => Ok(()),
            STRATEGIC_MERGE_PATCH => Err(Failure::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
            _ => Err(Failure::not_a_patch_type()),
        }
    }
}

/// The object with a patch applied, decoded and defaulted.
pub(super) fn patched(
    operation: &mut Operation<'_>,
    patch: &Patch,
    current: &Current,
) -> Result<(Value, Recorded), Failure> {
    let (mut new, recorded) = match &patch.format {
        Format::Apply(applied) => {
            let merged = managed::apply(operation, Some(current.requested()), applied)?;
            // A conflict comes first.
            identity::check_given_name(operation, applied)?;
            (decode_applied(operation, patch, merged)?, Recorded::Yes)
        }
        _ => {
            let patched =
                patch.apply_to(&operation.version().schema, current.requested().clone(), &operation.budget)?;
            let live = value::at(current.requested(), &["metadata", "managedFields"]);
            let is_own_record = |record: &Value| Some(record) == live;
            let (text, misfit) = (&patch.text, Misfit::Unprocessable);
            (decode::decode_patched(operation, patched, text, &patch.faults, misfit, is_own_record)?, Recorded::No)
        }
    };
    identity::set_namespace(operation, &mut new)?;
    identity::check_name(operation, &new)?;
    Ok((new, recorded))
}

/// The new object of an apply if none exists.
pub(super) fn applied_to_nothing(
    operation: &mut Operation<'_>,
    patch: &Patch,
    applied: &Value,
) -> Result<Value, Failure> {
    identity::check_given_name(operation, applied)?;
    let merged = managed::apply(operation, None, applied)?;
    let uid = metadata::text(applied, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(&operation.group_resource(), operation.name(), &why));
    }
    let mut object = decode_applied(operation, patch, merged)?;
    identity::set_namespace(operation, &mut object)?;
    Ok(object)
}

/// Decodes the result of an apply. Duplicate keys of the configuration are reported only here: as upstream, conflicts
/// and unknown fields come first.
fn decode_applied(operation: &mut Operation<'_>, patch: &Patch, merged: Value) -> Result<Value, Failure> {
    match operation.options.field_validation {
        FieldValidation::Strict if patch.faults != Faults::None => {
            let why = patch.faults.errors().join(", ");
            let message = format!("error strict decoding YAML: error converting YAML to JSON: {why}");
            return Err(Failure::bad_request(message));
        }
        FieldValidation::Warn => patch.faults.warnings().iter().for_each(|warning| operation.warn(warning.clone())),
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    decode::decode_patched(operation, merged, &patch.text, &Faults::None, Misfit::Malformed, |_| true)
}

/// Charges the merge of a patch into an object, which reads each value a few times. The result is no larger than both
/// together. Each is within the limits, and the result is checked against them when it is decoded.
fn charge_merge(budget: &Budget, live: &Value, patch: &Value) -> Result<(), budget::Error> {
    const LOOKS: usize = 10;
    let n_items: usize = [live, patch].into_iter().map(|value| budget::cost::of(value).0).sum();
    budget.work(LOOKS * n_items)
}

fn json_patch_failure(error: &json_patch::Error) -> Failure {
    match error {
        json_patch::Error::Budget(error) => Failure::of_budget(error),
        json_patch::Error::Malformed { .. } => Failure::bad_request(error.to_string()),
        json_patch::Error::TooManyOperations { .. } => Failure::too_large(error.to_string()),
        _ => Failure::unfitting_patch(),
    }
}
