//! Empty values: those that Go's `omitempty` drops, and those that Go writes although they are not set.

use crate::model::schema::{Schema, Special, Type, Zero};
use steersman_machinery::Value;
use steersman_machinery::budget::cost;
use steersman_machinery::value::Map;

/// Drops and adds empty fields of a struct.
pub(crate) fn finish(schema: &Schema, fields: &mut Map) {
    drop_empty(schema, fields);
    write_empty(schema, fields);
}

/// Drops the empty fields of a struct that are not always written.
pub(crate) fn drop_empty(schema: &Schema, fields: &mut Map) {
    let is_dropped = |name: &str, value: &Value| match schema.properties.get(name).map(|field| field.zero) {
        Some(Zero::Keep) => value.is_null(),
        Some(Zero::Omit) => is_zero(value),
        Some(Zero::Null | Zero::Write) | None => false,
    };
    // Usually there is nothing to drop, and checking costs less than rebuilding the map.
    if fields.iter().any(|(name, value)| is_dropped(name, value)) {
        fields.retain(|name, value| !is_dropped(name, value));
    }
}

/// Adds missing fields of a struct that Go always writes; returns their size in memory.
pub(crate) fn write_empty(schema: &Schema, fields: &mut Map) -> usize {
    let mut bytes = 0;
    for (name, field) in schema.properties.written() {
        let value = fields.get(name);
        match field.zero {
            Zero::Null if value.is_none() => {
                bytes += cost::field(name, fields.len());
                fields.insert(name.to_owned(), Value::Null);
            }
            Zero::Write if value.is_none_or(Value::is_null) => {
                let zero = zero(field);
                bytes += cost::field(name, fields.len()) + cost::of(&zero).1;
                fields.insert(name.to_owned(), zero);
            }
            Zero::Keep | Zero::Null | Zero::Omit | Zero::Write => {}
        }
    }
    bytes
}

pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The zero value of a Go type.
pub(crate) fn zero(schema: &Schema) -> Value {
    let schema = schema.target();
    match (schema.special, schema.value_type) {
        (Some(Special::IntOrString), _) => Value::from(0),
        (Some(Special::Quantity), _) => Value::from("0"),
        (Some(Special::Bytes), _) => Value::Null,
        (Some(_), _) | (None, Type::Any | Type::Array) => Value::Null,
        (None, Type::Boolean) => Value::Bool(false),
        (None, Type::Integer | Type::IntOrString | Type::Number) => Value::from(0),
        (None, Type::String) => Value::from(""),
        (None, Type::Object) if schema.values().is_some() => Value::Null,
        (None, Type::Object) => {
            let mut fields = Map::new();
            finish(schema, &mut fields);
            Value::Object(fields)
        }
    }
}
