//! ConfigMap: data by key, at most one mebibyte, which may be declared immutable.

use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::place::Place;
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
    validate_create: |request, faults| validate(&Place::root(request.new), faults),
    validate_update,
    ..Kind::NAMESPACED
};

fn validate(object: &Place<'_>, faults: &mut Vec<Error>) {
    let (data, binary) = (object.field("data"), object.field("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        faults.extend(key_faults(key).into_iter().map(|fault| Error::invalid(&value.path, key, fault)));
        if binary.value.get(key).is_some() {
            faults.push(Error::invalid(&value.path, key, "duplicate of key present in binaryData"));
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        faults.extend(key_faults(key).into_iter().map(|fault| Error::invalid(&value.path, key, fault)));
        bytes += decoded_len(value.text());
    }
    if bytes > BYTES_MAX {
        // Upstream's path of the whole object, which people search for.
        faults.push(Error::too_long(&Path::new("[]"), BYTES_MAX));
    }
}

fn validate_update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let object = Place::root(request.new);
    frozen(&object, request.old, &["data", "binaryData"], faults);
    validate(&object, faults);
}

/// An immutable object must stay so, and the named fields must not change.
pub fn frozen(object: &Place<'_>, old: &Value, fields: &[&str], faults: &mut Vec<Error>) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let mark = object.field("immutable");
    if !mark.flag() {
        faults.push(mark.forbidden(WHY));
    }
    let changed = fields.iter().filter(|field| object.value.get(**field) != old.get(**field));
    faults.extend(changed.map(|field| object.field(field).forbidden(WHY)));
}

/// The errors of a key of data.
pub fn key_faults(key: &str) -> Vec<String> {
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
