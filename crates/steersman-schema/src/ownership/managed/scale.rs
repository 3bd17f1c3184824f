//! Ownership of `replicas` across the `/scale` subresource.
//!
//! A `Scale` is a view of its object: a manager that owns the object's replicas also owns the Scale's. A write to the
//! Scale is recorded on the Scale, by the rules of any update, and then transferred to the object. Scaling an object
//! whose replicas have no owner gives them none, since an update does not begin the record of a Scale without one.
//!
//! Applying a Scale works the same way: the configuration is merged into the Scale, and the result is transferred to
//! the object.
//!
//! The path of the replicas in the object differs by version; custom resources choose their own.

use crate::Definitions;
use crate::ownership::fields::{Element, FieldSet};
use crate::ownership::managed::record::{Manager, Operation, Owned, Record, RecordError};
use crate::ownership::managed::{ApplyError, Kind, OnConflict, OneVersion, Origin, Writer, on_apply, update};
use std::collections::btree_map;
use steersman_machinery::{GroupVersionKind, Value, value};

/// The path of the replicas in an object of a version such as `apps/v1`: field names from the root. None: unknown.
pub type Replicas<'a> = &'a dyn Fn(&str) -> Option<Vec<String>>;

/// Writes the record of an object whose replicas were set through `/scale`; both are in the version of `kind`.
///
/// # Errors
/// When the record of `live` cannot be read. `new` then keeps that record: log the error and continue.
pub fn on_update(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: &Value,
    new: &mut Value,
    replicas: Replicas<'_>,
) -> Result<(), RecordError> {
    let entries = value::at(live, &["metadata", "managedFields"]);
    Record::take(new);
    if let Some(entries) = entries {
        value::set_at(new, &["metadata", "managedFields"], entries.clone());
    }
    let api_version = kind.api_version();
    let (Some(schema), Some(path)) =
        (Definitions::builtin().schema("io.k8s.api.autoscaling.v1.Scale"), replicas(&api_version))
    else {
        return Ok(());
    };
    let gvk = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let scale_kind = Kind {
        gvk: &gvk,
        schema,
        origin: Origin::BuiltIn,
        reset: &FieldSet::EMPTY,
        versions: &OneVersion,
        budget: kind.budget,
    };

    let record = Record::of(live)?;
    let mut live_scale = view(&scale_kind, live, &path);
    to_scale(&record, &scale_kind.api_version(), replicas).put(&mut live_scale);
    let mut new_scale = view(&scale_kind, new, &path);
    update::on_update(&scale_kind, writer, Some(&live_scale), &mut new_scale)?;
    to_object(record, Record::of(&new_scale)?, &api_version, replicas).put(new);
    Ok(())
}

/// Applies a configuration of the Scale to its object; both objects are in the version of `kind`.
///
/// The result is the object with the replicas of the Scale and with its record, and with the `resourceVersion` and
/// `uid` that the client sent.
///
/// # Errors
/// When other managers own the replicas, or the configuration does not match the schema of a Scale.
pub fn apply(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: &Value,
    applied: &Value,
    on_conflict: OnConflict,
    replicas: Replicas<'_>,
) -> Result<Value, ApplyError> {
    let api_version = kind.api_version();
    let (Some(schema), Some(path)) =
        (Definitions::builtin().schema("io.k8s.api.autoscaling.v1.Scale"), replicas(&api_version))
    else {
        return Err(ApplyError::Invalid(format!("{api_version} has no replicas to apply")));
    };
    let gvk = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let scale_kind = Kind {
        gvk: &gvk,
        schema,
        origin: Origin::BuiltIn,
        reset: &FieldSet::EMPTY,
        versions: &OneVersion,
        budget: kind.budget,
    };
    let unreadable = |error: RecordError| ApplyError::Invalid(error.to_string());

    let record = Record::of(live).map_err(unreadable)?;
    let mut live_scale = view(&scale_kind, live, &path);
    to_scale(&record, &scale_kind.api_version(), replicas).put(&mut live_scale);
    let scale = on_apply(&scale_kind, writer, Some(&live_scale), applied, on_conflict)?;

    let mut object = live.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    // A configuration that no longer has the replicas removes them, which sets them to zero.
    let wanted = value::at(&scale, &["spec", "replicas"]).filter(|wanted| !wanted.is_null());
    value::set_at(&mut object, &path, wanted.cloned().unwrap_or_else(|| 0.into()));
    for key in ["resourceVersion", "uid"] {
        if let Some(given) = value::at(applied, &["metadata", key]) {
            value::set_at(&mut object, &["metadata", key], given.clone());
        }
    }
    to_object(record, Record::of(&scale).map_err(unreadable)?, &api_version, replicas).put(&mut object);
    Ok(object)
}

/// The part of a Scale that matters for ownership.
fn view(kind: &Kind<'_>, object: &Value, replicas: &[String]) -> Value {
    let path: Vec<&str> = replicas.iter().map(String::as_str).collect();
    let uid = value::str_at(object, &["metadata", "uid"]).unwrap_or_default();
    serde_json::json!({
        "apiVersion": kind.api_version(),
        "kind": kind.gvk.kind,
        "metadata": {"uid": uid},
        "spec": {"replicas": value::at(object, &path)},
    })
}

/// The record of an object's Scale.
fn to_scale(object: &Record, scale_version: &str, replicas: Replicas<'_>) -> Record {
    let mut scale = Record::default();
    for (manager, owned) in &object.0 {
        let owns = replicas(&owned.api_version).is_some_and(|path| owned.fields.contains(&elements(&path)));
        if owns {
            let api_version = scale_version.to_owned();
            let owned = Owned { fields: in_scale(), written: None, api_version, time: owned.time.clone() };
            scale.0.insert(manager.clone(), owned);
        }
    }
    scale
}

/// The record of an object, updated from the record of its Scale.
fn to_object(object: Record, mut scale: Record, api_version: &str, replicas: Replicas<'_>) -> Record {
    let mut carried = Record::default();
    for (manager, mut owned) in object.0 {
        let Some(path) = replicas(&owned.api_version) else {
            continue;
        };
        let mut path_alone = FieldSet::new();
        path_alone.insert(&elements(&path));
        if path_alone.is_subset(&owned.fields) && !scale.forget(&manager) {
            owned.fields_mut().subtract(&path_alone);
        }
        if !owned.fields.is_empty() {
            carried.0.insert(manager, owned);
        }
    }
    let mut fields = FieldSet::new();
    fields.insert(&elements(&replicas(api_version).unwrap_or_default()));
    for (mut manager, owned) in scale.0.into_iter().filter(|(_, owned)| in_scale().is_subset(&owned.fields)) {
        if manager.operation == Operation::Update {
            api_version.clone_into(&mut manager.api_version);
        }
        match carried.0.entry(manager) {
            btree_map::Entry::Occupied(mut entry) => entry.get_mut().fields_mut().add(&fields),
            btree_map::Entry::Vacant(entry) => {
                let api_version = api_version.to_owned();
                entry.insert(Owned { fields: fields.clone(), written: None, api_version, time: owned.time });
            }
        }
    }
    carried
}

impl Record {
    /// Drops the entries of an owner in all versions; returns whether there were any.
    fn forget(&mut self, owner: &Manager) -> bool {
        let before = self.0.len();
        self.0.retain(|other, _| {
            (&other.name, other.operation, &other.subresource) != (&owner.name, owner.operation, &owner.subresource)
        });
        self.0.len() < before
    }
}

fn in_scale() -> FieldSet {
    FieldSet::of_names(&[&["spec", "replicas"]])
}

fn elements(path: &[String]) -> Vec<Element> {
    path.iter().map(|name| Element::Field(name.clone())).collect()
}
