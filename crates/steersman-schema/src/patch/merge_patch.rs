//! JSON Merge Patch (RFC 7386): applied, and computed from two or three states of an object.

use crate::values::decode::{self, Fault};
use steersman_machinery::Value;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::value::Map;

/// A parsed patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The errors that a strict reader reports: duplicate fields.
    pub faults: Vec<Fault>,
    /// The patch: an object.
    pub value: Value,
}

/// Why a patch could not be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The patch is too large, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// The patch is not a JSON object: a bad request.
    #[error("error decoding patch: {detail}")]
    Malformed {
        /// The error of the parser.
        detail: String,
    },
}

/// Parses a patch.
///
/// # Errors
/// When it is not a JSON object, or too large.
pub fn parse(json: &[u8], budget: &Budget) -> Result<Patch, Error> {
    let decoded = decode::document(json, budget).map_err(|error| match error {
        decode::Error::Budget(error) => Error::Budget(error),
        error => Error::Malformed { detail: error.to_string() },
    })?;
    if !decoded.value.is_object() {
        return Err(Error::Malformed { detail: "a merge patch is a JSON object".to_owned() });
    }
    Ok(Patch { faults: decoded.faults, value: decoded.value })
}

/// Merges a patch into an object: null removes a field, objects are merged, everything else is replaced.
pub fn apply(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                if change.is_null() {
                    fields.remove(name);
                    continue;
                }
                match fields.get_mut(name) {
                    Some(field) if !field.is_null() => apply(field, change),
                    _ => {
                        fields.insert(name.clone(), without_nulls(change));
                    }
                }
            }
        }
        (object, patch) => *object = without_nulls(patch),
    }
}

/// Nulls in objects remove fields, and leave nothing where there is none; nulls in lists are values.
fn without_nulls(patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, field)| !field.is_null());
            Value::Object(kept.map(|(name, field)| (name.clone(), without_nulls(field))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => patch.clone(),
    }
}

/// The patch that turns `from` into `to`. A null inside `to` cannot be expressed by a merge patch and is left out.
pub fn create(from: &Value, to: &Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => Value::Object(difference(from, to)),
        _ => to.clone(),
    }
}

/// The patch that applies to `current` the changes between `original` and `modified`.
///
/// Other fields of `current` stay: this is how client-side apply leaves others' fields alone.
pub fn create_three_way(original: &Value, modified: &Value, current: &Value) -> Value {
    let (Value::Object(original), Value::Object(modified), Value::Object(current)) = (original, modified, current)
    else {
        return create(current, modified);
    };
    let mut patch = only(&difference(current, modified), Keep::Changes);
    overlay(&mut patch, only(&difference(original, modified), Keep::Removals));
    Value::Object(patch)
}

fn difference(from: &Map, to: &Map) -> Map {
    let mut patch = Map::new();
    for (name, new) in to {
        match (from.get(name), new) {
            (_, Value::Null) => {}
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                let inner = difference(old, new);
                if !inner.is_empty() {
                    patch.insert(name.clone(), Value::Object(inner));
                }
            }
            (_, new) => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    for (name, old) in from {
        // Where a null stays there is nothing to say.
        let is_gone = to.get(name).is_none_or(|new| new.is_null() && !old.is_null());
        if is_gone {
            patch.insert(name.clone(), Value::Null);
        }
    }
    patch
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Keep {
    Changes,
    Removals,
}

/// The part of a patch that removes fields, or the part that does not.
fn only(patch: &Map, keep: Keep) -> Map {
    let mut kept = Map::new();
    for (name, change) in patch {
        match change {
            Value::Null if keep == Keep::Removals => {
                kept.insert(name.clone(), Value::Null);
            }
            Value::Object(inner) => {
                let was_empty = inner.is_empty();
                let inner = only(inner, keep);
                if !inner.is_empty() || (was_empty && keep == Keep::Changes) {
                    kept.insert(name.clone(), Value::Object(inner));
                }
            }
            Value::Null => {}
            other if keep == Keep::Changes => {
                kept.insert(name.clone(), other.clone());
            }
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    kept
}

/// Combines two patches into one; a field that the first one sets is not removed.
fn overlay(patch: &mut Map, removals: Map) {
    for (name, removal) in removals {
        match (patch.get_mut(&name), removal) {
            (Some(Value::Object(inner)), Value::Object(removals)) => overlay(inner, removals),
            (Some(_), _) => {}
            (None, removal) => {
                patch.insert(name, removal);
            }
        }
    }
}
