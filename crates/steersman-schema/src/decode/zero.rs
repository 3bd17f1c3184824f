//! Empty values: what Go's `omitempty` drops, and what is written though nobody said it.

use crate::schema::{Schema, Special, Type, Zero};
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Drops and writes empty fields of a struct.
pub(crate) fn finish(schema: &Schema, fields: &mut Map) {
    for (name, field) in schema.properties.iter() {
        match field.zero {
            Zero::Keep => {
                if fields.get(name).is_some_and(Value::is_null) {
                    fields.remove(name);
                }
            }
            Zero::Null => {
                if !fields.contains_key(name) {
                    fields.insert(name.to_owned(), Value::Null);
                }
            }
            Zero::Omit => {
                if fields.get(name).is_some_and(is_zero) {
                    fields.remove(name);
                }
            }
            Zero::Write => {
                if fields.get(name).is_none_or(Value::is_null) {
                    fields.insert(name.to_owned(), zero(field));
                }
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The value of a Go variable that nobody has set.
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
