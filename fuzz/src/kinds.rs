//! The built-in kinds, and generated objects of them.

use crate::input::Draw;
use serde_json::{Value, json};
use std::sync::LazyLock;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupVersion, GroupVersionKind};
use steersman_schema::{Definitions, Schema};

static KINDS: LazyLock<Vec<(&'static GroupVersionKind, &'static Schema)>> = LazyLock::new(|| {
    let kinds = Definitions::builtin().kinds().map(|(gvk, definition)| (gvk, definition.schema()));
    let mut kinds: Vec<_> = kinds.filter(|(_, schema)| schema.property("metadata").is_some()).collect();
    kinds.sort_by_key(|(gvk, _)| (*gvk).clone());
    kinds
});

/// Chooses a kind.
pub fn kind(draw: &mut Draw<'_>) -> (&'static GroupVersionKind, &'static Schema) {
    KINDS[draw.below(KINDS.len())]
}

/// Generates an object with kind and apiVersion.
pub fn object(draw: &mut Draw<'_>) -> (&'static GroupVersionKind, &'static Schema, Value) {
    let (gvk, schema) = kind(draw);
    let mut object = draw.fitting(schema, 0);
    name(gvk, &mut object);
    (gvk, schema, object)
}

/// Sets kind and apiVersion of an object, and a name.
pub fn name(gvk: &GroupVersionKind, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.insert("apiVersion".to_owned(), json!(gvk.api_version()));
    fields.insert("kind".to_owned(), json!(gvk.kind));
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("name".to_owned(), json!("n"));
    }
}

/// The schema of an object's kind.
pub fn find(object: &Value) -> Option<&'static Schema> {
    let version = GroupVersion::parse(str_at(object, &["apiVersion"])?)?;
    Definitions::builtin().schema_of(&version.kind(str_at(object, &["kind"])?))
}
