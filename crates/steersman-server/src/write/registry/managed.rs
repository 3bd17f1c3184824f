//! Keeps `managedFields` up to date with every write.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use steersman_machinery::{GroupVersion, Value, value};
use steersman_schema::Schema;
use steersman_schema::fields::FieldSet;
use steersman_schema::json_path::Step;
use steersman_schema::managed::{self, ApplyError, Kind, OnConflict, Origin, RecordError, Versions, Writer};

const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// The other versions of the kind, to which entries of `managedFields` may refer.
struct Others<'a>(&'a Operation<'a>);

impl Versions for Others<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        Some(&*self.version(api_version)?.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let operation = self.0;
        let find = |api_version: &str| {
            self.version(api_version)
                .ok_or_else(|| format!("{api_version} is not a version of {}", operation.resource().plural))
        };
        let from = find(object.get("apiVersion").and_then(Value::as_str).unwrap_or(""))?;
        let to = find(api_version)?;
        match operation.conversions.as_deref().filter(|_| from.name != to.name) {
            Some(conversions) => conversions.find(object, &to.name),
            None => conversion::without_webhook(operation.resource(), from, to, object.clone())
                .map_err(|error| error.to_string()),
        }
    }
}

impl Others<'_> {
    fn version(&self, api_version: &str) -> Option<&steersman_kinds::catalog::Version> {
        let wanted = GroupVersion::parse(api_version)?;
        let resource = self.0.resource();
        let is_same_group = *wanted.group == *resource.group;
        resource.versions.iter().find(|version| is_same_group && *version.name == *wanted.version)
    }
}

/// Records the writer as the owner of the fields that a creation, update or patch has changed. Both objects are in the
/// requested form.
pub(crate) async fn record(operation: &Operation<'_>, live: Option<&Value>, new: &mut Value) {
    let outcome = match operation.conversions.as_deref() {
        None => record_once(operation, live, new),
        Some(conversions) => loop {
            let mut recorded = new.clone();
            let outcome = record_once(operation, live, &mut recorded);
            if !conversions.supply(operation.resource()).await {
                *new = recorded;
                break outcome;
            }
        },
    };
    if let Err(error) = outcome {
        // A write does not fail because of `managedFields`: the previous entries are kept.
        tracing::warn!(%error, name = operation.name(), "the owners of the fields could not be recorded");
    }
}

/// Records the writer as the owner of all fields of a new object, of a kind that no webhook converts.
pub(crate) fn record_new(operation: &Operation<'_>, new: &mut Value) {
    if let Err(error) = record_once(operation, None, new) {
        tracing::warn!(%error, name = operation.name(), "the owners of the fields could not be recorded");
    }
}

fn record_once(operation: &Operation<'_>, live: Option<&Value>, new: &mut Value) -> Result<(), RecordError> {
    let time = operation.now_text();
    with_kind(operation, |kind| {
        let writer = Writer {
            manager: &operation.manager,
            subresource: operation.attributes.subresource.unwrap_or(""),
            time: &time,
        };
        match (writer.subresource, live) {
            ("scale", Some(live)) => {
                managed::scale::on_update(kind, &writer, live, new, &|api_version| replicas(operation, api_version))
            }
            _ => match operation.strategy().completed_for_owners(new) {
                None => managed::on_update(kind, &writer, live, new),
                Some(mut completed) => {
                    managed::on_update(kind, &writer, live, &mut completed)?;
                    match value::remove_at(&mut completed, &MANAGED_FIELDS) {
                        Some(record) => value::set_at(new, &MANAGED_FIELDS, record),
                        None => value::remove_at(new, &MANAGED_FIELDS).is_some(),
                    };
                    Ok(())
                }
            },
        }
    })
}

/// Merges an applied configuration into the live object.
pub(crate) fn apply(operation: &Operation<'_>, live: Option<&Value>, applied: &Value) -> Result<Value, Failure> {
    let time = operation.now_text();
    let conflicts = if operation.options.is_forced { OnConflict::Force } else { OnConflict::Refuse };
    let merged = with_kind(operation, |kind| {
        let writer = Writer {
            manager: &operation.manager,
            subresource: operation.attributes.subresource.unwrap_or(""),
            time: &time,
        };
        managed::on_apply(kind, &writer, live, applied, conflicts)
    });
    merged.map_err(refused)
}

/// Merges an applied configuration of a Scale into the live object.
pub(crate) fn apply_scale(operation: &Operation<'_>, live: &Value, applied: &Value) -> Result<Value, Failure> {
    let time = operation.now_text();
    let conflicts = if operation.options.is_forced { OnConflict::Force } else { OnConflict::Refuse };
    let merged = with_kind(operation, |kind| {
        let writer = Writer { manager: &operation.manager, subresource: "scale", time: &time };
        managed::scale::apply(kind, &writer, live, applied, conflicts, &|api_version| replicas(operation, api_version))
    });
    merged.map_err(refused)
}

fn refused(error: ApplyError) -> Failure {
    match error {
        ApplyError::Budget(error) => Failure::of_budget(&error),
        ApplyError::Malformed(message) => Failure::bad_request(message),
        ApplyError::Conflict { message, causes } => Failure::apply_conflict(message, causes),
        ApplyError::Invalid(message) => Failure::unprocessable(message),
    }
}

/// Keeps the previous times in `managedFields` if nothing else has changed, so that the write changes nothing.
pub(crate) fn keep_times(live: &Value, new: &mut Value) {
    managed::keep_times(live, new);
}

/// The path of the replicas in a version: field names from the root.
fn replicas(operation: &Operation<'_>, api_version: &str) -> Option<Vec<String>> {
    let others = Others(operation);
    let scale = others.version(api_version)?.scale.as_ref()?;
    let names = scale.spec.steps().iter().map(|step| match step {
        Step::Field(name) => Some(name.to_string()),
        _ => None,
    });
    names.collect()
}

fn with_kind<T>(operation: &Operation<'_>, run: impl FnOnce(&Kind<'_>) -> T) -> T {
    let gvk = operation.served.kind();
    let reset = FieldSet::of_names(operation.strategy().reset_fields(operation.version(), operation.endpoint()));
    let origin = if operation.resource().is_custom() { Origin::Custom } else { Origin::BuiltIn };
    run(&Kind {
        gvk: &gvk,
        schema: &operation.version().schema,
        origin,
        reset: &reset,
        versions: &Others(operation),
        budget: &operation.budget,
    })
}
