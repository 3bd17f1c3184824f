//! Reading a body of a built-in kind as Go's typed decoding does: in one pass over any serde format, against the schema.
//!
//! Unknown and duplicate fields are dropped and told of in the order of the document; null is absent; quantities, times and
//! bytes are checked and take their canonical text; what `omitempty` would not write goes, what Go always writes comes.
//! [`document`] reads a body without a schema, for custom resources.

mod reader;
mod scalar;
mod zero;

use crate::decode::reader::read;
use crate::decode::zero::finish;
use crate::schema::{Schema, Special};
use serde::Deserializer;
use std::fmt;
use steersman_machinery::{Value, quantity};

/// Objects and lists within one another are read no deeper: what is stored, with the record of who owns its fields, must be
/// read again by parsers that stop at 128.
pub const DEPTH_MAX: usize = 100;

/// A body that could be read, and what was dropped from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What remained, as Go would write it.
    pub value: Value,
    /// What a strict reader would refuse, in the order of the document.
    pub faults: Vec<Fault>,
}

/// What a strict reader refuses and others drop. [`fmt::Display`] gives the text of warnings and errors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The path of a field that is there twice; the later one counts.
    Duplicate(String),
    /// The path of a field that the kind does not have.
    Unknown(String),
}

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("illegal base64 data at input byte {offset}")]
    Base64 { path: String, offset: usize },
    #[error("{source}")]
    Quantity { path: String, source: quantity::ParseError },
    #[error("{path} must be a whole number from {min} to {max}, not {number}")]
    Range { path: String, number: String, min: i64, max: i64 },
    /// No JSON or YAML.
    #[error("{detail}")]
    Syntax { detail: String },
    #[error("the object is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("{path} must be a time such as {example}, not {text:?}")]
    Time { path: String, text: String, example: &'static str },
    #[error("{path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: String },
}

/// Reads a JSON body.
///
/// # Errors
/// When it is no JSON, or a value is not what the kind has in its place.
pub fn from_slice(schema: &Schema, json: &[u8]) -> Result<Decoded, Error> {
    read_json(Some(schema), json)
}

/// Reads a JSON body without a schema: everything stays, duplicate fields are told of.
///
/// # Errors
/// When it is no JSON.
pub fn document(json: &[u8]) -> Result<Decoded, Error> {
    read_json(None, json)
}

/// Reads a tree, such as the outcome of a patch.
///
/// # Errors
/// When a value is not what the kind has in its place.
pub fn from_value(schema: &Schema, value: &Value) -> Result<Decoded, Error> {
    from_deserializer(schema, value)
}

/// Reads a body in any format, such as YAML.
///
/// # Errors
/// When the format is broken, or a value is not what the kind has in its place.
pub fn from_deserializer<'de, D: Deserializer<'de>>(schema: &Schema, deserializer: D) -> Result<Decoded, Error> {
    read(Some(schema), deserializer)
}

/// Gives an object the form that Go would write: empty values dropped or written as their fields' tags say.
///
/// Reading does so already; this is for objects that were changed since. Doing it twice changes nothing.
pub fn normalize(schema: &Schema, value: &mut Value) {
    let schema = schema.target();
    match value {
        Value::Array(items) => {
            if let Some(item) = schema.item() {
                items.iter_mut().for_each(|each| normalize(item, each));
            }
        }
        Value::Object(fields) if !is_opaque(schema) => {
            for (name, field) in fields.iter_mut() {
                if let Some(schema) = schema.field(name) {
                    normalize(schema, field);
                }
            }
            finish(schema, fields);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

fn read_json(schema: Option<&Schema>, json: &[u8]) -> Result<Decoded, Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let decoded = read(schema, &mut deserializer)?;
    match deserializer.end() {
        Ok(()) => Ok(decoded),
        Err(_) => Err(Error::Syntax { detail: "there is more behind the end of the JSON value".to_owned() }),
    }
}

/// Kept as it is: nothing inside has a schema.
pub(crate) fn is_opaque(schema: &Schema) -> bool {
    matches!(schema.special, Some(Special::FieldsV1 | Special::Json | Special::RawExtension))
}

// === impl Fault ===

impl Fault {
    /// The path of the field.
    pub fn path(&self) -> &str {
        match self {
            Fault::Duplicate(path) | Fault::Unknown(path) => path,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Duplicate(path) => write!(f, "duplicate field {path:?}"),
            Fault::Unknown(path) => write!(f, "unknown field {path:?}"),
        }
    }
}
