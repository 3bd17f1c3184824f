//! Table cells that many kinds have.

use crate::builtin::rules::age;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::at;

pub const NONE: &str = "<none>";

/// The object's name.
pub fn name(object: &Value) -> Value {
    text(object, &["metadata", "name"])
}

/// The age of the object.
pub fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(age::since(at(object, &["metadata", "creationTimestamp"]).unwrap_or(&Value::Null), now))
}

/// The string at a path, empty where there is none.
pub fn text(object: &Value, path: &[&str]) -> Value {
    Value::from(at(object, path).and_then(Value::as_str).unwrap_or_default())
}

/// The number at a path, zero where there is none.
pub fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

/// The first few of a list of strings, joined by commas, with the number of those that are left out.
pub fn some_of(texts: &[String], shown_max: usize) -> String {
    match texts.len().checked_sub(shown_max) {
        None | Some(0) => texts.join(","),
        Some(more) => format!("{} + {more} more...", texts[..shown_max].join(",")),
    }
}

/// The total number of entries of the maps and lists at some paths.
pub fn count(object: &Value, paths: &[&[&str]]) -> Value {
    let entries = |path: &&[&str]| match at(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    };
    Value::from(paths.iter().map(entries).sum::<usize>())
}

/// The names and the images of a pod spec's containers, each joined by commas.
pub fn containers(pod_spec: Option<&Value>) -> (Value, Value) {
    let list = pod_spec.and_then(|spec| spec.get("containers")).and_then(Value::as_array);
    let join = |field: &str| {
        let texts = list.into_iter().flatten().map(|container| container.get(field).and_then(Value::as_str));
        Value::from(texts.map(Option::unwrap_or_default).collect::<Vec<&str>>().join(","))
    };
    (join("name"), join("image"))
}
