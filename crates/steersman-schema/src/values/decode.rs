//! Decodes a body by the schema of its kind, in one pass over the bytes of a JSON document or over a tree.
//!
//! Unknown and duplicate fields are dropped and reported in the order of the document. The rest depends on the origin
//! of the kind. [`built_in`] decodes like Go's typed decoding: null is absent; quantities, times and bytes are checked
//! and converted to their canonical text; fields that `omitempty` would drop are dropped, fields that Go always writes
//! are added. [`custom_resource`] decodes metadata, also of embedded resources, in the same way, and leaves the types
//! of all other fields to [`crate::values::validate`]. [`document`] decodes a body without a schema, such as a patch.
//!
//! Each call begins a new tree of the budget, and each value is charged as it is decoded: a body that would become too
//! large is refused before it does.

mod reader;
pub(crate) mod scalar;
mod zero;

use crate::model::schema::{Schema, Special, Zero};
use crate::values::decode::reader::{Shape, read};
use crate::values::decode::zero::{Empties, drop_empty, is_dropped, write_empty};
use std::fmt;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{Value, quantity};

/// The maximum nesting. The stored object, with its `managedFields`, is parsed again by parsers that stop at 128.
pub const DEPTH_MAX: usize = 100;

/// Further errors of one body are not reported: they are for people to read.
pub const FAULTS_MAX: usize = 100;

/// A body to decode.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// The bytes of a JSON document.
    Json(&'a [u8]),
    /// A tree that was decoded from another format, or the result of a patch.
    Tree(Value),
}

/// The treatment of fields of a custom resource that its schema does not define.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unknown {
    Keep,
    /// They are dropped, except where the schema itself preserves them.
    Prune,
}

/// A decoded body, with the fields that were dropped from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value without the dropped fields, as Go would write it.
    pub value: Value,
    /// The errors that strict validation reports, in the order of the document.
    pub faults: Vec<Fault>,
}

/// A dropped field, which is an error under strict validation. [`fmt::Display`] gives the text of warnings and errors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The path of a duplicate field. The later value counts.
    Duplicate(String),
    /// The path of an unknown field.
    Unknown(String),
}

/// Why a body could not be decoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The value would be too large, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    #[error("illegal base64 data at input byte {offset}")]
    Base64 { path: String, offset: usize },
    #[error("{source}")]
    Quantity { path: String, source: quantity::ParseError },
    #[error("{path} must be a whole number from {min} to {max}, not {number}")]
    Range { path: String, number: String, min: i64, max: i64 },
    /// Not JSON or YAML.
    #[error("{detail}")]
    Syntax { detail: String },
    #[error("the object is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("{path} must be a time such as {example}, not {text:?}")]
    Time { path: String, text: String, example: &'static str },
    #[error("{path} must be {expected}, not {found}")]
    Type { path: String, expected: &'static str, found: String },
}

/// Decodes an object of a built-in kind.
///
/// # Errors
/// When it is not JSON, or too large, or a value has the wrong type.
pub fn built_in(schema: &Schema, body: Body<'_>, budget: &Budget) -> Result<Decoded, Error> {
    read_body(Shape::Typed(schema), body, budget)
}

/// Decodes a custom resource.
///
/// # Errors
/// When it is not JSON, or too large, or its metadata, or that of an embedded resource, is not an ObjectMeta.
pub fn custom_resource(schema: &Schema, unknown: Unknown, body: Body<'_>, budget: &Budget) -> Result<Decoded, Error> {
    read_body(Shape::resource(schema, unknown), body, budget)
}

/// Decodes a JSON document without a schema: every field is kept, and duplicate fields are reported.
///
/// # Errors
/// When it is not JSON, or too large.
pub fn document(json: &[u8], budget: &Budget) -> Result<Decoded, Error> {
    read_body(Shape::Any, Body::Json(json), budget)
}

/// Decodes a tree, which the caller keeps, as an object of a built-in kind.
///
/// # Errors
/// When a value has the wrong type, or it is too large.
pub fn from_value(schema: &Schema, value: &Value, budget: &Budget) -> Result<Decoded, Error> {
    budget.begin_tree();
    read(Shape::Typed(schema), value, budget)
}

/// Brings an object into the form that Go would write: empty values are dropped or written according to their fields'
/// tags.
///
/// Decoding does so already, except that it keeps empty lists and maps inside lists until the object is stored. It is
/// idempotent.
pub fn normalize(schema: &Schema, value: &mut Value) {
    rewrite(schema, value, EmptyLists::Kept);
}

/// Brings an object into the form in which it is read from a store in protobuf, which does not tell an empty list from an
/// absent one, nor null from no bytes: as [`normalize`], and empty lists that are always written become null, and null among
/// bytes an empty text. It is idempotent.
pub fn normalize_stored(schema: &Schema, value: &mut Value) {
    rewrite(schema, value, EmptyLists::Null);
}

/// The form of empty lists that are always written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EmptyLists {
    Kept,
    Null,
}

/// One pass over the object: it is made for every write, so each field is looked up in its schema once.
fn rewrite(schema: &Schema, value: &mut Value, empty_lists: EmptyLists) {
    let schema = schema.target();
    match value {
        Value::Array(items) => {
            if let Some(item) = schema.item() {
                items.iter_mut().for_each(|each| rewrite(item, each, empty_lists));
            }
        }
        Value::Object(fields) if !is_opaque(schema) => {
            let is_struct = schema.values().is_none();
            let mut has_dropped = false;
            for (name, value) in fields.iter_mut() {
                let Some(field) = schema.field(name) else { continue };
                rewrite(field, value, empty_lists);
                if empty_lists == EmptyLists::Null {
                    if field.zero == Zero::Null && value.as_array().is_some_and(Vec::is_empty) {
                        *value = Value::Null;
                    } else if !is_struct && value.is_null() && field.special() == Some(Special::Bytes) {
                        *value = Value::from("");
                    }
                }
                has_dropped |= is_struct && is_dropped(field, name, value, Empties::Dropped);
            }
            if has_dropped {
                drop_empty(schema, fields, Empties::Dropped);
            }
            write_empty(schema, fields);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

/// Decodes a JSON document that becomes a part of the tree that is being built.
///
/// # Errors
/// When it is not JSON, or the tree becomes too large.
pub fn part(json: &[u8], budget: &Budget) -> Result<Value, Error> {
    Ok(read_whole(Shape::Any, Body::Json(json), budget)?.value)
}

fn read_body(shape: Shape<'_>, body: Body<'_>, budget: &Budget) -> Result<Decoded, Error> {
    budget.begin_tree();
    read_whole(shape, body, budget)
}

fn read_whole(shape: Shape<'_>, body: Body<'_>, budget: &Budget) -> Result<Decoded, Error> {
    let json = match body {
        Body::Json(json) => json,
        Body::Tree(tree) => return read(shape, tree, budget),
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let decoded = read(shape, &mut deserializer, budget)?;
    match deserializer.end() {
        Ok(()) => Ok(decoded),
        Err(_) => Err(Error::Syntax { detail: "there is more behind the end of the JSON value".to_owned() }),
    }
}

/// Whether a value is kept unchanged, because nothing inside has a schema.
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
