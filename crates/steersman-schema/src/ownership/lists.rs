//! Checks that lists that are sets or maps have no duplicates.

use crate::model::schema::{List, Schema};
use crate::values::validate::ErrorList;
use std::collections::HashMap;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::Map;

/// Finds the duplicates everywhere in a value.
pub(crate) fn validate(schema: &Schema, value: &Value, found: &mut ErrorList<'_>) {
    look(schema, value, &Path::root(), found);
}

fn look(schema: &Schema, value: &Value, path: &Path, found: &mut ErrorList<'_>) {
    if found.is_over_at(path) {
        return;
    }
    match value {
        Value::Array(items) => {
            match &schema.list {
                Some(List::Map(keys)) => map(keys, items, path, found),
                Some(List::Set) => {
                    for index in repeated(items.iter()) {
                        if found.is_over_at(path) {
                            return;
                        }
                        found.errors.push(Error::duplicate(&path.index(index), items[index].clone()));
                    }
                }
                Some(List::Atomic) | None => {}
            }
            if let Some(item) = schema.item().filter(|item| may_hold_lists(item)) {
                for (index, each) in items.iter().enumerate() {
                    if found.is_over_at(path) {
                        return;
                    }
                    look(item, each, &path.index(index), found);
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(property) = schema.property(name) {
                    if may_hold_lists(property) {
                        look(property, field, &path.child(name), found);
                    }
                } else if let Some(values) = schema.values().filter(|values| may_hold_lists(values)) {
                    look(values, field, &path.key(name), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value may contain lists. Avoids building the paths of scalars.
fn may_hold_lists(schema: &Schema) -> bool {
    schema.list.is_some() || schema.items.is_some() || !schema.properties.is_empty() || schema.values().is_some()
}

fn map(keys: &[Box<str>], items: &[Value], path: &Path, found: &mut ErrorList<'_>) {
    let wrong = items.iter().position(|item| !item.is_null() && !item.is_object());
    if let Some(index) = wrong {
        let detail = "must be an object for an array of list-type map";
        return found.errors.push(Error::invalid(&path.index(index), items[index].clone(), detail));
    }
    let key_of = |item: &Value| {
        let said = keys.iter().filter_map(|key| Some((key.to_string(), item.get(key.as_ref())?.clone())));
        Value::Object(said.collect::<Map>())
    };
    let keys: Vec<Value> = items.iter().map(key_of).collect();
    for index in repeated(keys.iter()) {
        if found.is_over_at(path) {
            return;
        }
        found.errors.push(Error::duplicate(&path.index(index), keys[index].clone()));
    }
}

/// The index at which each repeated value occurs for the second time.
fn repeated<'v>(values: impl ExactSizeIterator<Item = &'v Value>) -> Vec<usize> {
    if values.len() <= 1 {
        return Vec::new();
    }
    let mut n_seen: HashMap<String, usize> = HashMap::with_capacity(values.len());
    let mut second = Vec::new();
    for (index, value) in values.enumerate() {
        let n = n_seen.entry(value.to_string()).or_default();
        *n += 1;
        if *n == 2 {
            second.push(index);
        }
    }
    second
}
