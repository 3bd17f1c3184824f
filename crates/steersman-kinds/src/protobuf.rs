//! The protobuf form of the built-in kinds, in both directions: what typed clients send, and what they ask for first.
//!
//! A document is four magic bytes and a `runtime.Unknown` that names the kind and holds its message. Reading one gives the tree
//! that the same object would have as JSON, so that everything after is the same for both; writing one transcribes the JSON of an
//! answer. Field numbers come from one table, made by `protobuf/generate.py`; what a message does not name is passed over, as
//! protobuf demands. Custom resources have no protobuf form.

use crate::protobuf::reader::{Field as Read, Reader};
use crate::protobuf::table::{Form, Kind, Message, Reference, TABLE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::borrow::Cow;
use steersman_machinery::budget::{self, Budget, cost};
use steersman_machinery::value::Map;
use steersman_machinery::{GroupVersion, GroupVersionKind, Value, time as times};
use steersman_schema::decode;

mod reader;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod writer;

const MAGIC: &[u8] = b"k8s\0";
/// The fields of `runtime.Unknown`.
const TYPE_META: u32 = 1;
const RAW: u32 = 2;
/// The content encoding and content type of `runtime.Unknown`, both empty: the message is as it is.
const ENVELOPE_END: [u8; 4] = [3 << 3 | 2, 0, 4 << 3 | 2, 0];
/// How deep messages may be in one another; the deepest kind needs about twenty.
const DEPTH_MAX: usize = 100;

/// The JSON that was to be transcribed is not readable, although all that is stored is JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the object is not readable as JSON")]
pub struct NotJson;

/// Why a body is no object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The object would be too large, or the request is given up.
    #[error(transparent)]
    Budget(#[from] budget::Error),
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
    #[error("a field of the protobuf body holds JSON that cannot be read: {reason}")]
    NoJson {
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

/// What is written around the objects of a kind, and how they are written.
#[derive(Clone, Debug)]
pub struct Envelope {
    message: &'static Message,
    /// What comes before the bytes of an object.
    head: Box<[u8]>,
}

/// The kind of a JSON document.
#[derive(Deserialize)]
struct TypeMeta<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

/// Whether a kind has a protobuf form.
pub fn has_form(kind: &GroupVersionKind) -> bool {
    TABLE.of_kind(kind).is_some()
}

/// A JSON document that says of what kind it is; `None` if the kind has no protobuf form.
pub fn document(json: &[u8]) -> Option<Vec<u8>> {
    let meta: TypeMeta<'_> = serde_json::from_slice(json).ok()?;
    // The list of the versions of the core group does not say its own.
    let api_version = if meta.api_version.is_empty() { "v1" } else { &meta.api_version };
    let envelope = Envelope::of(&GroupVersion::parse(api_version)?.kind(meta.kind))?;
    let mut out = Vec::with_capacity(json.len());
    envelope.document(json, &mut out).ok()?;
    Some(out)
}

/// The frame of an event of a watch: its length in four bytes, and a `WatchEvent` with the type and the object.
pub fn frame(word: &str, object: impl FnOnce(&mut Vec<u8>) -> Result<(), NotJson>) -> Result<Vec<u8>, NotJson> {
    const LENGTH_BYTES: usize = 4;
    const EVENT_TYPE: u32 = 1;
    const EVENT_OBJECT: u32 = 2;
    const EXTENSION_RAW: u32 = 1;
    let mut out = vec![0; LENGTH_BYTES];
    writer::bytes(EVENT_TYPE, word.as_bytes(), &mut out);
    writer::delimited(EVENT_OBJECT, &mut out, |out| writer::delimited(EXTENSION_RAW, out, object))?;
    let length = u32::try_from(out.len() - LENGTH_BYTES).map_err(|_| NotJson)?;
    out[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(out)
}

// === impl Envelope ===

impl Envelope {
    /// The envelope of a kind; `None` if it has no protobuf form.
    pub fn of(kind: &GroupVersionKind) -> Option<Envelope> {
        let message = TABLE.of_kind(kind)?;
        let mut head = MAGIC.to_vec();
        writer::delimited(TYPE_META, &mut head, |head| {
            writer::bytes(1, kind.api_version().as_bytes(), head);
            writer::bytes(2, kind.kind.as_bytes(), head);
        });
        Some(Envelope { message, head: head.into() })
    }

    /// Writes an object of the kind as a document.
    ///
    /// # Errors
    /// When it is not readable as JSON.
    pub fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.extend_from_slice(&self.head);
        writer::delimited(RAW, out, |out| writer::write(self.message, json, out))?;
        out.extend_from_slice(&ENVELOPE_END);
        Ok(())
    }

    /// Begins a list with its metadata, when so many bytes of items are to follow.
    ///
    /// # Errors
    /// When the metadata are not readable as JSON.
    pub fn open(&self, metadata: &[u8], items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        let mut list = Vec::new();
        if let Some((number, message)) = self.inner("metadata") {
            writer::delimited(number, &mut list, |out| writer::write(message, metadata, out))?;
        }
        out.extend_from_slice(&self.head);
        writer::head(RAW, list.len() + items_bytes, out);
        out.extend_from_slice(&list);
        Ok(())
    }

    /// Writes an item of a list.
    ///
    /// # Errors
    /// When it is not readable as JSON.
    pub fn item(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        match self.inner("items") {
            Some((number, message)) => writer::delimited(number, out, |out| writer::write(message, json, out)),
            None => Ok(()),
        }
    }

    /// Ends a list.
    pub fn close(out: &mut Vec<u8>) {
        out.extend_from_slice(&ENVELOPE_END);
    }

    /// A field of the list that is a message, or a list of such.
    fn inner(&self, name: &str) -> Option<(u32, &'static Message)> {
        let field = self.message.named(name)?;
        match field.kind {
            Kind::Message(reference) => Some((field.number, TABLE.at(reference))),
            _ => None,
        }
    }
}

// === reading ===

/// Where a body is being read.
#[derive(Clone, Copy)]
struct Place<'b> {
    budget: &'b Budget,
    /// How many messages are around it.
    depth: usize,
}

impl Place<'_> {
    fn inside(self) -> Self {
        Place { depth: self.depth + 1, ..self }
    }
}

/// Reads a body of the media type `application/vnd.kubernetes.protobuf` as the tree of the object it stands for.
///
/// # Errors
/// When it is none, or one of a kind that has no protobuf form.
pub fn decode(body: &[u8], budget: &Budget) -> Result<Value, Error> {
    budget.begin_tree();
    let unknown = body.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, field) in read_all(unknown, "runtime.Unknown")? {
        match (number, field) {
            (1, Read::Bytes(meta)) => {
                for (number, field) in read_all(meta, "runtime.TypeMeta")? {
                    match (number, field) {
                        (1, Read::Bytes(text)) => api_version = String::from_utf8_lossy(text).into_owned(),
                        (2, Read::Bytes(text)) => kind = String::from_utf8_lossy(text).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Read::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message = GroupVersion::parse(&api_version).and_then(|version| TABLE.of_kind(&version.kind(kind.as_str())));
    let Some(message) = message else { return Err(Error::UnknownKind { api_version, kind }) };
    let mut fields = Map::new();
    let place = Place { budget, depth: 0 };
    read_message(message, raw, &mut fields, place)?;
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    fields.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(fields))
}

/// Reads a message into the fields of an object.
fn read_message(message: &Message, bytes: &[u8], fields: &mut Map, place: Place<'_>) -> Result<(), Error> {
    if place.depth > DEPTH_MAX {
        return Err(Error::TooDeep);
    }
    for (number, field) in read_all(bytes, message.name)? {
        let Some(known) = message.numbered(number) else {
            let part = message.parts.iter().find(|part| part.number == number);
            if let (Some(part), Read::Bytes(bytes)) = (part, field) {
                read_message(TABLE.at(part.message), bytes, fields, place.inside())?;
            }
            continue;
        };
        match known.form {
            Form::One => {
                let value = read_value(known.kind, field, place)?;
                place.budget.build(cost::field(known.name, fields.len()))?;
                fields.insert(known.name.to_owned(), value);
            }
            Form::List => {
                if !fields.contains_key(known.name) {
                    place.budget.build(cost::field(known.name, fields.len()))?;
                }
                let items = fields.entry(known.name).or_insert_with(|| Value::Array(Vec::new()));
                let Some(items) = items.as_array_mut() else { continue };
                match (known.kind, field) {
                    // Several numbers in one field.
                    (Kind::Integer | Kind::Truth, Read::Bytes(bytes)) => {
                        for bits in reader::numbers(bytes).ok_or_else(|| damaged(message.name))? {
                            place.budget.build(cost::VALUE)?;
                            items.push(read_value(known.kind, Read::Integer(bits), place)?);
                        }
                    }
                    _ => {
                        place.budget.build(cost::VALUE)?;
                        items.push(read_value(known.kind, field, place)?);
                    }
                }
            }
            Form::Map => {
                let (key, value) = read_entry(known.kind, field, place, message)?;
                let entries = fields.entry(known.name).or_insert_with(|| Value::Object(Map::new()));
                if let Some(entries) = entries.as_object_mut() {
                    place.budget.build(cost::field(&key, entries.len()))?;
                    entries.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// An entry of a map is a message of a key and a value.
fn read_entry(kind: Kind, field: Read<'_>, place: Place<'_>, message: &Message) -> Result<(String, Value), Error> {
    let Read::Bytes(bytes) = field else { return Err(damaged(message.name)) };
    let mut key = String::new();
    let mut value = None;
    for (number, field) in read_all(bytes, message.name)? {
        match (number, field) {
            (1, Read::Bytes(text)) => key = String::from_utf8_lossy(text).into_owned(),
            (2, field) => value = Some(read_value(kind, field, place)?),
            _ => {}
        }
    }
    // What is empty may be left out.
    let value = match value {
        Some(value) => value,
        None => read_value(kind, Read::Bytes(&[]), place)?,
    };
    Ok((key, value))
}

fn read_value(kind: Kind, field: Read<'_>, place: Place<'_>) -> Result<Value, Error> {
    if let (Kind::Text | Kind::Bytes | Kind::Quantity | Kind::IntOrString, Read::Bytes(bytes)) = (kind, field) {
        place.budget.build_all(0, cost::text(bytes.len()))?;
    }
    Ok(match (kind, field) {
        (Kind::Text, Read::Bytes(bytes)) => Value::from(String::from_utf8_lossy(bytes)),
        (Kind::Bytes, Read::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
        (Kind::Integer, Read::Integer(bits)) => Value::from(bits.cast_signed()),
        (Kind::Truth, Read::Integer(bits)) => Value::from(bits != 0),
        (Kind::Double, Read::Fixed64(bits)) => Value::from(f64::from_bits(bits)),
        (Kind::Either(reference), Read::Bytes(bytes)) => either(&mut read_object(reference, bytes, place)?),
        (Kind::IntOrString, Read::Bytes(bytes)) => int_or_string(bytes)?,
        (Kind::Json, Read::Bytes(bytes)) => raw_json(bytes, place.budget)?,
        (Kind::Message(reference), Read::Bytes(bytes)) => Value::Object(read_object(reference, bytes, place)?),
        (Kind::MicroTime, Read::Bytes(bytes)) => time(bytes, 6)?,
        (Kind::Quantity, Read::Bytes(bytes)) => texts(bytes, "Quantity")?.next().map_or(Value::Null, Value::from),
        (Kind::Texts, Read::Bytes(bytes)) => {
            let charged = |text: String| {
                place.budget.build(cost::VALUE + cost::text(text.len()))?;
                Ok(Value::from(text))
            };
            Value::Array(texts(bytes, "a list of texts")?.map(charged).collect::<Result<_, Error>>()?)
        }
        (Kind::Time, Read::Bytes(bytes)) => time(bytes, 0)?,
        _ => return Err(damaged("a field")),
    })
}

fn read_object(reference: Reference, bytes: &[u8], place: Place<'_>) -> Result<Map, Error> {
    let mut fields = Map::new();
    read_message(TABLE.at(reference), bytes, &mut fields, place.inside())?;
    Ok(fields)
}

/// Of a schema that may be something simpler: whichever is there.
fn either(fields: &mut Map) -> Value {
    let simpler = ["allows", "jSONSchemas", "property"];
    let simpler = simpler.into_iter().find_map(|name| fields.remove(name));
    match fields.remove("schema") {
        Some(schema) if !schema.is_null() => schema,
        _ => simpler.unwrap_or(Value::Null),
    }
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for (at, field) in read_all(bytes, "IntOrString")? {
        match (at, field) {
            (1, Read::Integer(bits)) => is_text = bits != 0,
            (2, Read::Integer(bits)) => number = bits.cast_signed(),
            (3, Read::Bytes(bytes)) => text = String::from_utf8_lossy(bytes).into_owned(),
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
            (1, Read::Integer(bits)) => seconds = bits.cast_signed(),
            (2, Read::Integer(bits)) => nanos = u32::try_from(bits).map_err(|_| damaged("Time"))?,
            _ => {}
        }
    }
    let time = times::after_1970(seconds, nanos).ok_or_else(|| damaged("Time"))?;
    Ok(Value::from(format!("{time:.digits$}Z")))
}

/// A message whose first field is JSON as text.
fn raw_json(bytes: &[u8], budget: &Budget) -> Result<Value, Error> {
    let mut raw = &[][..];
    for (number, field) in read_all(bytes, "a field of JSON")? {
        if let (1, Read::Bytes(bytes)) = (number, field) {
            raw = bytes;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    decode::part(raw, budget).map_err(|error| match error {
        decode::Error::Budget(error) => Error::Budget(error),
        error => Error::NoJson { reason: error.to_string() },
    })
}

/// The texts of a message whose first field is a text, or a list of such.
fn texts(bytes: &[u8], message: &str) -> Result<impl Iterator<Item = String>, Error> {
    let fields = read_all(bytes, message)?;
    Ok(fields.into_iter().filter_map(|(number, field)| match (number, field) {
        (1, Read::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }))
}

fn read_all<'a>(bytes: &'a [u8], message: &str) -> Result<Vec<(u32, Read<'a>)>, Error> {
    Reader::new(bytes).collect::<Option<Vec<_>>>().ok_or_else(|| damaged(message))
}

fn damaged(message: &str) -> Error {
    Error::Damaged { message: message.to_owned() }
}
