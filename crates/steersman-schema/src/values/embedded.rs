//! Embedded resources: `apiVersion`, `kind` and `metadata` inside a custom resource follow the usual rules.

use crate::model::definitions::{Definitions, Edition};
use crate::model::schema::Schema;
use crate::values::decode;
use crate::values::validate::ErrorList;
use steersman_machinery::budget::Budget;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::Map;
use steersman_machinery::{GroupVersion, Value, name};

const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Finds and validates every embedded resource in a value.
pub(crate) fn validate(schema: &Schema, value: &Value, found: &mut ErrorList<'_>) {
    look(schema, value, &Path::root(), found);
}

/// The same for a value at a path.
pub(crate) fn look(schema: &Schema, value: &Value, path: &Path, found: &mut ErrorList<'_>) {
    if found.is_over_at(path) {
        return;
    }
    match value {
        Value::Array(items) => {
            if let Some(item) = schema.item().filter(|item| may_embed(item)) {
                for (index, each) in items.iter().enumerate() {
                    if found.is_over_at(path) {
                        return;
                    }
                    look(item, each, &path.index(index), found);
                }
            }
        }
        Value::Object(fields) => {
            if schema.embedded_resource {
                resource(fields, path, found.errors);
            }
            for (name, field) in fields {
                if let Some(property) = schema.property(name) {
                    if may_embed(property) {
                        look(property, field, &path.child(name), found);
                    }
                } else if let Some(values) = schema.values().filter(|values| may_embed(values)) {
                    look(values, field, &path.key(name), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Validates the type and metadata of one resource.
pub(crate) fn resource(fields: &Map, path: &Path, errors: &mut Vec<Error>) {
    type_field(fields, "apiVersion", path, errors, |text| match GroupVersion::parse(text) {
        Some(_) => None,
        None => Some(format!("unexpected GroupVersion string: {text}")),
    });
    type_field(fields, "kind", path, errors, |text| {
        let faults = name::dns1035_label(&text.to_lowercase());
        (!faults.is_empty()).then(|| format!("may have mixed case, but should otherwise match: {}", faults.join(",")))
    });
    if let Some(metadata) = fields.get("metadata") {
        object_meta(metadata, &path.child("metadata"), errors);
    }
}

fn may_embed(schema: &Schema) -> bool {
    schema.embedded_resource || schema.items.is_some() || !schema.properties.is_empty() || schema.values().is_some()
}

fn type_field(fields: &Map, name: &str, path: &Path, errors: &mut Vec<Error>, fault: impl Fn(&str) -> Option<String>) {
    let path = path.child(name);
    match fields.get(name) {
        None => errors.push(Error::required(&path, "")),
        Some(Value::String(text)) if text.is_empty() => errors.push(Error::invalid(&path, "", "must not be empty")),
        Some(Value::String(text)) => {
            errors.extend(fault(text).map(|fault| Error::invalid(&path, text.as_str(), fault)));
        }
        Some(other) => errors.push(Error::invalid(&path, other.clone(), "must be a string")),
    }
}

fn object_meta(metadata: &Value, path: &Path, errors: &mut Vec<Error>) {
    let decoded = match decode::from_value(Definitions::object_meta(Edition::Kubernetes), metadata, &Budget::default())
    {
        Ok(decoded) => decoded.value,
        Err(error) => return errors.push(Error::invalid(path, metadata.clone(), error.to_string())),
    };
    let text = |key: &str| decoded.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(generation) = decoded.get("generation").and_then(Value::as_i64).filter(|generation| *generation < 0) {
        errors.push(Error::invalid(&path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    let mut refuse = |path: &Path, value: &str, faults: Vec<String>| {
        errors.extend(faults.into_iter().map(|fault| Error::invalid(path, value, fault)));
    };
    if let Some(base) = text("generateName") {
        refuse(&path.child("generateName"), base, name::path_segment(base));
    }
    if let Some(own) = text("name") {
        refuse(&path.child("name"), own, name::path_segment(own));
    }
    if let Some(namespace) = text("namespace") {
        refuse(&path.child("namespace"), namespace, name::dns1123_label(namespace));
    }
    let entries = |key: &str| decoded.get(key).and_then(Value::as_object).into_iter().flatten();
    for (key, value) in entries("labels") {
        refuse(&path.child("labels"), key, name::qualified(key));
        let value = value.as_str().unwrap_or_default();
        refuse(&path.child("labels"), value, name::label_value(value));
    }
    let mut n_bytes = 0;
    for (key, value) in entries("annotations") {
        refuse(&path.child("annotations"), key, name::qualified(&key.to_lowercase()));
        n_bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    for finalizer in decoded.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        // Upstream blames no single item.
        let finalizer = finalizer.as_str().unwrap_or_default();
        refuse(&path.child("finalizers"), finalizer, name::qualified(finalizer));
    }
    if n_bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(Error::too_long(&path.child("annotations"), ANNOTATIONS_BYTES_MAX));
    }
    for owner in decoded.get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        // Upstream blames no single item.
        let path = path.child("ownerReferences");
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        if GroupVersion::parse(text("apiVersion")).is_none_or(|parsed| parsed.version.is_empty()) {
            errors.push(Error::invalid(&path.child("apiVersion"), text("apiVersion"), "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(Error::invalid(&path.child(key), "", "must not be empty"));
            }
        }
    }
    for (index, entry) in decoded.get("managedFields").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let path = path.child("managedFields").index(index);
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            errors.push(Error::invalid(&path.child("operation"), text("operation"), "must be `Apply` or `Update`"));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(Error::invalid(&path.child("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
    }
}
