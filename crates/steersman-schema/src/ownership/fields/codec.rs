//! FieldsV1: a field set as JSON.
//!
//! `{"f:spec": {"f:ports": {".": {}, "k:{\"port\":80}": {".": {}, "f:name": {}}}}}`. A leaf is `{}`; an entry that is a
//! member itself and has members beneath is marked with `.`. Keys are written sorted, so equal sets have equal bytes.

use crate::ownership::fields::element::{Element, Literal};
use crate::ownership::fields::{Entry, FieldSet, go};
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Why a JSON value is not a field set.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// A key without one of the prefixes of path elements.
    #[error("{0:?} is not a path element: it must begin with `f:`, `k:`, `v:` or `i:`")]
    Element(String),
    /// The rest of the key after `k:`, `v:` or `i:` is invalid.
    #[error("{0:?} is not a path element: an object must follow `k:`, a value `v:`, a number `i:`")]
    Content(String),
    /// A value other than an object.
    #[error("a field set must be an object, not {0}")]
    Type(String),
}

// === impl FieldSet ===

impl FieldSet {
    /// Decodes FieldsV1. Path elements of unknown kinds are skipped: a newer version may have written them.
    ///
    /// # Errors
    /// When the value, or one inside it, is neither an object nor null, or a key is not a path element.
    pub fn from_value(value: &Value) -> Result<FieldSet, ParseError> {
        Ok(read(value)?.beneath)
    }

    /// Encodes FieldsV1.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map())
    }

    fn to_map(&self) -> Map {
        let write = |(element, entry): &(Element, Entry)| {
            let mut beneath = entry.beneath.to_map();
            if entry.member && !beneath.is_empty() {
                beneath.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (write_element(element), Value::Object(beneath))
        };
        self.entries.iter().map(write).collect()
    }
}

/// Decodes one level. An entry with nothing beneath it is a member, whether it is marked or not.
fn read(value: &Value) -> Result<Entry, ParseError> {
    let mut entry = Entry::default();
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Ok(Entry { member: true, ..entry }),
        other => return Err(ParseError::Type(other.to_string())),
    };
    for (key, value) in fields {
        if key == "." {
            entry.member = true;
        } else if let Some(element) = read_element(key)? {
            entry.beneath.entries.push((element, read(value)?));
        }
    }
    // Keys are sorted as texts, and so are elements that are names. Values sort differently; of several keys for one
    // element the last counts.
    if !entry.beneath.entries.iter().all(|(element, _)| matches!(element, Element::Field(_))) {
        entry.beneath.entries.reverse();
        entry.beneath.entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entry.beneath.entries.dedup_by(|(a, _), (b, _)| a == b);
    }
    entry.member |= entry.beneath.is_empty();
    Ok(entry)
}

fn read_element(key: &str) -> Result<Option<Element>, ParseError> {
    let bad = || ParseError::Content(key.to_owned());
    let bytes = key.as_bytes();
    if bytes.get(1) != Some(&b':') {
        return Err(ParseError::Element(key.to_owned()));
    }
    let content = &key[2..];
    Ok(Some(match bytes[0] {
        b'f' => Element::Field(content.to_owned()),
        b'i' => Element::Index(content.parse().map_err(|_| bad())?),
        b'k' => {
            let keys: Map = serde_json::from_str(content).map_err(|_| bad())?;
            Element::Key(keys.into_iter().map(|(name, value)| (name, Literal(value))).collect())
        }
        b'v' => Element::Value(Literal(serde_json::from_str(content).map_err(|_| bad())?)),
        _ => return Ok(None),
    }))
}

fn write_element(element: &Element) -> String {
    match element {
        Element::Field(name) => ["f:", name].concat(),
        Element::Index(index) => format!("i:{index}"),
        Element::Key(keys) => {
            let keys: Map = keys.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
            format!("k:{}", go::json(&Value::Object(keys)))
        }
        Element::Value(value) => format!("v:{}", go::json(&value.0)),
    }
}
