//! What a definition may say once for all its versions.
//!
//! A `v1` definition says everything per version, a `v1beta1` one may say it once at the top. Faults are reported at the
//! top, too, whenever all versions agree: that is where clients of either form know them from.

use steersman_machinery::{Value, field};

/// The keys that may stand at the top: in a version, and at the top.
pub const KEYS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Whether all versions say the same, or nothing, about a key.
pub fn is_shared(versions: &[Value], key: &str) -> bool {
    let mut said = versions.iter().map(|version| said(version, key));
    let Some(first) = said.next() else { return true };
    said.all(|other| other == first)
}

/// What a version says about a key; an empty list says nothing.
pub fn said<'a>(version: &'a Value, key: &str) -> Option<&'a Value> {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    version.get(key).filter(|value| !is_empty(value))
}

/// What is said about a key with the place where faults are reported: once at the top if all versions agree, else each at
/// its own place. The number is that of the (first) version that says it.
pub fn places<'a>(versions: &'a [Value], key: &str) -> Vec<(usize, field::Path, &'a Value)> {
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
