//! Protobuf bodies of built-in kinds: written bytes are read as the same object, and other bytes are refused or read.

use steersman_machinery::budget::Budget;
use crate::input::Draw;
use crate::kinds;
use serde_json::{Map, Value};
use steersman_schema::decode;
use steersman_server::fuzzing::{decode_protobuf, encode_protobuf, has_protobuf};

pub fn run(data: &[u8]) {
    if let Some(mut draw) = Draw::of(data) {
        let (gvk, schema, object) = kinds::object(&mut draw);
        let Ok(decoded) = decode::from_value(schema, &object, &Budget::unlimited()) else { return };
        // Without a kind nobody knows the form.
        if has_protobuf(gvk) && decoded.value.get("kind").is_some() {
            let written = encode_protobuf(decoded.value.to_string().as_bytes())
                .unwrap_or_else(|| panic!("no protobuf form of {}", decoded.value));
            let read = decode_protobuf(&written).unwrap_or_else(|error| panic!("{error}: {}", decoded.value));
            let read = decode::from_value(schema, &read, &Budget::unlimited()).unwrap_or_else(|error| panic!("{error}: {read}")).value;
            assert_eq!(plain(read), plain(decoded.value), "it went through protobuf");
        }
        return;
    }
    let Ok(read) = decode_protobuf(data) else {
        // A client may request any JSON in protobuf.
        let _ = encode_protobuf(data);
        return;
    };
    let Some(schema) = kinds::find(&read) else { return };
    let Ok(decoded) = decode::from_value(schema, &read, &Budget::unlimited()) else { return };
    if let Some(written) = encode_protobuf(decoded.value.to_string().as_bytes()) {
        let again: Value = decode_protobuf(&written).unwrap_or_else(|error| panic!("{error}: {}", decoded.value));
        let again = decode::from_value(schema, &again, &Budget::unlimited()).unwrap_or_else(|error| panic!("{error}: {again}"));
        assert_eq!(plain(again.value), plain(decoded.value), "it went through protobuf again");
    }
}

/// The value without the differences that protobuf cannot express: an empty list is the same as none, and items of a
/// list and the options of an eviction have no kind.
fn plain(mut value: Value) -> Value {
    if let Some(options) = value.get_mut("deleteOptions").and_then(Value::as_object_mut) {
        options.remove("apiVersion");
        options.remove("kind");
    }
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
    }
    drop_empty(&mut value);
    value
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| {
                let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
                !value.is_null() && !is_empty
            });
        }
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => {}
    }
}
