//! The document of version 2 in protobuf, which kubectl requests for a kind that it does not find elsewhere.
//!
//! The messages are those of gnostic's `openapiv2/OpenAPIv2.proto`; fields that our documents do not have are omitted.
//! Extensions are YAML text, and JSON is YAML.

use crate::http::documents::openapi::print::{self, Contents};
use serde_json::{Map, Value};

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

/// The document of version 2 as a `Document` message. Its paths and definitions are read from their JSON one by one: a tree
/// of all of them would take ten times their size.
pub(super) fn document(contents: &Contents<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let mut message = Message::default();
    message.bytes(1, b"2.0");
    message.message(2, info(&print::info()));
    let mut paths = Message::default();
    for (path, item) in &contents.paths {
        paths.message(2, named(path, path_item(&serde_json::from_slice(item)?)));
    }
    message.message(8, paths);
    let mut definitions = Message::default();
    for (name, definition) in &contents.definitions {
        definitions.message(1, named(name, schema(&serde_json::from_slice(definition)?)));
    }
    message.message(9, definitions);
    message.message(12, only(1, named("BearerToken", Message::default())));
    let mut key = Message::default();
    let token = print::bearer_token();
    ["type", "name", "in", "description"].into_iter().zip(1..).for_each(|(word, field)| key.text(field, &token, word));
    message.message(13, only(1, named("BearerToken", only(2, key))));
    Ok(message.0)
}

fn info(json: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, json, "title");
    message.text(2, json, "version");
    message
}

fn path_item(json: &Value) -> Message {
    let mut message = Message::default();
    for (method, field) in
        [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("options", 6), ("head", 7), ("patch", 8)]
    {
        if let Some(one) = json.get(method) {
            message.message(field, operation(one));
        }
    }
    items(json, "parameters").for_each(|one| message.message(9, parameter(one)));
    message
}

fn operation(json: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, json, "tags");
    message.text(3, json, "description");
    message.text(5, json, "operationId");
    message.texts(6, json, "produces");
    message.texts(7, json, "consumes");
    items(json, "parameters").for_each(|one| message.message(8, parameter(one)));
    let mut responses = Message::default();
    each(json, "responses", |code, response| {
        let mut one = Message::default();
        one.text(1, response, "description");
        if let Some(answer) = response.get("schema") {
            one.message(2, only(1, schema(answer)));
        }
        responses.message(1, named(code, only(1, one)));
    });
    message.message(9, responses);
    message.texts(10, json, "schemes");
    message.extensions(13, json);
    message
}

/// A `ParametersItem`.
fn parameter(json: &Value) -> Message {
    let location = json["in"].as_str().unwrap_or_default();
    if location == "body" {
        let mut body = Message::default();
        body.text(1, json, "description");
        body.text(2, json, "name");
        body.text(3, json, "in");
        body.flag(4, json, "required");
        body.message(5, schema(&json["schema"]));
        return only(1, only(1, body));
    }
    // Parameters of the query have an additional field, which shifts the numbers of the later ones.
    let (kind, shift) = if location == "path" { (4, 0) } else { (3, 1) };
    let mut other = Message::default();
    other.flag(1, json, "required");
    other.text(2, json, "in");
    other.text(3, json, "description");
    other.text(4, json, "name");
    other.text(5 + shift, json, "type");
    other.text(6 + shift, json, "format");
    other.flag(19 + shift, json, "uniqueItems");
    only(1, only(2, only(kind, other)))
}

fn schema(json: &Value) -> Message {
    let mut message = Message::default();
    ["$ref", "format", "title", "description"]
        .into_iter()
        .zip(1..)
        .for_each(|(key, field)| message.text(field, json, key));
    message.any(5, json.get("default"));
    message.double(6, json, "multipleOf");
    message.double(7, json, "maximum");
    message.flag(8, json, "exclusiveMaximum");
    message.double(9, json, "minimum");
    message.flag(10, json, "exclusiveMinimum");
    message.count(11, json, "maxLength");
    message.count(12, json, "minLength");
    message.text(13, json, "pattern");
    message.count(14, json, "maxItems");
    message.count(15, json, "minItems");
    message.flag(16, json, "uniqueItems");
    message.count(17, json, "maxProperties");
    message.count(18, json, "minProperties");
    message.texts(19, json, "required");
    items(json, "enum").for_each(|value| message.any(20, Some(value)));
    match json.get("additionalProperties") {
        // A oneof: `false` must be written to select its variant.
        Some(Value::Bool(flag)) => {
            let mut either = Message::default();
            either.key(2, VARINT);
            either.varint(u64::from(*flag));
            message.message(21, either);
        }
        Some(values) => message.message(21, only(1, schema(values))),
        None => {}
    }
    if let Some(kind) = json.get("type").and_then(Value::as_str) {
        let mut types = Message::default();
        types.bytes(1, kind.as_bytes());
        message.message(22, types);
    }
    if let Some(item) = json.get("items") {
        message.message(23, only(1, schema(item)));
    }
    items(json, "allOf").for_each(|one| message.message(24, schema(one)));
    if json.get("properties").is_some() {
        let mut properties = Message::default();
        each(json, "properties", |name, property| properties.message(1, named(name, schema(property))));
        message.message(25, properties);
    }
    message.any(30, json.get("example"));
    message.extensions(31, json);
    message
}

// === reading JSON ===

fn items<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    json.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn each<'a>(json: &'a Value, key: &str, mut visit: impl FnMut(&'a str, &'a Value)) {
    let fields = json.get(key).and_then(Value::as_object).into_iter().flatten();
    fields.for_each(|(name, value)| visit(name, value));
}

// === writing messages ===

/// A name with a value.
fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes());
    message.message(2, value);
    message
}

/// A message with a single message in it.
fn only(field: u64, inner: Message) -> Message {
    let mut message = Message::default();
    message.message(field, inner);
    message
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, inner: Message) {
        self.bytes(field, &inner.0);
    }

    fn text(&mut self, field: u64, json: &Value, key: &str) {
        let text = json.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.into_iter().for_each(|text| self.bytes(field, text.as_bytes()));
    }

    fn texts(&mut self, field: u64, json: &Value, key: &str) {
        items(json, key).filter_map(Value::as_str).for_each(|text| self.bytes(field, text.as_bytes()));
    }

    fn flag(&mut self, field: u64, json: &Value, key: &str) {
        if json.get(key) == Some(&Value::Bool(true)) {
            self.key(field, VARINT);
            self.varint(1);
        }
    }

    fn count(&mut self, field: u64, json: &Value, key: &str) {
        if let Some(count) = json.get(key).and_then(Value::as_u64).filter(|count| *count > 0) {
            self.key(field, VARINT);
            self.varint(count);
        }
    }

    fn double(&mut self, field: u64, json: &Value, key: &str) {
        if let Some(number) = json.get(key).and_then(Value::as_f64).filter(|number| *number != 0.0) {
            self.key(field, FIXED_64);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A value of any shape.
    fn any(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(field, any);
        }
    }

    fn extensions(&mut self, field: u64, json: &Value) {
        let none = Map::new();
        let fields = json.as_object().unwrap_or(&none);
        for (name, value) in fields.iter().filter(|(name, _)| name.starts_with("x-")) {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(field, named(name, any));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A message as text: fields by number, with nested messages expanded where the bytes look like one.
    fn show(mut bytes: &[u8], depth: usize, out: &mut String) -> Option<()> {
        fn varint(bytes: &mut &[u8]) -> Option<u64> {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let (first, rest) = bytes.split_first()?;
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    return Some(value);
                }
            }
            None
        }
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let pad = " ".repeat(depth);
            match key & 7 {
                VARINT => *out += &format!("{pad}{}: {}\n", key >> 3, varint(&mut bytes)?),
                FIXED_64 => {
                    let (number, rest) = bytes.split_at_checked(8)?;
                    *out += &format!("{pad}{}: {}\n", key >> 3, f64::from_le_bytes(number.try_into().ok()?));
                    bytes = rest;
                }
                LENGTH_DELIMITED => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (inner, rest) = bytes.split_at_checked(length)?;
                    let mut opened = String::new();
                    let is_text =
                        inner.first().is_some_and(|first| *first >= b' ') && std::str::from_utf8(inner).is_ok();
                    match is_text || show(inner, depth + 1, &mut opened).is_none() {
                        true => *out += &format!("{pad}{}: {}\n", key >> 3, String::from_utf8_lossy(inner)),
                        false => *out += &format!("{pad}{}\n{opened}", key >> 3),
                    }
                    bytes = rest;
                }
                _ => return None,
            }
        }
        Some(())
    }

    #[test]
    fn an_operation_is_found_with_its_kind_and_parameters() {
        let json = json!({
            "parameters": [{"name": "name", "in": "path", "required": true, "type": "string", "uniqueItems": true}],
            "patch": {
                "operationId": "patchA", "x-kubernetes-group-version-kind": {"kind": "A"},
                "parameters": [
                    {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/A"}},
                    {"name": "fieldValidation", "in": "query", "type": "string", "uniqueItems": true},
                ],
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}},
            },
        });
        let paths = vec![("/a/{name}", json.to_string().into())];
        let mut shown = String::new();
        show(&document(&Contents { paths, definitions: BTreeMap::new() }).unwrap(), 0, &mut shown).unwrap();
        expect_test::expect![[r#"
            1: 2.0
            2
             1: Kubernetes
             2: v1.36.2
            8
             2
              1: /a/{name}
              2
               8
                5: patchA
                8
                 1
                  1
                   2: body
                   3: body
                   4: 1
                   5
                    1: #/definitions/A
                8
                 1
                  2
                   3
                    2: query
                    4: fieldValidation
                    6: string
                    20: 1
                9
                 1
                  1: 200
                  2
                   1
                    1: OK
                    2
                     1
                      1: #/definitions/A
                13
                 1: x-kubernetes-group-version-kind
                 2
                  2: {"kind":"A"}
               9
                1
                 2
                  4
                   1: 1
                   2: path
                   4: name
                   5: string
                   19: 1
            9
            12
             1
              1: BearerToken
              2
            13
             1
              1: BearerToken
              2
               2
                1: apiKey
                2: authorization
                3: header
                4: A bearer token.
        "#]]
        .assert_eq(&shown);
    }

    #[test]
    fn a_schema_keeps_what_it_says() {
        let json = json!({
            "type": "object", "required": ["a"], "additionalProperties": false, "default": {}, "x-odd": [1],
            "properties": {"a": {"type": "number", "minimum": 1.5, "maxLength": 300, "enum": ["x"]}},
        });
        let mut shown = String::new();
        show(&schema(&json).0, 0, &mut shown).unwrap();
        expect_test::expect![[r#"
            5
             2: {}
            19: a
            21
             2: 0
            22
             1: object
            25
             1
              1: a
              2
               9: 1.5
               11: 300
               20
                2: "x"
               22
                1: number
            31
             1: x-odd
             2
              2: [1]
        "#]]
        .assert_eq(&shown);
    }

    proptest::proptest! {
        #[test]
        fn every_schema_makes_a_message(bounds in proptest::collection::vec((0_usize..8, -3_i64..70_000), 0..6), depth in 0_usize..4) {
            let keys = ["minimum", "maximum", "maxLength", "minItems", "multipleOf", "enum", "required", "format"];
            let mut json = json!({"type": "string"});
            for (key, value) in bounds {
                json[keys[key]] = json!(value);
            }
            for _ in 0..depth {
                json = json!({"items": json, "additionalProperties": true, "properties": {"a": json, "": {}}});
            }
            proptest::prop_assert!(show(&schema(&json).0, 0, &mut String::new()).is_some());
        }
    }
}
