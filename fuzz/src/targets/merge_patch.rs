//! Merge patches: the patch computed from two objects turns one into the other, and applying it again changes nothing.

use crate::input::{self, Draw};
use serde_json::Value;
use steersman_schema::merge_patch;

pub fn run(data: &[u8]) {
    let (from, to, current) = match Draw::of(data) {
        Some(mut draw) => (draw.any(0), draw.any(0), draw.any(0)),
        None => {
            let mut trees = input::documents(data).into_iter().filter_map(input::tree);
            let Some(from) = trees.next() else { return };
            let Some(to) = trees.next() else { return };
            (from, to, trees.next().unwrap_or(Value::Null))
        }
    };
    if from.is_object() && to.is_object() {
        let patch = merge_patch::create(&from, &to);
        let mut made = from.clone();
        merge_patch::apply(&mut made, &patch);
        if !has_null(&to) {
            assert_eq!(made, to, "{from} with {patch}");
        }
        let once = made.clone();
        merge_patch::apply(&mut made, &patch);
        assert_eq!(made, once, "applying twice is applying once");
        if current.is_object() {
            let patch = merge_patch::create_three_way(&from, &to, &current);
            let mut made = current.clone();
            merge_patch::apply(&mut made, &patch);
        }
    }
    let mut made = from;
    merge_patch::apply(&mut made, &to);
    let once = made.clone();
    merge_patch::apply(&mut made, &to);
    assert_eq!(made, once, "applying twice is applying once");
}

/// Whether a value has a null, which removes a field: no merge patch can set it.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        // Fields with a null are removed from objects in a list too, as upstream does.
        Value::Array(items) => items.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        Value::Object(fields) => fields.values().any(has_null),
    }
}
