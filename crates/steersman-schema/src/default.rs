//! Defaulting of custom resources.

use crate::schema::Schema;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Fills in defaults where a field is absent, or null and may not be; drops other nulls that may not be.
pub fn apply(schema: &Schema, value: &mut Value) {
    drop_nulls(Some(schema), value);
    fill(schema, value);
}

fn is_wrong_null(schema: &Schema, value: &Value) -> bool {
    value.is_null() && !schema.nullable
}

/// Fields only: an item of a list cannot go without moving those behind it.
fn drop_nulls(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Array(items) => {
            let item = schema.and_then(Schema::item);
            items.iter_mut().for_each(|each| drop_nulls(item, each));
        }
        Value::Object(fields) => fields.retain(|name, field| {
            let inner = schema.and_then(|schema| schema.field(name));
            if inner.is_some_and(|inner| is_wrong_null(inner, field) && inner.default.is_none()) {
                return false;
            }
            drop_nulls(inner, field);
            true
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Array(items) => {
            let Some(item) = schema.item() else { return };
            for each in items {
                default_null(item, each);
                fill(item, each);
            }
        }
        Value::Object(fields) => fill_fields(schema, fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_fields(schema: &Schema, fields: &mut Map) {
    for (name, property) in schema.target().properties.iter() {
        let Some(default) = &property.default else { continue };
        if fields.get(name).is_none_or(|field| is_wrong_null(property, field)) {
            fields.insert(name.to_owned(), default.clone());
        }
    }
    for (name, field) in fields.iter_mut() {
        if let Some(property) = schema.property(name) {
            fill(property, field);
        } else if let Some(values) = schema.values() {
            default_null(values, field);
            fill(values, field);
        }
    }
}

fn default_null(schema: &Schema, value: &mut Value) {
    if let (true, Some(default)) = (is_wrong_null(schema, value), &schema.default) {
        *value = default.clone();
    }
}
