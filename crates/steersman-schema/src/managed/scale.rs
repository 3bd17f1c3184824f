//! Ownership of `replicas` across the `/scale` subresource.
//!
//! A `Scale` is a view of its object: what owns the object's replicas owns the Scale's, and after a write to the Scale the
//! other way round. The path of the replicas in the object differs by version; custom resources choose their own.

use crate::fields::{Element, FieldSet};
use crate::managed::record::{Manager, Operation, Owned, Record, RecordError};
use std::collections::btree_map;
use steersman_machinery::Value;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the replicas are in an object of a version: field names from the root. None: not known.
pub type Replicas<'a> = &'a dyn Fn(&str) -> Option<Vec<String>>;

/// The `managedFields` of the Scale of an object.
///
/// # Errors
/// When the object's cannot be read.
pub fn to_scale(object_entries: Option<&Value>, replicas: Replicas<'_>) -> Result<Value, RecordError> {
    let mut scale = Record::default();
    for (manager, owned) in Record::read(object_entries)?.0 {
        let owns = replicas(&owned.api_version).is_some_and(|path| owned.fields.contains(&elements(&path)));
        if owns {
            let api_version = SCALE_VERSION.to_owned();
            scale.0.insert(manager, Owned { fields: in_scale(), api_version, ..owned });
        }
    }
    Ok(scale.write())
}

/// The `managedFields` of an object after its Scale was written, `api_version` being the object's.
///
/// # Errors
/// When either cannot be read.
pub fn to_object(
    object_entries: Option<&Value>,
    scale_entries: Option<&Value>,
    api_version: &str,
    replicas: Replicas<'_>,
) -> Result<Value, RecordError> {
    let mut scale = Record::read(scale_entries)?;
    let mut object = Record::default();
    for (manager, owned) in Record::read(object_entries)?.0 {
        let Some(path) = replicas(&owned.api_version) else {
            continue;
        };
        let path = elements(&path);
        if !owned.fields.contains(&path) {
            object.0.insert(manager, owned);
            continue;
        }
        // The same owner's entry of the Scale says the Scale's version, as `to_scale` wrote it.
        let is_owner = |other: &Manager| {
            let key = |manager: &Manager| (manager.name.clone(), manager.operation, manager.subresource.clone());
            key(other) == key(&manager)
        };
        let before = scale.0.len();
        scale.0.retain(|other, _| !is_owner(other));
        let mut taken = FieldSet::new();
        if scale.0.len() == before {
            taken.insert(&path);
        }
        let fields = owned.fields.difference(&taken);
        if !fields.is_empty() {
            object.0.insert(manager, Owned { fields, ..owned });
        }
    }
    let path = replicas(api_version).map(|path| elements(&path)).unwrap_or_default();
    for (mut manager, owned) in scale.0 {
        if !owned.fields.contains(&elements(&["spec".to_owned(), "replicas".to_owned()])) {
            continue;
        }
        if manager.operation == Operation::Update {
            api_version.clone_into(&mut manager.api_version);
        }
        let mut fields = FieldSet::new();
        fields.insert(&path);
        match object.0.entry(manager) {
            btree_map::Entry::Occupied(mut entry) => entry.get_mut().fields.add(&fields),
            btree_map::Entry::Vacant(entry) => {
                entry.insert(Owned { fields, api_version: api_version.to_owned(), time: owned.time });
            }
        }
    }
    Ok(object.write())
}

fn in_scale() -> FieldSet {
    FieldSet::of_names(&[&["spec", "replicas"]])
}

fn elements(path: &[String]) -> Vec<Element> {
    path.iter().map(|name| Element::Field(name.clone())).collect()
}
