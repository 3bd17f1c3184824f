//! Merges an applied configuration into a live value of the same type.
//!
//! Nothing is removed here; scalars and atomic values are taken from the applied configuration. Keyed lists and sets
//! take the order of the applied items, and items that only the live list has stay before the item that they preceded.

use crate::model::schema::Schema;
use crate::ownership::fields::element::Element;
use crate::ownership::fields::shape::{Form, ListForm, MapForm, Node, Split};
use std::collections::BTreeMap;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Merges two values, both of which must have been checked against the type.
pub(crate) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    merge_values(Node::root(schema), Some(live), Some(applied)).unwrap_or(Value::Null)
}

fn merge_values(node: Node<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let form = match applied {
        Some(applied) => node.form(Some(applied)),
        None => node.form(live),
    };
    match form {
        Form::Scalar(_) => whole(live, applied),
        Form::List(list) => {
            let live_items = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let applied_items = applied.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let is_empty = live_items.is_empty() && applied_items.is_empty();
            match list.split {
                Split::Keys(_) | Split::Set if !is_empty => {
                    Some(Value::Array(merge_items(list, live_items, applied_items)))
                }
                _ => whole(live, applied),
            }
        }
        Form::Map(map) => {
            let live_fields = live.and_then(Value::as_object).filter(|fields| !fields.is_empty());
            let applied_fields = applied.and_then(Value::as_object).filter(|fields| !fields.is_empty());
            if map.is_atomic || (live_fields.is_none() && applied_fields.is_none()) {
                return whole(live, applied);
            }
            Some(Value::Object(merge_fields(map, live_fields, applied_fields)))
        }
    }
}

fn whole(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn merge_fields(map: MapForm<'_>, live: Option<&Map>, applied: Option<&Map>) -> Map {
    let empty = Map::new();
    let (live, applied) = (live.unwrap_or(&empty), applied.unwrap_or(&empty));
    let only_applied = applied.keys().filter(|name| !live.contains_key(*name));
    let merged = live.keys().chain(only_applied).filter_map(|name| {
        let node = map.field(name).unwrap_or(Node::Opaque);
        Some((name.clone(), merge_values(node, live.get(name), applied.get(name))?))
    });
    merged.collect()
}

fn merge_items(list: ListForm<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let (live, applied) = (by_element(list, live), by_element(list, applied));
    // Duplicates in the live list cannot be merged: the applied item replaces them.
    let mut live_items: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        live_items.entry(element).and_modify(|item| *item = None).or_insert(Some(*item));
    }
    let places: BTreeMap<&Element, usize> =
        applied.iter().enumerate().map(|(place, (element, _))| (element, place)).collect();

    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let (mut at_live, mut at_applied) = (0, 0);
    // The next applied item that is also live: live items that precede it in the live list precede it here.
    let mut next_shared = 0;
    while at_live < live.len() || at_applied < applied.len() {
        next_shared = next_shared.max(at_applied);
        while next_shared < applied.len() && !live_items.contains_key(&applied[next_shared].0) {
            next_shared += 1;
        }
        if let Some((element, item)) = live.get(at_live) {
            let Some(&place) = places.get(element) else {
                merged.extend(merge_values(list.item, Some(item), None));
                at_live += 1;
                continue;
            };
            let is_shared_one_left = next_shared < applied.len();
            if is_shared_one_left && place != next_shared {
                at_live += 1;
                continue;
            }
            if place <= at_applied {
                at_live += 1;
            }
        }
        if let Some((element, item)) = applied.get(at_applied) {
            let live_item = live_items.get(element).copied().flatten();
            merged.extend(merge_values(list.item, live_item, Some(item)));
            at_applied += 1;
        }
    }
    merged
}

fn by_element<'v>(list: ListForm<'_>, items: &'v [Value]) -> Vec<(Element, &'v Value)> {
    items.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect()
}
