//! The tree form of an object, which exists only inside one write request, and helpers for it.
//!
//! `serde_json::Value` takes about eleven times the bytes of its JSON, so stores and caches hold bytes instead (see
//! [`crate::Object`]).

/// The tree form of a JSON value. Objects keep their keys sorted, which is the order Kubernetes prints.
pub type Value = serde_json::Value;

/// The tree form of a JSON object.
pub type Map = serde_json::Map<String, Value>;

/// The string at a path of keys, if every key exists and the value is a string.
pub fn str_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path)?.as_str()
}

/// The value at a path of keys, if every key exists.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.as_object()?.get(*key))
}

/// The object at a path of keys, created (with its parents) where it is absent or null.
///
/// `None` if a value on the path is neither an object nor null.
pub fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map> {
    let mut here = value;
    for key in path {
        here = here.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
    }
    here.as_object_mut()
}

/// Sets the value at a path of keys; false if a value on the path is not an object.
pub fn set_at(value: &mut Value, path: &[&str], new: Value) -> bool {
    let Some((last, way)) = path.split_last() else {
        *value = new;
        return true;
    };
    match object_at(value, way) {
        Some(object) => {
            object.insert((*last).to_owned(), new);
            true
        }
        None => false,
    }
}

/// Sets a field that is absent or null.
pub fn unless_set(object: &mut Map, name: &str, value: impl Into<Value>) {
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = value.into();
    }
}

/// Removes the value at a path of keys and returns it.
pub fn remove_at(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut here = value;
    for key in way {
        here = here.as_object_mut()?.get_mut(*key)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// Converts every whole floating-point number to an integer, as Go prints it: `5.0` and `1e3` become `5` and `1000`.
pub fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64()) {
                let whole = float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0;
                if whole {
                    *value = Value::from(float as i64);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The depth of nested objects and lists: zero for a value that is neither.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The JSON name of a value's type, as validation messages print it; `integer` and `number` are distinguished.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_reach_make_and_take() {
        let mut value = json!({"a": {"b": "c"}});
        assert_eq!(str_at(&value, &["a", "b"]), Some("c"));
        assert!(set_at(&mut value, &["x", "y"], json!(1)));
        assert!(!set_at(&mut value, &["a", "b", "z"], json!(1)));
        assert_eq!(remove_at(&mut value, &["a", "b"]), Some(json!("c")));
        assert_eq!(value, json!({"a": {}, "x": {"y": 1}}));
    }

    #[test]
    fn depth_counts_objects_and_lists() {
        assert_eq!([json!(1), json!([]), json!({"a": [1, {"b": 2}], "c": {}})].map(|value| depth(&value)), [0, 1, 3]);
    }

    #[test]
    fn whole_floats_become_integers() {
        let mut value = json!({"a": 5.0, "b": [1e3, 1.5, -2.0], "c": 1e300});
        normalize_numbers(&mut value);
        assert_eq!(value.to_string(), r#"{"a":5,"b":[1000,1.5,-2],"c":1e+300}"#);
    }
}
