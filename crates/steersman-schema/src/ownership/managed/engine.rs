//! The ownership changes that updates and applies have in common.

use crate::ownership::fields::{Comparison, FieldSet, compare, reconcile, remove};
use crate::ownership::managed::Kind;
use crate::ownership::managed::record::{Manager, Owned, Record, RecordError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use steersman_machinery::Value;

/// Fields that no manager owns.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// The fields that a change takes from each manager.
pub(crate) struct Losses {
    /// Fields whose values are changed or added: they become the writer's, or are a conflict.
    pub(crate) contested: BTreeMap<Manager, FieldSet>,
    /// Owned fields that are removed from the object, in the version of each manager.
    gone: BTreeMap<Manager, FieldSet>,
    /// Managers whose version is no longer served.
    stranded: Vec<Manager>,
}

/// Removes the fields that no manager owns.
pub(crate) fn leave_ownable(fields: &mut FieldSet) {
    fields.subtract(&NEVER_OWNED);
}

/// Adapts old records to the current schemas; records of versions that are no longer served are dropped.
pub(crate) fn reconcile_record(kind: &Kind<'_>, record: &mut Record) {
    record.0.retain(|_, owned| match kind.schema_at(&owned.api_version) {
        Some(schema) => {
            if reconcile::reconcile(schema, &mut owned.fields) {
                owned.written = None;
            }
            true
        }
        None => false,
    });
}

/// The fields that a change takes from all managers but the writer.
pub(crate) fn losses(
    kind: &Kind<'_>,
    record: &Record,
    writer: Option<&Manager>,
    old: &Value,
    new: &Value,
    difference: &Comparison,
) -> Result<Losses, RecordError> {
    let mut by_version: BTreeMap<&str, Option<Cow<'_, Comparison>>> = BTreeMap::new();
    let mut losses = Losses { contested: BTreeMap::new(), gone: BTreeMap::new(), stranded: Vec::new() };
    for (manager, owned) in record.0.iter().filter(|(manager, _)| Some(*manager) != writer) {
        let version = owned.api_version.as_str();
        if !by_version.contains_key(version) {
            let comparison = match kind.schema_at(version) {
                _ if kind.is_own(version) => Some(Cow::Borrowed(difference)),
                Some(schema) => {
                    let converted = |object| kind.convert(object, version).map_err(RecordError::Conversion);
                    Some(Cow::Owned(compare(schema, &converted(old)?, &converted(new)?).without(kind.reset)))
                }
                None => None,
            };
            by_version.insert(version, comparison);
        }
        let Some(Some(comparison)) = by_version.get(version) else {
            losses.stranded.push(manager.clone());
            continue;
        };
        let mut contested = owned.fields.intersection(&comparison.modified);
        contested.add(&owned.fields.intersection(&comparison.added));
        if !contested.is_empty() {
            losses.contested.insert(manager.clone(), contested);
        }
        let gone = owned.fields.intersection(&comparison.removed);
        if !gone.is_empty() {
            losses.gone.insert(manager.clone(), gone);
        }
    }
    Ok(losses)
}

// === impl Losses ===

impl Losses {
    /// Removes the losses from a record, and managers that own nothing afterwards.
    pub(crate) fn take_from(&self, record: &mut Record) {
        for manager in &self.stranded {
            record.0.remove(manager);
        }
        for (manager, fields) in self.contested.iter().chain(&self.gone) {
            if let Some(owned) = record.0.get_mut(manager) {
                owned.fields_mut().subtract(fields);
            }
        }
        record.0.retain(|_, owned| !owned.fields.is_empty());
    }
}

/// Removes the fields that the applier applied before and no longer applies, unless another manager owns them.
pub(crate) fn prune(
    kind: &Kind<'_>,
    merged: Value,
    record: &Record,
    applier: &Manager,
    last: Option<&Owned>,
) -> Result<Value, RecordError> {
    let Some(last) = last else {
        return Ok(merged);
    };
    let is_all_there = record
        .0
        .get(applier)
        .is_some_and(|applied| last.api_version == applied.api_version && last.fields.is_subset(&applied.fields));
    if is_all_there {
        return Ok(merged);
    }
    let Some(schema) = kind.schema_at(&last.api_version) else {
        return Ok(merged);
    };
    let convert = |object: &Value, version: &str| kind.convert(object, version).map_err(RecordError::Conversion);
    let merged = convert(&merged, &last.api_version)?;
    let last_fields = last.fields.with_named_fields(schema);

    // First all fields of the last apply are removed; then those that have an owner are added back, in each version.
    let mut pruned = remove::remove(schema, &merged, &last_fields);
    let mut owned_in: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for owned in record.0.values() {
        owned_in.entry(&owned.api_version).or_default().add(&owned.fields);
    }
    let mut whole = merged.clone();
    // The version of the last apply comes first: other versions may not convert without the fields that it adds back.
    let first = owned_in.remove_entry(last.api_version.as_str());
    for (version, owned) in first.into_iter().chain(owned_in) {
        let Some(schema) = kind.schema_at(version) else {
            continue;
        };
        whole = convert(&whole, version)?;
        let left = FieldSet::of(schema, &convert(&pruned, version)?).with_named_fields(schema);
        let all = FieldSet::of(schema, &whole).with_named_fields(schema);
        let kept = left.union(&owned.with_named_fields(schema));
        pruned = remove::remove(schema, &whole, &all.difference(&kept));
    }

    // Fields that are missing for other reasons, because they had no owner, are kept.
    let left = FieldSet::of(schema, &convert(&pruned, &last.api_version)?).with_named_fields(schema);
    let all = FieldSet::of(schema, &merged).with_named_fields(schema);
    let taken = all.difference(&left).intersection(&last_fields);
    convert(&remove::remove(schema, &merged, &taken), &kind.api_version())
}
