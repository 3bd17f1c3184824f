//! Items of lists: their type, their identity, and their order.

use crate::ownership::fields::element::Literal;
use crate::patch::strategic::{DIRECTIVE, Error};
use std::collections::BTreeMap;
use steersman_machinery::Value;
use steersman_machinery::value::{self, Map};

/// Whether the items of a list are maps or scalars.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Items {
    Maps,
    Scalars,
}

/// The type of the items of lists; none if there is no item.
///
/// # Errors
/// When items are lists, or of several types.
pub(crate) fn items_of(lists: &[&[Value]]) -> Result<Option<Items>, Error> {
    let mut found: Option<&'static str> = None;
    for item in lists.iter().copied().flatten() {
        if item.is_array() {
            return Err(Error::ListOfLists);
        }
        let name = value::type_name(item);
        if found.is_some_and(|found| found != name) {
            return Err(Error::MixedList(found.unwrap_or(name), name));
        }
        found = Some(name);
    }
    let maps = value::type_name(&Value::Object(Map::new()));
    Ok(found.map(|name| if name == maps { Items::Maps } else { Items::Scalars }))
}

/// The identity of an item: the value of its merge key, or, without a key, the item itself.
///
/// # Errors
/// When the item is not a map or lacks the key.
pub(crate) fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, Error> {
    let Some(key) = key else {
        return Ok(item);
    };
    let map = as_map(item)?;
    map.get(key).ok_or_else(|| Error::MergeKey { item: excerpt(item), key: key.to_owned() })
}

/// The beginning of a value as JSON, for messages.
pub(crate) fn excerpt(value: &Value) -> String {
    const CHARS_MAX: usize = 200;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

pub(crate) fn as_map(item: &Value) -> Result<&Map, Error> {
    item.as_object().ok_or_else(|| Error::expected("object", item))
}

pub(crate) fn as_list(value: &Value) -> Result<&[Value], Error> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| Error::expected("array", value))
}

/// The positions of the items of a list, by identity.
pub(crate) struct Places(BTreeMap<Literal, usize>);

impl Places {
    /// The first of several items with the same identity counts; items without one are skipped.
    pub(crate) fn of(list: &[Value], key: Option<&str>) -> Places {
        let mut places = BTreeMap::new();
        for (place, item) in list.iter().enumerate() {
            if let Ok(identity) = identity(item, key) {
                places.entry(Literal(identity.clone())).or_insert(place);
            }
        }
        Places(places)
    }

    pub(crate) fn get(&self, identity: &Value) -> Option<usize> {
        self.0.get(&Literal(identity.clone())).copied()
    }

    pub(crate) fn has(&self, identity: &Value) -> bool {
        self.get(identity).is_some()
    }

    pub(crate) fn insert(&mut self, identity: &Value, place: usize) {
        self.0.insert(Literal(identity.clone()), place);
    }
}

/// Sorts a merged list: the items of `patch_order` in its order, the others in the order of `live_order`. An item of
/// the others comes before one of the first if it does in the live list.
///
/// # Errors
/// When an item of the list or of an order has no identity.
pub(crate) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    live_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Error> {
    for item in patch_order.iter().chain(live_order) {
        identity(item, key)?;
    }
    let (patch_places, live_places) = (Places::of(patch_order, key), Places::of(live_order, key));
    let mut patched = Vec::with_capacity(merged.len());
    let mut others = Vec::new();
    for item in merged {
        // A new item whose key is null in the patch has lost it, as it has lost its other nulls.
        let wanted = identity(&item, key).unwrap_or(&Value::Null);
        let (in_patch, in_live) = (patch_places.get(wanted), live_places.get(wanted));
        // Deletions, which only patches contain, come last.
        let is_deletion = item.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
        match in_patch {
            Some(_) => patched.push((is_deletion, in_patch, in_live, item)),
            None => others.push((is_deletion, in_live, in_live, item)),
        }
    }
    patched.sort_by_key(|(is_deletion, place, ..)| (*is_deletion, *place));
    others.sort_by_key(|(is_deletion, place, ..)| (*is_deletion, *place));

    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, _, in_live, item) in patched {
        let stood_before = |other: &(bool, Option<usize>, Option<usize>, Value)| match (other.2, in_live) {
            (Some(other), Some(this)) => other < this,
            _ => false,
        };
        while let Some((.., other)) = others.next_if(stood_before) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(.., item)| item));
    Ok(arranged)
}
