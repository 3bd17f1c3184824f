//! Empty values: those that Go's `omitempty` drops, and those that Go writes although they are not set.

use crate::model::schema::{Schema, Special, Type, Zero};
use steersman_machinery::Value;
use steersman_machinery::budget::cost;
use steersman_machinery::value::Map;

/// The field of an object's metadata with the owners of its fields.
const MANAGED_FIELDS: &str = "managedFields";

/// The treatment of empty lists and maps that are not always written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Empties {
    Dropped,
    /// Dropped, except `managedFields`: an empty list there resets the record.
    DroppedExceptManagedFields,
    /// Kept until the object is stored, because Go distinguishes them from absent ones, and an atomic list that contains them
    /// differs.
    Kept,
}

/// Drops the empty fields of a struct that are not always written.
pub(crate) fn drop_empty(schema: &Schema, fields: &mut Map, empties: Empties) {
    let is_dropped = |name: &str, value: &Value| {
        schema.properties.get(name).is_some_and(|field| is_dropped(field, name, value, empties))
    };
    // Usually there is nothing to drop, and checking costs less than rebuilding the map.
    if fields.iter().any(|(name, value)| is_dropped(name, value)) {
        fields.retain(|name, value| !is_dropped(name, value));
    }
}

/// Whether a field of a struct is dropped.
pub(crate) fn is_dropped(field: &Schema, name: &str, value: &Value, empties: Empties) -> bool {
    match (field.zero, empties) {
        (Zero::Null | Zero::Write, _) => false,
        (Zero::Keep, _) => value.is_null(),
        (Zero::Omit, Empties::Kept) if matches!(value, Value::Array(_) | Value::Object(_)) => false,
        (Zero::Omit, Empties::DroppedExceptManagedFields) if name == MANAGED_FIELDS && value.is_array() => false,
        (Zero::Omit, _) => is_zero(value),
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
            write_empty(schema, &mut fields);
            Value::Object(fields)
        }
    }
}
