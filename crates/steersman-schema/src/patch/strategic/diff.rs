//! Computes the patch that turns one object into another.

use crate::model::schema::Schema;
use crate::ownership::fields::element::same;
use crate::ownership::fields::go;
use crate::patch::strategic::merge::{Into, merge_maps};
use crate::patch::strategic::order::{Items, Places, identity, items_of};
use crate::patch::strategic::{DELETE_FROM, DIRECTIVE, Error, RETAIN_KEYS, Rule, SET_ORDER};
use std::mem::discriminant;
use steersman_machinery::Value;
use steersman_machinery::value::{self, Map};

/// The part of the difference that goes into the patch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    All,
    /// Added or changed values.
    Changes,
    /// Removed values.
    Deletions,
}

/// Whether the patch of a map lists the keys that it retains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Retain {
    Said,
    Unsaid,
}

#[derive(Default)]
struct ListPatch {
    items: Vec<Value>,
    deletions: Vec<Value>,
    order: Vec<Value>,
}

/// The patch that turns `old` into `new`.
///
/// # Errors
/// When one is not an object, or an item of a list that merges lacks its key.
pub fn create_two_way(schema: &Schema, old: &Value, new: &Value) -> Result<Value, Error> {
    diff_maps(object(old)?, object(new)?, Some(schema), Retain::Unsaid, Part::All).map(Value::Object)
}

/// The patch that turns `current` into the desired state, as `kubectl apply` computes it: `modified` is the desired
/// state, `original` the last one. Fields that are no longer desired are removed; fields that were never desired are
/// left alone.
///
/// # Errors
/// Like [`create_two_way`].
pub fn create_three_way(schema: &Schema, original: &Value, modified: &Value, current: &Value) -> Result<Value, Error> {
    let (original, modified, current) = (object(original)?, object(modified)?, object(current)?);
    let schema = Some(schema);
    let changes = diff_maps(current, modified, schema, Retain::Unsaid, Part::Changes)?;
    let deletions = diff_maps(original, modified, schema, Retain::Unsaid, Part::Deletions)?;
    merge_maps(deletions, changes, schema, Into::Patch).map(Value::Object)
}

fn object(value: &Value) -> Result<&Map, Error> {
    value.as_object().ok_or_else(|| Error::NotAnObject(value::type_name(value)))
}

fn diff_maps(old: &Map, new: &Map, schema: Option<&Schema>, retain: Retain, part: Part) -> Result<Map, Error> {
    let mut patch = Map::new();
    for (key, new_value) in new {
        diff_field(&mut patch, key, old.get(key), new_value, Rule::of(schema, key), part)?;
    }
    let gone = old.iter().filter(|(key, _)| !new.contains_key(*key));
    let is_any_gone = gone.clone().any(|(_, value)| !value.is_null());
    if part != Part::Changes {
        patch.extend(gone.map(|(key, _)| (key.clone(), Value::Null)));
    }
    let retained: Vec<Value> =
        new.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| Value::from(key.as_str())).collect();
    if retain == Retain::Said && !retained.is_empty() && (!patch.is_empty() || is_any_gone) {
        patch.insert(RETAIN_KEYS.to_owned(), Value::Array(retained));
    }
    Ok(patch)
}

fn diff_field(
    patch: &mut Map,
    key: &str,
    old: Option<&Value>,
    new: &Value,
    rule: Rule<'_>,
    part: Part,
) -> Result<(), Error> {
    let retain = if rule.retain_keys { Retain::Said } else { Retain::Unsaid };
    match (old, new) {
        (Some(Value::Object(old)), Value::Object(new)) if !rule.replace => {
            let inner = diff_maps(old, new, rule.schema, retain, part)?;
            if !inner.is_empty() {
                patch.insert(key.to_owned(), Value::Object(inner));
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) if rule.merge => {
            let list = diff_lists(old, new, rule, retain, part)?;
            let mut put = |key: String, items: Vec<Value>| {
                if !items.is_empty() {
                    patch.insert(key, Value::Array(items));
                }
            };
            put(key.to_owned(), list.items);
            put(format!("{DELETE_FROM}/{key}"), list.deletions);
            put(format!("{SET_ORDER}/{key}"), list.order);
        }
        (old, new) => {
            let is_changed = old.is_none_or(|old| discriminant(old) != discriminant(new) || old != new);
            if is_changed && part != Part::Deletions {
                patch.insert(key.to_owned(), new.clone());
            }
        }
    }
    Ok(())
}

fn diff_lists(old: &[Value], new: &[Value], rule: Rule<'_>, retain: Retain, part: Part) -> Result<ListPatch, Error> {
    let wants_changes = part != Part::Deletions;
    if old.is_empty() {
        let items = if wants_changes { new.to_vec() } else { Vec::new() };
        return Ok(ListPatch { items, ..ListPatch::default() });
    }
    match (items_of(&[old, new])?, rule.merge_key) {
        (Some(Items::Maps), Some(key)) => diff_lists_of_maps(old, new, key, rule, retain, part),
        (Some(Items::Maps), None) => Err(Error::Unkeyed("map".to_owned())),
        (_, _) => {
            let (in_old, in_new) = (Places::of(old, None), Places::of(new, None));
            let added = new.iter().filter(|item| wants_changes && !in_old.has(item));
            let gone = old.iter().filter(|item| part != Part::Changes && !in_new.has(item));
            let mut deletions: Vec<Value> = gone.cloned().collect();
            deletions.sort_by_key(go::plain);
            deletions.dedup();
            let is_ordered = !deletions.is_empty() || (wants_changes && old != new);
            let order = if is_ordered { new.to_vec() } else { Vec::new() };
            Ok(ListPatch { items: added.cloned().collect(), deletions, order })
        }
    }
}

/// The patch has the items in the order of the new list, followed by deletions, and it states the order as soon as
/// anything changes.
fn diff_lists_of_maps(
    old: &[Value],
    new: &[Value],
    key: &str,
    rule: Rule<'_>,
    retain: Retain,
    part: Part,
) -> Result<ListPatch, Error> {
    let identities = |list: &[Value]| -> Result<Vec<Value>, Error> {
        list.iter().map(|item| identity(item, Some(key)).cloned()).collect()
    };
    let (old_keys, new_keys) = (identities(old)?, identities(new)?);
    let (in_old, in_new) = (Places::of(old, Some(key)), Places::of(new, Some(key)));
    let mut items = Vec::new();
    for (item, wanted) in new.iter().zip(&new_keys) {
        let Some(old_item) = in_old.get(wanted).map(|place| &old[place]) else {
            items.extend((part != Part::Deletions).then(|| item.clone()));
            continue;
        };
        let mut inner = diff_maps(object(old_item)?, object(item)?, rule.item(), retain, part)?;
        if !inner.is_empty() {
            inner.insert(key.to_owned(), wanted.clone());
            items.push(Value::Object(inner));
        }
    }
    if part != Part::Changes {
        let mut gone: Vec<&Value> = old_keys.iter().filter(|wanted| !in_new.has(wanted)).collect();
        gone.sort_by_key(|gone| go::plain(gone));
        items.extend(gone.into_iter().map(|gone| {
            let deletion = [(key.to_owned(), gone.clone()), (DIRECTIVE.to_owned(), Value::from("delete"))];
            Value::Object(deletion.into_iter().collect())
        }));
    }
    let is_same_order = old_keys.len() == new_keys.len() && old_keys.iter().zip(&new_keys).all(|(a, b)| same(a, b));
    let is_ordered = !items.is_empty() || (part != Part::Deletions && !is_same_order);
    let order = new_keys.into_iter().map(|identity| Value::Object([(key.to_owned(), identity)].into_iter().collect()));
    Ok(ListPatch { order: if is_ordered { order.collect() } else { Vec::new() }, items, deletions: Vec::new() })
}
