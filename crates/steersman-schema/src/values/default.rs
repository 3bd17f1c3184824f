//! Defaulting of custom resources.

use crate::model::schema::Schema;
use steersman_machinery::Value;
use steersman_machinery::budget::{self, Budget, cost};
use steersman_machinery::value::Map;

/// Sets defaults where a field is absent, or null and not nullable; drops other nulls that are not allowed.
///
/// The defaults belong to the tree that the budget counts, so each is charged before it is copied.
///
/// # Errors
/// When the value becomes too large. It is then only partly defaulted.
pub fn apply(schema: &Schema, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
    drop_nulls(Some(schema), value);
    fill(schema, value, budget)
}

/// Sets defaults as [`apply`] does, but leaves other nulls that are not allowed to validation.
///
/// # Errors
/// When the value becomes too large. It is then only partly defaulted.
pub fn fill(schema: &Schema, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
    match value {
        Value::Array(items) => {
            let Some(item) = schema.item() else { return Ok(()) };
            budget.work(items.len())?;
            for each in items {
                default_null(item, each, budget)?;
                fill(item, each, budget)?;
            }
        }
        Value::Object(fields) => fill_fields(schema, fields, budget)?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn is_wrong_null(schema: &Schema, value: &Value) -> bool {
    value.is_null() && !schema.nullable
}

/// Only fields are dropped: removing an item of a list would move the items after it.
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

fn fill_fields(schema: &Schema, fields: &mut Map, budget: &Budget) -> Result<(), budget::Error> {
    let defaulted = schema.target().properties.defaulted();
    budget.work(defaulted.len() + fields.len())?;
    for (name, property) in defaulted {
        let Some(default) = &property.default else { continue };
        if fields.get(name).is_none_or(|field| is_wrong_null(property, field)) {
            budget.build(cost::field(name, fields.len()))?;
            fields.insert(name.to_owned(), copy(default, budget)?);
        }
    }
    for (name, field) in fields.iter_mut() {
        if let Some(property) = schema.property(name) {
            fill(property, field, budget)?;
        } else if let Some(values) = schema.values() {
            default_null(values, field, budget)?;
            fill(values, field, budget)?;
        }
    }
    Ok(())
}

fn default_null(schema: &Schema, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
    if let (true, Some(default)) = (is_wrong_null(schema, value), &schema.default) {
        *value = copy(default, budget)?;
    }
    Ok(())
}

fn copy(default: &Value, budget: &Budget) -> Result<Value, budget::Error> {
    budget.copy(default)?;
    Ok(default.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steersman_machinery::budget::{Amount, Interrupt, Limits};

    fn schema(default: &Value) -> Schema {
        let properties = (0..20).map(|n| (format!("p{n}"), json!({"type": "string", "default": default})));
        let item = json!({"type": "object", "properties": properties.collect::<Map>()});
        Schema::from_json(&json!({"type": "object", "properties": {"items": {"type": "array", "items": item}}}))
    }

    fn objects(n: usize) -> Value {
        json!({"items": vec![json!({}); n]})
    }

    /// Applies the defaults, and returns the budget that was charged.
    fn charged(schema: &Schema, mut value: Value) -> (Result<(), budget::Error>, Budget) {
        let budget = Budget::default();
        let outcome = apply(schema, &mut value, &budget);
        (outcome, budget)
    }

    #[test]
    fn defaults_that_multiply_are_refused_before_they_are_built() {
        let (outcome, budget) = charged(&schema(&json!("x")), objects(900_000));
        let limit = Limits::default().bytes_max;
        assert_eq!(outcome, Err(budget::Error::Exceeded { amount: Amount::Bytes, limit }));
        // Defaulting ends with the first default that exceeds the limit.
        assert!(budget.bytes() < limit + 1000, "{}", budget.bytes());
        let (outcome, budget) = charged(&schema(&json!("x".repeat(1 << 20))), objects(2000));
        assert!(outcome.is_err());
        assert!(budget.bytes() < limit + (2 << 20), "{}", budget.bytes());
    }

    #[test]
    fn defaulting_costs_what_is_there_and_what_is_added() {
        let schema = schema(&json!("x"));
        let [few, many] = [1000, 2000].map(|n| {
            let (outcome, budget) = charged(&schema, objects(n));
            outcome.unwrap();
            (budget.steps(), budget.bytes())
        });
        assert!(many.0 <= 2 * few.0 && many.1 == 2 * few.1, "{few:?} {many:?}");
    }

    #[test]
    fn interrupted_defaulting_ends() {
        let interrupt = Interrupt::default();
        let budget = Budget::new(Limits::default(), interrupt.clone());
        interrupt.set();
        assert_eq!(apply(&schema(&json!("x")), &mut objects(1), &budget), Err(budget::Error::Interrupted));
    }
}
