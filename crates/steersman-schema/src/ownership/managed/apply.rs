//! Server-side apply.
//!
//! The configuration is merged into the live object by the schema. Fields that the manager applied before and now
//! leaves out are removed, unless another manager owns them. A change of a field that another manager owns is a
//! conflict; with force, the field becomes this manager's.

use crate::ownership::fields::compare;
use crate::ownership::fields::element::same;
use crate::ownership::fields::typed::{self, Duplicates, Mismatch};
use crate::ownership::fields::{FieldSet, merge};
use crate::ownership::managed::conflict::Conflicts;
use crate::ownership::managed::record::{Operation, Owned, Record, RecordError};
use crate::ownership::managed::{Kind, Writer, engine, last_applied, update};
use steersman_machinery::budget::{self, cost};
use steersman_machinery::status::Cause;
use steersman_machinery::value;
use steersman_machinery::{GroupVersion, Value};

/// The owner of fields that were set before the first apply or record.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The treatment of fields that other managers own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnConflict {
    /// Take ownership.
    Force,
    /// Refuse to apply.
    Refuse,
}

/// Why a configuration was not applied. Display gives the message for the client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// The object would be too large, too much would be computed, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// Other managers own fields that would change.
    #[error("{message}")]
    Conflict {
        /// All conflicts in one text.
        message: String,
        /// One cause for each.
        causes: Vec<Cause>,
    },
    /// The live object does not match the schema or cannot be converted, so the request cannot be processed.
    #[error("{0}")]
    Invalid(String),
    /// The request does not apply this kind, or the configuration does not match the schema.
    #[error("{0}")]
    Malformed(String),
}

/// Why one attempt failed.
enum Failure {
    Conflicts(Conflicts),
    Invalid(String),
    Malformed(String),
}

/// Applies a configuration, as sent, to the live object, if there is one.
///
/// The result is the object to continue with, in the request's version, with its record; its `resourceVersion` and
/// `uid` come from the client or the live object. It still has to be decoded and defaulted like any object.
///
/// # Errors
/// When other managers own fields that would change, or the configuration does not match the schema or is of another
/// kind.
pub fn on_apply(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: Option<&Value>,
    applied: &Value,
    on_conflict: OnConflict,
) -> Result<Value, ApplyError> {
    check_request(kind, applied)?;
    charge(kind, live, applied)?;
    let invalid = |error: RecordError| ApplyError::Invalid(chain(&error));
    let (mut record, object) = match live {
        Some(live) => {
            // A stored object, whose record was written by the server.
            let mut entries = Record::entries(live).cloned().unwrap_or_default();
            let record = Record::take_over(&mut entries)
                .map_err(|error| ApplyError::Invalid(format!("failed to decode managed fields: {}", chain(&error))))?;
            (record, Record::without(live))
        }
        None => (Record::default(), serde_json::json!({"apiVersion": kind.api_version(), "kind": kind.gvk.kind})),
    };
    if live.is_some() && record.0.is_empty() {
        let everybody = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        record = update::move_to_writer(kind, &everybody, &kind.nothing(), &object, record).map_err(invalid)?;
    }

    let is_kubectl = writer.manager == last_applied::KUBECTL;
    let again = is_kubectl.then(|| record.clone());
    let outcome = match (apply(kind, writer, &object, applied, record, on_conflict), again) {
        (Err(Failure::Conflicts(conflicts)), Some(record)) => match last_applied::still_applied(kind, &object) {
            Some(allowed) => match conflicts.outside(&allowed) {
                conflicts if conflicts.is_empty() => apply(kind, writer, &object, applied, record, OnConflict::Force),
                conflicts => Err(Failure::Conflicts(conflicts)),
            },
            None => Err(Failure::Conflicts(conflicts)),
        },
        (outcome, _) => outcome,
    };
    let (mut object, record) = outcome.map_err(|failure| match failure {
        Failure::Conflicts(conflicts) => {
            ApplyError::Conflict { message: conflicts.to_string(), causes: conflicts.causes() }
        }
        Failure::Invalid(message) => ApplyError::Invalid(message),
        Failure::Malformed(message) => ApplyError::Malformed(message),
    })?;
    // If the budget was exceeded on the way, the result is incomplete.
    kind.budget.check()?;
    if is_kubectl {
        last_applied::keep_up(&mut object, applied);
    }
    record.put(&mut object);
    Ok(object)
}

/// Charges the walks over both values that an apply makes. The merged object is no larger than both together; its
/// decoding is charged by the caller.
fn charge(kind: &Kind<'_>, live: Option<&Value>, applied: &Value) -> Result<(), budget::Error> {
    const WALKS: usize = 10;
    let n_items: usize = live.into_iter().chain([applied]).map(|value| cost::of(value).0).sum();
    kind.budget.work(WALKS * n_items)
}

/// Checks that the configuration is of this kind and version, and has no record of its own.
fn check_request(kind: &Kind<'_>, applied: &Value) -> Result<(), ApplyError> {
    let text = |key: &str| value::str_at(applied, &[key]).unwrap_or_default();
    let Some(version) = GroupVersion::parse(text("apiVersion")) else {
        return Err(ApplyError::Malformed("invalid object type: /, Kind=".to_owned()));
    };
    if version.group != kind.gvk.group || version.version != kind.gvk.version || text("kind") != kind.gvk.kind {
        let (group, version) = (version.group, version.version);
        return Err(ApplyError::Malformed(format!("invalid object type: {group}/{version}, Kind={}", text("kind"))));
    }
    // Upstream takes a list with something that is no object for none.
    let entries = value::at(applied, &["metadata", "managedFields"]).and_then(Value::as_array);
    if entries.is_some_and(|entries| entries.iter().all(Value::is_object)) {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned()));
    }
    Ok(())
}

/// One attempt, on an object without its record.
fn apply(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: &Value,
    applied: &Value,
    mut record: Record,
    on_conflict: OnConflict,
) -> Result<(Value, Record), Failure> {
    typed::validate(kind.schema, applied, Duplicates::Refuse)
        .map_err(|mismatch| Failure::Malformed(does_not_fit(kind, "patch", applied, &mismatch)))?;
    typed::validate(kind.schema, live, Duplicates::Allow)
        .map_err(|mismatch| Failure::Invalid(does_not_fit(kind, "live", live, &mismatch)))?;

    engine::reconcile_record(kind, &mut record);
    let manager = writer.manager(Operation::Apply, "");
    let last = record.0.remove(&manager);
    let mut fields = FieldSet::of(kind.schema, applied);
    fields.subtract_recursive(kind.reset);
    let time = last.as_ref().and_then(|last| last.time.clone());
    record.0.insert(manager.clone(), Owned { fields, written: None, api_version: kind.api_version(), time });

    let merged = merge::merge(kind.schema, live, applied);
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: RecordError| Failure::Invalid(format!("{what}: {}", chain(&error)))
    };
    let object =
        engine::prune(kind, merged, &record, &manager, last.as_ref()).map_err(failed("failed to prune fields"))?;

    let difference = compare(kind.schema, live, &object).without(kind.reset);
    let losses = engine::losses(kind, &record, Some(&manager), live, &object, &difference)
        .map_err(failed("failed to compare objects"))?;
    if on_conflict == OnConflict::Refuse && !losses.contested.is_empty() {
        return Err(Failure::Conflicts(Conflicts::new(&losses.contested)));
    }
    losses.take_from(&mut record);
    if let Some(owned) = record.0.get_mut(&manager) {
        engine::leave_ownable(owned.fields_mut());
        // An apply that changes nothing does not update the time.
        if !same(live, &object) {
            owned.time = Some(writer.time.to_owned());
        }
    }
    record.0.retain(|_, owned| !owned.fields.is_empty());
    Ok((object, record))
}

fn does_not_fit(kind: &Kind<'_>, which: &str, object: &Value, mismatch: &Mismatch) -> String {
    let text = |key: &str| value::str_at(object, &["metadata", key]).unwrap_or_default();
    let (group, version, kind) = (&kind.gvk.group, &kind.gvk.version, &kind.gvk.kind);
    let (namespace, name) = (text("namespace"), text("name"));
    format!("failed to create typed {which} object ({namespace}/{name}; {group}/{version}, Kind={kind}): {mismatch}")
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
