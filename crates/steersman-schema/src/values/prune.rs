//! Pruning: drops and reports the fields that a custom resource's schema does not define.
//!
//! `apiVersion`, `kind` and `metadata` of the resource and of embedded ones are kept; their content is validated as
//! metadata.

use crate::model::schema::{Additional, Schema};
use std::fmt::Write;
use steersman_machinery::Value;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The maximum number of reported fields.
const DROPPED_MAX: usize = 100;

/// Prunes a custom resource; returns the sorted paths of at most a hundred dropped fields.
pub fn prune(schema: &Schema, resource: &mut Value) -> Vec<String> {
    let mut pass = Pass { path: String::new(), dropped: Vec::new() };
    match schema.preserve_unknown_fields {
        true => pass.keep(resource, schema, true),
        false => pass.prune(resource, Some(schema), true),
    }
    pass.dropped.sort();
    pass.dropped
}

/// Prunes a value that is not a resource, such as a default.
pub(crate) fn prune_value(schema: &Schema, value: &mut Value) {
    let mut pass = Pass { path: String::new(), dropped: Vec::new() };
    pass.prune(value, Some(schema), schema.embedded_resource);
}

struct Pass {
    path: String,
    dropped: Vec<String>,
}

impl Pass {
    /// Without a schema no field is defined, so all are dropped.
    fn prune(&mut self, value: &mut Value, schema: Option<&Schema>, is_resource: bool) {
        if let Some(schema) = schema.filter(|schema| schema.preserve_unknown_fields) {
            return self.keep(value, schema, is_resource);
        }
        let length = self.path.len();
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, schema.and_then(Schema::item));
                    self.path.truncate(length);
                }
            }
            Value::Object(fields) => fields.retain(|name, field| {
                if is_resource && META.contains(&name.as_str()) {
                    return true;
                }
                self.enter(name);
                let stays = match schema.and_then(|schema| inside(schema, name)) {
                    Some(inner) => {
                        self.value(field, inner);
                        true
                    }
                    None => {
                        if self.dropped.len() < DROPPED_MAX {
                            self.dropped.push(self.path.clone());
                        }
                        false
                    }
                };
                self.path.truncate(length);
                stays
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Keeps every field here, and prunes inside the named ones.
    fn keep(&mut self, value: &mut Value, schema: &Schema, is_resource: bool) {
        let length = self.path.len();
        match value {
            Value::Array(items) => {
                let Some(item) = schema.item() else { return };
                for (index, each) in items.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.keep(each, item, item.embedded_resource);
                    self.path.truncate(length);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    if is_resource && META.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(inner) = inside(schema, name) {
                        self.enter(name);
                        self.value(field, inner);
                        self.path.truncate(length);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn value(&mut self, value: &mut Value, schema: Option<&Schema>) {
        self.prune(value, schema, schema.is_some_and(|schema| schema.embedded_resource));
    }

    fn enter(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// None: the field is not defined. `Some(None)`: it is, but without a schema (`additionalProperties: true`).
fn inside<'s>(schema: &'s Schema, name: &str) -> Option<Option<&'s Schema>> {
    if let Some(property) = schema.property(name) {
        return Some(Some(property));
    }
    match &schema.additional {
        Additional::Any | Additional::Never => Some(None),
        Additional::Of(values) => Some(Some(values)),
        Additional::Unsaid => None,
    }
}
