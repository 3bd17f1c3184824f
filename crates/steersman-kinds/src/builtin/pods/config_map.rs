//! ConfigMap: data by key, at most one mebibyte, which may be declared immutable.

use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use jiff::Timestamp;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::{Value, name};

/// The limit of the data of one object, here and in a Secret.
pub const BYTES_MAX: usize = 1024 * 1024;

pub const KIND: Kind = Kind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.ConfigMap",
        columns: &[Column::NAME, Column::text("Data", "How many keys there are."), Column::AGE],
        cells,
        cells_read: &["data[]", "binaryData[]", "metadata.name", "metadata.creationTimestamp"],
        ..Version::V1
    }],
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::NAMESPACED
};

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    let (data, binary) = (object.field("data"), object.field("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        errors.extend(key_errors(key).into_iter().map(|detail| Error::invalid(&value.path, key, detail)));
        if binary.value.get(key).is_some() {
            errors.push(Error::invalid(&value.path, key, "duplicate of key present in binaryData"));
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        errors.extend(key_errors(key).into_iter().map(|detail| Error::invalid(&value.path, key, detail)));
        bytes += decoded_len(value.text());
    }
    if bytes > BYTES_MAX {
        // Upstream's path of the whole object, which people search for.
        errors.push(Error::too_long(&Path::new("[]"), BYTES_MAX));
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let object = Field::root(request.new);
    frozen(&object, request.old, &["data", "binaryData"], errors);
    validate(&object, errors);
}

/// An immutable object must stay so, and the named fields must not change.
pub fn frozen(object: &Field<'_>, old: &Value, fields: &[&str], errors: &mut Vec<Error>) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let mark = object.field("immutable");
    if !mark.flag() {
        errors.push(mark.forbidden(WHY));
    }
    let changed = fields.iter().filter(|field| object.value.get(**field) != old.get(**field));
    errors.extend(changed.map(|field| object.field(field).forbidden(WHY)));
}

/// The errors of a key of data.
pub fn key_errors(key: &str) -> Vec<String> {
    name::config_key(key)
}

/// The decoded length of a base64 text.
pub fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), cells::count(object, &[&["data"], &["binaryData"]]), cells::age(object, now)]
}
