//! Turns a target's bytes into its input: several documents, or trees generated from the bytes.
//!
//! A handwritten seed is text: documents with lines of `%%` between them. An input whose first byte is above 127 is
//! used to generate trees instead: each byte decides a step of a generator that follows a schema, so that nearly every
//! mutation of the fuzzer is another valid tree.

use serde_json::{Map, Number, Value, json};
use steersman_machinery::budget::Budget;
use steersman_schema::Schema;
use steersman_schema::schema::{Additional, Special, Type};

/// The greatest depth of generated trees.
const DEPTH_MAX: usize = 12;
/// Texts that are special to many readers.
const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "c",
    "name",
    "value",
    "1",
    "0",
    "-1",
    "80",
    "http",
    "TCP",
    "1Gi",
    "100m",
    "10s",
    "50%",
    "v1",
    "Always",
    "2020-02-29T01:02:03Z",
    "2020-02-29T01:02:03.123456Z",
    "example.com/a",
    "kubernetes.io/os",
    "10.0.0.1",
    "::1/64",
    "YWJj",
    "$patch",
    "replace",
    "delete",
    "merge",
    "a.b-c",
    "\u{fc}\u{1f600}",
    "*/5 * * * *",
    "/var/a",
    "../b",
    "Exists",
];
/// Keys of maps.
const KEYS: &[&str] =
    &["a", "b", "c", "example.com/a", "$patch", "$retainKeys", "f:a", "kubernetes.io/os", "", "cpu", "memory", "a.b"];

/// The documents of a text, separated by lines of `%%`.
pub fn documents(data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(4).position(|window| window == b"\n%%\n") {
        parts.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    parts.push(rest);
    parts
}

/// A document as a tree, if it is not nested deeper than the server reads.
pub fn tree(json: &[u8]) -> Option<Value> {
    steersman_schema::decode::document(json, &Budget::unlimited()).ok().map(|decoded| decoded.value)
}

/// A document as text, without the line break at its end.
pub fn text(document: &[u8]) -> Option<&str> {
    std::str::from_utf8(document.strip_suffix(b"\n").unwrap_or(document)).ok()
}

/// Generates trees from bytes; when they are used up, every choice is the first one.
#[derive(Debug)]
pub struct Draw<'d>(&'d [u8]);

impl<'d> Draw<'d> {
    /// A generator for an input whose first byte is above 127.
    pub fn of(data: &'d [u8]) -> Option<Draw<'d>> {
        data.split_first().filter(|(first, _)| **first > 127).map(|(_, rest)| Draw(rest))
    }

    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `count`, or zero if `count` is zero.
    pub fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % count,
            _ => (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count,
        }
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A special text, or a few bytes of the input.
    pub fn text(&mut self) -> String {
        if !self.once_in(8) {
            return self.choose(TEXTS).to_owned();
        }
        let length = self.below(24).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn number(&mut self) -> Value {
        match self.below(8) {
            0 | 1 => json!(self.below(4)),
            2 => json!(-(self.below(200) as i64)),
            3 => json!(self.below(65_536)),
            4 => json!(i64::from(self.byte()) << 56 | i64::from(self.byte())),
            5 => json!(i64::MAX - self.below(3) as i64),
            6 => json!(u64::MAX - self.below(3) as u64),
            _ => Number::from_f64(f64::from(self.byte()) / 8.0).map_or(Value::Null, Value::Number),
        }
    }

    /// A random tree.
    pub fn any(&mut self, depth: usize) -> Value {
        match self.below(if depth < DEPTH_MAX { 8 } else { 5 }) {
            0 => Value::Null,
            1 => json!(self.once_in(2)),
            2 => self.number(),
            3 | 4 => json!(self.text()),
            5 => (0..self.below(4)).map(|_| self.any(depth + 1)).collect(),
            _ => {
                let count = self.below(4);
                let entries = (0..count).map(|_| (self.key(), self.any(depth + 1)));
                Value::Object(entries.collect())
            }
        }
    }

    fn key(&mut self) -> String {
        if self.once_in(6) { self.text() } else { self.choose(KEYS).to_owned() }
    }

    /// A tree that mostly fits a schema.
    pub fn fitting(&mut self, schema: &Schema, depth: usize) -> Value {
        let schema = schema.target();
        if self.once_in(24) || depth >= DEPTH_MAX {
            return self.any(depth);
        }
        if !schema.enumeration.is_empty() && !self.once_in(6) {
            return schema.enumeration[self.below(schema.enumeration.len())].clone();
        }
        match schema.special {
            Some(Special::Bytes) => return json!(["", "YWJj", "YQ=="][self.below(3)]),
            Some(Special::IntOrString) => return if self.once_in(2) { json!(self.text()) } else { self.number() },
            Some(Special::Quantity) => return json!(["0", "1", "100m", "1Gi", "1.5e3", "-1"][self.below(6)]),
            Some(Special::Time | Special::MicroTime) => {
                return [json!("2020-02-29T01:02:03Z"), json!("2020-02-29T01:02:03.123456Z"), Value::Null]
                    [self.below(3)]
                .clone();
            }
            Some(Special::Json | Special::RawExtension | Special::FieldsV1) => return self.any(depth + 1),
            None => {}
        }
        match schema.value_type() {
            Type::Any => self.any(depth + 1),
            Type::Boolean => json!(!self.once_in(2)),
            Type::Integer | Type::Number => self.number(),
            Type::IntOrString => {
                if self.once_in(2) {
                    json!(self.text())
                } else {
                    self.number()
                }
            }
            Type::String => json!(self.text()),
            Type::Array => {
                let count = self.below(4);
                let items = (0..count).map(|_| match schema.item() {
                    Some(item) => self.fitting(item, depth + 1),
                    None => self.any(depth + 1),
                });
                items.collect()
            }
            Type::Object => self.object(schema, depth),
        }
    }

    fn object(&mut self, schema: &Schema, depth: usize) -> Value {
        let mut fields = Map::new();
        for name in &schema.required {
            if let Some(property) = schema.property(name)
                && !self.once_in(12)
            {
                fields.insert(name.to_string(), self.fitting(property, depth + 1));
            }
        }
        let n_properties = schema.properties.iter().len();
        let most = if depth == 0 { 4 } else { 3 };
        for _ in 0..if n_properties > 0 { 1 + self.below(most) } else { 0 } {
            let at = self.below(n_properties);
            if let Some((name, property)) = schema.properties.iter().nth(at) {
                fields.insert(name.to_owned(), self.fitting(property, depth + 1));
            }
        }
        if let Additional::Of(values) = &schema.additional {
            for _ in 0..self.below(4) {
                fields.insert(self.key(), self.fitting(values, depth + 1));
            }
        }
        if self.once_in(16) || schema.preserve_unknown_fields {
            fields.insert(self.key(), self.any(depth + 1));
        }
        Value::Object(fields)
    }
}
