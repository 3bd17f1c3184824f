//! Removes the fields of a set from a value.

use crate::model::schema::Schema;
use crate::ownership::fields::FieldSet;
use crate::ownership::fields::element::Element;
use crate::ownership::fields::shape::{Form, Node, Split};
use steersman_machinery::Value;

/// The value without the members of a set. An atomic map or list is removed as a whole; a map or list whose last item
/// is removed is removed itself.
pub(crate) fn remove(schema: &Schema, value: &Value, fields: &FieldSet) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    remove_from(Node::root(schema), value, fields).unwrap_or(Value::Null)
}

fn remove_from(node: Node<'_>, value: &Value, fields: &FieldSet) -> Option<Value> {
    match (node.form(Some(value)), value) {
        (Form::Scalar(_), _) => Some(value.clone()),
        (Form::List(list), Value::Array(items)) if !matches!(list.split, Split::Atomic) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = list.element(item) else {
                    kept.push(item.clone());
                    continue;
                };
                kept.extend(without(list.item, item, &element, fields));
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Form::Map(map), Value::Object(entries)) if !map.is_atomic => {
            let kept: steersman_machinery::value::Map = entries
                .iter()
                .filter_map(|(name, value)| {
                    let node = map.field(name).unwrap_or(Node::Opaque);
                    Some((name.clone(), without(node, value, &Element::Field(name.clone()), fields)?))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => None,
    }
}

fn without(node: Node<'_>, value: &Value, element: &Element, fields: &FieldSet) -> Option<Value> {
    if fields.has(element) {
        return None;
    }
    match fields.beneath(element) {
        Some(beneath) => remove_from(node, value, beneath),
        None => Some(value.clone()),
    }
}
