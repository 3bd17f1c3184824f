//! Strategic merge patches of built-in kinds: the patch computed from two objects turns one into the other.

use steersman_machinery::budget::Budget;
use crate::input::{self, Draw};
use crate::kinds;
use serde_json::Value;
use steersman_schema::{Schema, decode, mutation, strategic};

pub fn run(data: &[u8]) {
    let (schema, trees) = match Draw::of(data) {
        Some(mut draw) => {
            let (_, schema) = kinds::kind(&mut draw);
            let object = |draw: &mut Draw<'_>| {
                let drawn = draw.fitting(schema, 0);
                if draw.once_in(4) { drawn } else { normal(schema, drawn) }
            };
            (schema, [object(&mut draw), object(&mut draw), object(&mut draw)])
        }
        None => {
            let mut trees = input::documents(data).into_iter().filter_map(input::tree);
            let Some(first) = trees.next() else { return };
            let Some(schema) = kinds::find(&first) else { return };
            let Some(second) = trees.next() else { return };
            (schema, [first, second, trees.next().unwrap_or(Value::Null)])
        }
    };
    let [old, new, other] = trees;
    // A client may send any tree as a patch.
    let _ = strategic::apply(schema, old.clone(), other.clone());
    let _ = mutation::apply(schema, &old, &other, &Budget::default());
    let _ = strategic::create_three_way(schema, &old, &new, &other);
    let Ok(patch) = strategic::create_two_way(schema, &old, &new) else { return };
    let Ok(made) = strategic::apply(schema, old.clone(), patch.clone()) else { return };
    if is_plain(schema, &old) && is_plain(schema, &new) {
        assert_eq!(made, new, "{old} with {patch}");
    }
}

/// The decoded object, if it can be decoded.
fn normal(schema: &Schema, object: Value) -> Value {
    decode::from_value(schema, &object, &Budget::unlimited()).map_or(object, |decoded| decoded.value)
}

/// Whether a patch can express the object: no nulls, no directives, and no duplicate item in a list with a merge key.
fn is_plain(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(items) => {
            let merge = schema.target().patch().filter(|patch| patch.merge);
            let identities: Vec<String> = items
                .iter()
                .map(|item| match merge.and_then(|patch| patch.merge_key.as_deref()) {
                    Some(key) => item[key].to_string(),
                    None => item.to_string(),
                })
                .collect();
            let mut unique = identities.clone();
            unique.sort();
            unique.dedup();
            let item = schema.item().cloned().unwrap_or_default();
            (merge.is_none() || unique.len() == items.len()) && items.iter().all(|value| is_plain(&item, value))
        }
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            let field = schema.field(name).cloned().unwrap_or_default();
            !name.starts_with('$') && is_plain(&field, value)
        }),
    }
}
