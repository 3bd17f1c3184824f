//! The JSONPath of definitions: a document with the path, one with the object. A simple path reads the value that it
//! sets.

use crate::input;
use serde_json::json;
use steersman_schema::JsonPath;

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(text) = parts.first().and_then(|text| std::str::from_utf8(text).ok()) else { return };
    let Ok(path) = JsonPath::parse(text) else { return };
    assert_eq!(JsonPath::parse(path.as_str()).as_ref(), Ok(&path), "{text:?}");
    let object = parts.get(1).and_then(|json| input::tree(json));
    let mut object = object.unwrap_or_else(|| json!({"a": [{"b": 1, "type": "Ready"}, [2, 3]], "b": {"a": {"a": 4}}}));
    let _ = path.get(&object);
    if path.is_simple() && path.set(&mut object, json!("new")) {
        assert_eq!(path.get(&object), Some(&json!("new")), "{text:?} in {object}");
    }
}
