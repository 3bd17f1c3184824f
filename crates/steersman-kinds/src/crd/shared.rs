//! The keys that a definition may give once for all its versions.
//!
//! A `v1` definition gives every key per version, a `v1beta1` one may give it once at the top. Errors are also reported
//! at the top whenever all versions agree, because clients of either form expect them there.

use steersman_machinery::{Value, field};

/// The keys that may be at the top: their names in a version, and at the top.
pub(super) const KEYS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Whether all versions have the same value for a key, or none.
pub(super) fn is_shared(versions: &[Value], key: &str) -> bool {
    let mut said = versions.iter().map(|version| said(version, key));
    let Some(first) = said.next() else { return true };
    said.all(|other| other == first)
}

/// The value of a key in a version; an empty list counts as absent.
pub(super) fn said<'a>(version: &'a Value, key: &str) -> Option<&'a Value> {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    version.get(key).filter(|value| !is_empty(value))
}

/// The values of a key with the paths at which errors are reported: once at the top if all versions agree, otherwise
/// each at its own path. The number is the index of the (first) version with the value.
pub(super) fn places<'a>(versions: &'a [Value], key: &str) -> Vec<(usize, field::Path, &'a Value)> {
    let top = KEYS.iter().find(|(inner, _)| *inner == key).map_or(key, |(_, top)| *top);
    let spec = field::Path::new("spec");
    let all = versions.iter().enumerate().filter_map(|(index, version)| {
        let path = spec.child("versions").index(index).child(key);
        said(version, key).map(|value| (index, path, value))
    });
    if is_shared(versions, key) {
        return all.take(1).map(|(index, _, value)| (index, spec.child(top), value)).collect();
    }
    all.collect()
}
