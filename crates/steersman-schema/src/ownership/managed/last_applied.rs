//! kubectl's migration from client-side apply to server-side apply.
//!
//! Client-side `kubectl apply` stores the applied configuration in an annotation. When the manager `kubectl` then
//! applies on the server, fields that the annotation names and that still have their values are taken over without a
//! conflict, and the annotation is kept up to date, so that kubectl may go back.

use crate::ownership::fields::typed::{self, Duplicates};
use crate::ownership::fields::{FieldSet, compare, go};
use crate::ownership::managed::Kind;
use steersman_machinery::Value;
use steersman_machinery::value;

/// The manager for which this is done; others may migrate in their own way.
pub(crate) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const PATH: [&str; 3] = ["metadata", "annotations", ANNOTATION];
/// The maximum size of all keys and values of an object's annotations together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The fields in the annotation that the live object still has with the same values. None: the annotation is unusable.
pub(crate) fn still_applied(kind: &Kind<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(value::str_at(live, &PATH)?).ok()?;
    if value::str_at(&last, &["apiVersion"])? != kind.api_version() {
        return None;
    }
    typed::validate(kind.schema, &last, Duplicates::Refuse).ok()?;
    let difference = compare(kind.schema, &last, live);
    let named = FieldSet::of(kind.schema, &last);
    Some(named.difference(&difference.modified).difference(&difference.added).difference(&difference.removed))
}

/// Writes the applied configuration into the annotation, if the object has it and there is room.
pub(crate) fn keep_up(object: &mut Value, applied: &Value) {
    if value::str_at(object, &PATH).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    value::remove_at(&mut applied, &PATH);
    let text = format!("{}\n", go::json(&applied));
    let Some(annotations) = value::object_at(object, &PATH[..2]) else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}
