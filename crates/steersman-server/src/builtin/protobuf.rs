//! The protobuf form of the built-in kinds: what typed clients, kubectl's `create` commands among them, send.
//!
//! A body is four magic bytes and a `runtime.Unknown` that names the kind and holds its message. Reading it gives the tree
//! that the same object would have as JSON, so that everything after is the same for both. Field numbers come from a table
//! made by `protobuf/generate.py`; what a message does not name is passed over, as protobuf demands.

use crate::builtin::protobuf::reader::{Field, Reader};
use crate::builtin::protobuf::table::{Form, Kind, Message, TABLE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use steersman_machinery::value::Map;
use steersman_machinery::{GroupVersion, Value};
use steersman_schema::Definitions;

mod reader;
mod table;
#[cfg(test)]
mod tests;

const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may be in one another; the deepest kind needs about twenty.
const DEPTH_MAX: usize = 100;

/// Why a body is no object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// Something inside ends too early or has a length it cannot have.
    #[error("the protobuf body is cut off or damaged in {message}")]
    Damaged {
        /// The message in which it was noticed.
        message: String,
    },
    /// The first four bytes are not those of Kubernetes.
    #[error("the body does not begin with the prefix of protobuf bodies, 6b 38 73 00")]
    NoMagic,
    /// A field that holds JSON does not.
    #[error("{message} holds JSON that cannot be read: {reason}")]
    NoJson {
        /// The message.
        message: String,
        /// Why.
        reason: String,
    },
    /// Messages in messages beyond all measure.
    #[error("the protobuf body is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// No built-in kind.
    #[error("no kind {kind:?} of {api_version:?} has a protobuf form")]
    UnknownKind {
        /// As the body names it.
        api_version: String,
        /// As the body names it.
        kind: String,
    },
}

/// Reads a body of the media type `application/vnd.kubernetes.protobuf` as the tree of the object it stands for.
///
/// # Errors
/// When the body is not a protobuf message, or of a kind without a protobuf form.
pub fn decode(body: &[u8]) -> Result<Value, Error> {
    let unknown = body.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, field) in read_all(unknown, "runtime.Unknown")? {
        match (number, field) {
            (1, Field::Bytes(meta)) => {
                for (number, field) in read_all(meta, "runtime.TypeMeta")? {
                    match (number, field) {
                        (1, Field::Bytes(text)) => api_version = String::from_utf8_lossy(text).into_owned(),
                        (2, Field::Bytes(text)) => kind = String::from_utf8_lossy(text).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message = GroupVersion::parse(&api_version)
        .and_then(|version| Definitions::builtin().definition_of(&version.kind(kind.as_str())))
        .and_then(|definition| TABLE.of_definition(definition.name()));
    let Some(message) = message else { return Err(Error::UnknownKind { api_version, kind }) };
    let mut fields = Map::new();
    read_message(message, raw, &mut fields, 0)?;
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    fields.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(fields))
}

/// Reads a message by its name in the table. A message that the table lacks is read as one without fields.
fn read_fields(name: &str, bytes: &[u8], fields: &mut Map, depth: usize) -> Result<(), Error> {
    TABLE.message(name).map_or(Ok(()), |message| read_message(message, bytes, fields, depth))
}

/// Reads a message into the fields of an object.
fn read_message(message: Message, bytes: &[u8], fields: &mut Map, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::TooDeep);
    }
    for (number, field) in read_all(bytes, message.name())? {
        let Some(known) = message.field(number) else { continue };
        if known.name.is_empty() {
            // Part of this object in JSON.
            if let (Kind::Message(inner), Field::Bytes(bytes)) = (known.kind, field) {
                read_fields(inner, bytes, fields, depth + 1)?;
            }
            continue;
        }
        match known.form {
            Form::One => {
                let value = read_value(known.kind, field, depth)?;
                fields.insert(known.name.to_owned(), value);
            }
            Form::List => {
                let items = fields.entry(known.name).or_insert_with(|| Value::Array(Vec::new()));
                let Some(items) = items.as_array_mut() else { continue };
                match (known.kind, field) {
                    // Several numbers in one field.
                    (Kind::Integer | Kind::Truth, Field::Bytes(bytes)) => {
                        for bits in reader::numbers(bytes).ok_or_else(|| damaged(message.name()))? {
                            items.push(read_value(known.kind, Field::Integer(bits), depth)?);
                        }
                    }
                    _ => items.push(read_value(known.kind, field, depth)?),
                }
            }
            Form::Map => {
                let (key, value) = read_entry(known.kind, field, depth, message)?;
                let entries = fields.entry(known.name).or_insert_with(|| Value::Object(Map::new()));
                if let Some(entries) = entries.as_object_mut() {
                    entries.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// An entry of a map is a message of a key and a value.
fn read_entry(kind: Kind, field: Field<'_>, depth: usize, message: Message) -> Result<(String, Value), Error> {
    let Field::Bytes(bytes) = field else { return Err(damaged(message.name())) };
    let mut key = String::new();
    let mut value = None;
    for (number, field) in read_all(bytes, message.name())? {
        match (number, field) {
            (1, Field::Bytes(text)) => key = String::from_utf8_lossy(text).into_owned(),
            (2, field) => value = Some(read_value(kind, field, depth)?),
            _ => {}
        }
    }
    // What is empty may be left out.
    let value = match value {
        Some(value) => value,
        None => read_value(kind, Field::Bytes(&[]), depth)?,
    };
    Ok((key, value))
}

fn read_value(kind: Kind, field: Field<'_>, depth: usize) -> Result<Value, Error> {
    Ok(match (kind, field) {
        (Kind::Text, Field::Bytes(bytes)) => Value::from(String::from_utf8_lossy(bytes)),
        (Kind::Bytes, Field::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
        (Kind::Integer, Field::Integer(bits)) => Value::from(bits.cast_signed()),
        (Kind::Truth, Field::Integer(bits)) => Value::from(bits != 0),
        (Kind::Double, Field::Fixed64(bits)) => Value::from(f64::from_bits(bits)),
        (Kind::Message(name), Field::Bytes(bytes)) => read_named(name, bytes, depth)?,
        _ => return Err(damaged("a field")),
    })
}

/// A message that is an object in JSON, or one of the few that are something else.
fn read_named(name: &str, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let short = name.rsplit('.').next().unwrap_or(name);
    let is_meta = name.starts_with("~apimachinery.");
    match short {
        "IntOrString" if is_meta => int_or_string(bytes),
        "MicroTime" if is_meta => time(bytes, 6),
        "Quantity" if is_meta => Ok(first_text(bytes, name)?.map_or(Value::Null, Value::from)),
        "Time" | "Timestamp" if is_meta => time(bytes, 0),
        "Duration" if is_meta => duration(bytes),
        "FieldsV1" | "RawExtension" if is_meta => raw_json(bytes, name),
        "JSON" => raw_json(bytes, name),
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            either(name, bytes, depth)
        }
        "ExtraValue" | "Verbs" => {
            let mut fields = Map::new();
            read_fields(name, bytes, &mut fields, depth + 1)?;
            Ok(fields.remove("items").unwrap_or_else(|| Value::Array(Vec::new())))
        }
        _ => {
            let mut fields = Map::new();
            read_fields(name, bytes, &mut fields, depth + 1)?;
            Ok(Value::Object(fields))
        }
    }
}

/// Reads a message with a schema, or with something simpler in its place: returns whichever is present.
fn either(name: &str, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let mut fields = Map::new();
    read_fields(name, bytes, &mut fields, depth + 1)?;
    let simpler = ["allows", "jSONSchemas", "property"];
    let simpler = simpler.into_iter().find_map(|name| fields.remove(name));
    Ok(match fields.remove("schema") {
        Some(schema) if !schema.is_null() => schema,
        _ => simpler.unwrap_or(Value::Null),
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for (at, field) in read_all(bytes, "IntOrString")? {
        match (at, field) {
            (1, Field::Integer(bits)) => is_text = bits != 0,
            (2, Field::Integer(bits)) => number = bits.cast_signed(),
            (3, Field::Bytes(bytes)) => text = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    Ok(if is_text { Value::from(text) } else { Value::from(number) })
}

/// RFC 3339 with so many digits of a second; no time at all is null.
fn time(bytes: &[u8], digits: usize) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for (number, field) in read_all(bytes, "Time")? {
        match (number, field) {
            (1, Field::Integer(bits)) => seconds = bits.cast_signed(),
            (2, Field::Integer(bits)) => nanos = i32::try_from(bits.cast_signed()).map_err(|_| damaged("Time"))?,
            _ => {}
        }
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| damaged("Time"))?;
    Ok(Value::from(format!("{time:.digits$}")))
}

/// Go's text of a duration, in seconds.
fn duration(bytes: &[u8]) -> Result<Value, Error> {
    let mut nanos = 0;
    for (number, field) in read_all(bytes, "Duration")? {
        if let (1, Field::Integer(bits)) = (number, field) {
            nanos = bits.cast_signed();
        }
    }
    Ok(Value::from(match nanos % 1_000_000_000 {
        0 => format!("{}s", nanos / 1_000_000_000),
        _ => format!("{nanos}ns"),
    }))
}

/// A message whose first field is JSON as text.
fn raw_json(bytes: &[u8], name: &str) -> Result<Value, Error> {
    let mut raw = &[][..];
    for (number, field) in read_all(bytes, name)? {
        if let (1, Field::Bytes(bytes)) = (number, field) {
            raw = bytes;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let fail = |error: serde_json::Error| Error::NoJson { message: name.to_owned(), reason: error.to_string() };
    serde_json::from_slice(raw).map_err(fail)
}

fn first_text(bytes: &[u8], name: &str) -> Result<Option<String>, Error> {
    let fields = read_all(bytes, name)?;
    Ok(fields.into_iter().find_map(|(number, field)| match (number, field) {
        (1, Field::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }))
}

fn read_all<'a>(bytes: &'a [u8], message: &str) -> Result<Vec<(u32, Field<'a>)>, Error> {
    Reader::new(bytes).collect::<Option<Vec<_>>>().ok_or_else(|| damaged(message))
}

fn damaged(message: &str) -> Error {
    Error::Damaged { message: message.to_owned() }
}
