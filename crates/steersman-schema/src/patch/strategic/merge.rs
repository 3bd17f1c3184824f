//! Merges a patch into a document, or into another patch.

use crate::model::schema::Schema;
use crate::ownership::fields::element::same;
use crate::patch::strategic::order::{Items, Places, arrange, as_list, as_map, excerpt, identity, items_of};
use crate::patch::strategic::{DELETE_FROM, DIRECTIVE, Error, RETAIN_KEYS, Rule, SET_ORDER};
use std::collections::HashSet;
use std::mem::discriminant;
use steersman_machinery::Value;
use steersman_machinery::value::{self, Map};

/// The target of a merge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Into {
    /// An object: directives are applied, and nulls remove fields.
    Document,
    /// Another patch: directives and nulls are kept, since that patch is applied later.
    Patch,
}

/// Applies a patch.
///
/// # Errors
/// When the patch is not an object, or contradicts itself or the schema.
pub fn apply(schema: &Schema, original: Value, patch: Value) -> Result<Value, Error> {
    let Value::Object(patch) = patch else {
        return Err(Error::NotAnObject(value::type_name(&patch)));
    };
    let Value::Object(original) = original else {
        return Err(Error::NotAnObject(value::type_name(&original)));
    };
    merge_maps(original, patch, Some(schema), Into::Document).map(Value::Object)
}

pub(crate) fn merge_maps(mut into: Map, mut patch: Map, schema: Option<&Schema>, mode: Into) -> Result<Map, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive)),
        };
    }
    retain_keys(&mut into, &mut patch, mode)?;
    set_orders(&mut into, &mut patch, schema, mode)?;
    delete_from_lists(&mut into, &mut patch, mode)?;
    for (key, value) in patch {
        merge_field(&mut into, key, value, schema, mode)?;
    }
    Ok(into)
}

fn merge_field(into: &mut Map, key: String, value: Value, schema: Option<&Schema>, mode: Into) -> Result<(), Error> {
    if value.is_null() {
        into.remove(&key);
        if mode == Into::Patch {
            into.insert(key, Value::Null);
        }
        return Ok(());
    }
    let Some(old) = into.remove(&key) else {
        into.extend(added(value, mode).map(|value| (key, value)));
        return Ok(());
    };
    let rule = Rule::of(schema, &key);
    let merged = match (old, value) {
        (Value::Object(_), Value::Object(new)) if rule.replace => Some(Value::Object(new)),
        (Value::Object(old), Value::Object(new)) => Some(Value::Object(merge_maps(old, new, rule.schema, mode)?)),
        (Value::Array(old), Value::Array(new)) if rule.merge => Some(Value::Array(merge_lists(old, new, rule, mode)?)),
        (old, new) if discriminant(&old) == discriminant(&new) => Some(new),
        (_, new) => added(new, mode),
    };
    into.extend(merged.map(|merged| (key, merged)));
    Ok(())
}

/// The value where there was none. In a document it is the patch without its directives and nulls.
fn added(value: Value, mode: Into) -> Option<Value> {
    match (mode, value) {
        (Into::Patch, value) => Some(value),
        (Into::Document, Value::Object(fields)) => {
            if fields.contains_key(DIRECTIVE) {
                return None;
            }
            let fields = fields.into_iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
            Some(Value::Object(fields.filter_map(|(key, value)| Some((key, added(value, mode)?))).collect()))
        }
        (Into::Document, Value::Array(items)) => Some(items.into_iter().filter_map(|item| added(item, mode)).collect()),
        (Into::Document, scalar) => Some(scalar),
    }
}

fn is_directive(key: &str) -> bool {
    key == RETAIN_KEYS || list_of(key, SET_ORDER).is_some() || list_of(key, DELETE_FROM).is_some()
}

/// The name of the list in a directive such as `$setElementOrder/containers`.
fn list_of<'k>(key: &'k str, directive: &str) -> Option<&'k str> {
    key.strip_prefix(directive)?.strip_prefix('/')
}

fn unknown_directive(directive: &Value) -> Error {
    Error::Directive { directive: excerpt(directive) }
}

/// `$retainKeys`: removes the keys that it does not list; the patch may only set listed ones.
fn retain_keys(into: &mut Map, patch: &mut Map, mode: Into) -> Result<(), Error> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    if mode == Into::Patch {
        // Both patches are computed from the same desired state, so they retain the same keys.
        if into.get(RETAIN_KEYS).is_some_and(|other| *other != retained) {
            return Err(Error::RetainKeysContent);
        }
        into.insert(RETAIN_KEYS.to_owned(), retained);
        return Ok(());
    }
    let retained = retained.as_array().ok_or(Error::RetainKeysFormat)?;
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_retained = |key: &str| retained.contains(key);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !is_retained(key)) {
        return Err(Error::RetainKeysContent);
    }
    into.retain(|key, _| is_retained(key));
    Ok(())
}

/// `$setElementOrder/LIST`: merges the list, if the patch has it, and sorts it in that order.
fn set_orders(into: &mut Map, patch: &mut Map, schema: Option<&Schema>, mode: Into) -> Result<(), Error> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(Error::SetOrderFormat);
        };
        if mode == Into::Patch {
            let order = Value::Array(order.clone());
            if into.get(&directive).is_some_and(|other| *other != order) {
                return Err(Error::SetOrderFormat);
            }
            into.insert(directive.clone(), order);
        }
        let field = list_of(&directive, SET_ORDER).ok_or(Error::SetOrderFormat)?;
        let rule = Rule::of(schema, field);
        let live = into.get(field).map(as_list).transpose()?.map(<[Value]>::to_vec);
        let new = patch.get(field).map(as_list).transpose()?.map(<[Value]>::to_vec);
        let key = rule.merge_key;
        check_order(new.as_deref().unwrap_or_default(), &order, key)?;
        let live_order = live.clone().unwrap_or_default();
        let merged = match (live, new) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(new)) => match added(Value::Array(new), mode) {
                Some(Value::Array(new)) => new,
                _ => continue,
            },
            (Some(live), Some(new)) if rule.merge => merge_lists(live, new, rule, mode)?,
            (Some(_), Some(new)) => new,
        };
        let arranged = arrange(merged, &order, &live_order, key)?;
        patch.remove(field);
        into.insert(field.to_owned(), Value::Array(arranged));
    }
    Ok(())
}

/// Checks that `$setElementOrder` names all items of the patch's list, in the same order.
fn check_order(list: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if list.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in list {
        if item.get(DIRECTIVE).is_some() {
            continue;
        }
        let wanted = identity(item, key)?;
        loop {
            let Some(next) = rest.next() else {
                let text = |list: &[Value]| excerpt(&Value::Array(list.to_vec()));
                return Err(Error::Order { list: text(list), order: text(order) });
            };
            if same(identity(next, key)?, wanted) {
                break;
            }
        }
    }
    Ok(())
}

/// `$deleteFromPrimitiveList/LIST`: removes these items from the list, before the patch adds others.
fn delete_from_lists(into: &mut Map, patch: &mut Map, mode: Into) -> Result<(), Error> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(DELETE_FROM)).cloned().collect();
    for directive in directives {
        let Some(items) = patch.remove(&directive) else {
            continue;
        };
        if mode == Into::Patch {
            into.insert(directive, items);
            continue;
        }
        let field = list_of(&directive, DELETE_FROM).ok_or(Error::PrimitiveListFormat)?;
        let items = items.as_array().ok_or(Error::PrimitiveListFormat)?;
        if let Some(Value::Array(list)) = into.get_mut(field) {
            let deleted = Places::of(items, None);
            list.retain(|item| !deleted.has(item));
        }
    }
    Ok(())
}

/// Merges two lists according to a rule.
fn merge_lists(live: Vec<Value>, patch: Vec<Value>, rule: Rule<'_>, mode: Into) -> Result<Vec<Value>, Error> {
    match items_of(&[&live, &patch])? {
        None => Ok(live),
        Some(Items::Scalars) => {
            let mut places = Places::of(&[], None);
            let mut merged: Vec<Value> = Vec::with_capacity(live.len() + patch.len());
            for item in live.iter().chain(&patch) {
                if !places.has(item) {
                    places.insert(item, merged.len());
                    merged.push(item.clone());
                }
            }
            arrange(merged, &patch, &live, None)
        }
        Some(Items::Maps) => {
            let key = rule.merge_key.ok_or_else(|| {
                let name = rule.item().and_then(Schema::reference).map(|definition| definition.name().to_owned());
                Error::Unkeyed(name.unwrap_or_else(|| "map".to_owned()))
            })?;
            let (live, patch) = follow_items(live, patch, key)?;
            let mut places = Places::of(&live, Some(key));
            let mut merged = live.clone();
            for item in &patch {
                let wanted = identity(item, Some(key))?;
                let new = as_map(item)?.clone();
                match places.get(wanted).map(|place| &mut merged[place]) {
                    Some(Value::Object(old)) => {
                        *old = merge_maps(std::mem::take(old), new, rule.item(), mode)?;
                    }
                    _ => {
                        places.insert(wanted, merged.len());
                        merged.extend(added(Value::Object(new), mode));
                    }
                }
            }
            arrange(merged, &patch, &live, Some(key))
        }
    }
}

/// Applies the directives among the items of a patch's list. Returns the changed live list, and the patch without them.
fn follow_items(mut live: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut items = Vec::with_capacity(patch.len());
    let mut deleted = Vec::new();
    let mut is_replaced = false;
    for item in patch {
        let map = as_map(&item)?;
        match map.get(DIRECTIVE) {
            None => items.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => deleted.push(identity(&item, Some(key))?.clone()),
                Some("replace") => is_replaced = true,
                Some("merge") => return Err(Error::MergeDirective),
                _ => return Err(unknown_directive(directive)),
            },
        }
    }
    if is_replaced {
        let items = items.into_iter().filter_map(|item| added(item, Into::Document)).collect();
        return Ok((items, Vec::new()));
    }
    let deleted = Places::of(&deleted, None);
    live.retain(|item| item.get(key).is_none_or(|identity| !deleted.has(identity)));
    Ok((live, items))
}
