//! Reading a body of a built-in kind as Go's typed decoding does: in one pass over any serde format, against the schema.
//!
//! Unknown and duplicate fields are dropped and told of in the order of the document; null is absent; quantities, times and
//! bytes are checked and take their canonical text; what `omitempty` would not write goes, what Go always writes comes.
//! [`document`] reads a body without a schema, for custom resources.

use crate::schema::{Schema, Special, Type, Zero};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fmt::Write;
use steersman_machinery::Value;
use steersman_machinery::quantity::{self, Quantity};
use steersman_machinery::value::Map;

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

/// Reads a body in any format without a schema.
///
/// # Errors
/// When the format is broken.
pub fn document_from<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decoded, Error> {
    read(None, deserializer)
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
        Value::Object(fields) if is_opaque(schema) => {
            let _ = fields;
        }
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if let Some(schema) = schema.field(name) {
                    normalize(schema, field);
                }
            }
            finish(schema, fields);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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

fn read<'de, D: Deserializer<'de>>(schema: Option<&Schema>, deserializer: D) -> Result<Decoded, Error> {
    let mut context = Context { path: String::new(), faults: Vec::new(), error: None };
    match (Seed { schema, context: &mut context }).deserialize(deserializer) {
        Ok(value) => Ok(Decoded { value, faults: context.faults }),
        Err(error) => Err(context.error.unwrap_or_else(|| Error::Syntax { detail: syntax(&error.to_string()) })),
    }
}

/// The parser's message in the words that clients know, where they have some.
fn syntax(message: &str) -> String {
    if message.starts_with("EOF while parsing") {
        return "unexpected end of JSON input".to_owned();
    }
    message.to_owned()
}

/// Kept as it is: nothing inside has a schema.
fn is_opaque(schema: &Schema) -> bool {
    matches!(schema.special, Some(Special::FieldsV1 | Special::Json | Special::RawExtension))
}

// === empty values ===

/// Drops and writes empty fields of a struct.
fn finish(schema: &Schema, fields: &mut Map) {
    for (name, field) in schema.properties.iter() {
        match field.zero {
            Zero::Keep => {
                if fields.get(name).is_some_and(Value::is_null) {
                    fields.remove(name);
                }
            }
            Zero::Null => {
                if !fields.contains_key(name) {
                    fields.insert(name.to_owned(), Value::Null);
                }
            }
            Zero::Omit => {
                if fields.get(name).is_some_and(is_zero) {
                    fields.remove(name);
                }
            }
            Zero::Write => {
                if fields.get(name).is_none_or(Value::is_null) {
                    fields.insert(name.to_owned(), zero(field));
                }
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The value of a Go variable that nobody has set.
fn zero(schema: &Schema) -> Value {
    let schema = schema.target();
    match (schema.special, schema.value_type) {
        (Some(Special::IntOrString), _) => Value::from(0),
        (Some(Special::Quantity), _) => Value::from("0"),
        (Some(Special::Bytes), _) => Value::Null,
        (Some(_), _) | (None, Type::Any | Type::Array) => Value::Null,
        (None, Type::Boolean) => Value::Bool(false),
        (None, Type::Integer | Type::IntOrString | Type::Number) => Value::from(0),
        (None, Type::String) => Value::from(""),
        (None, Type::Object) if schema.values().is_some() => Value::Null,
        (None, Type::Object) => {
            let mut fields = Map::new();
            finish(schema, &mut fields);
            Value::Object(fields)
        }
    }
}

// === the pass ===

struct Context {
    path: String,
    faults: Vec<Fault>,
    error: Option<Error>,
}

/// Reads one value against its schema, or any value.
struct Seed<'s, 'c> {
    schema: Option<&'s Schema>,
    context: &'c mut Context,
}

impl Context {
    /// Remembers why, and stops the parser.
    fn fail<E: serde::de::Error>(&mut self, error: Error) -> E {
        self.error = Some(error);
        E::custom("stopped")
    }

    fn path(&self) -> String {
        if self.path.is_empty() { "the object".to_owned() } else { self.path.clone() }
    }

    fn enter_field(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }

    fn enter_item(&mut self, index: usize) -> usize {
        let length = self.path.len();
        let _ = write!(self.path, "[{index}]");
        length
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let schema = self.schema.map(Schema::target).filter(|schema| !is_opaque(schema));
        deserializer.deserialize_any(Reader { schema, context: self.context })
    }
}

struct Reader<'s, 'c> {
    /// None: any value.
    schema: Option<&'s Schema>,
    context: &'c mut Context,
}

impl Reader<'_, '_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> Result<Value, E> {
        let Some(schema) = self.schema else { return Ok(value) };
        match check_scalar(schema, value, self.context) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.context.fail(error)),
        }
    }

    fn mismatch<E: serde::de::Error>(self, found: &str) -> E {
        let expected = self.schema.map_or("any value", expected);
        let path = self.context.path();
        self.context.fail(Error::Type { path, expected, found: found.to_owned() })
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.schema.map_or("any value", expected))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.scalar(Value::from(value))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let item = match self.schema {
            Some(schema) if schema.value_type != Type::Array => return Err(self.mismatch("a list")),
            Some(schema) => schema.item(),
            None => None,
        };
        let mut read = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        loop {
            let length = self.context.enter_item(read.len());
            let Some(mut value) = items.next_element_seed(Seed { schema: item, context: &mut *self.context })? else {
                self.context.path.truncate(length);
                return Ok(Value::Array(read));
            };
            if let (Value::Null, Some(item)) = (&value, item) {
                value = zero(item);
            }
            read.push(value);
            self.context.path.truncate(length);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.schema.is_some_and(|schema| schema.value_type != Type::Object) {
            return Err(self.mismatch("an object"));
        }
        let values = self.schema.and_then(Schema::values);
        let is_struct = self.schema.is_some() && values.is_none();
        let mut fields = Map::new();
        while let Some(Key(name)) = entries.next_key()? {
            let length = self.context.enter_field(&name);
            let schema = match self.schema {
                Some(schema) => schema.field(&name),
                None => None,
            };
            if is_struct && schema.is_none() {
                entries.next_value::<Skipped>()?;
                self.context.faults.push(Fault::Unknown(self.context.path.clone()));
                self.context.path.truncate(length);
                continue;
            }
            let mut value = entries.next_value_seed(Seed { schema, context: &mut *self.context })?;
            if let (Value::Null, Some(values)) = (&value, values) {
                value = zero(values);
            }
            if fields.insert(name, value).is_some() {
                self.context.faults.push(Fault::Duplicate(self.context.path.clone()));
            }
            self.context.path.truncate(length);
        }
        if let Some(schema) = self.schema.filter(|_| is_struct) {
            fields.retain(|_, value| !value.is_null());
            finish(schema, &mut fields);
        }
        Ok(Value::Object(fields))
    }
}

/// A value that nobody wants. Read and dropped level by level, so that the parser's bound on nesting holds here too
/// (`IgnoredAny` is skipped over without it).
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Skipped, D::Error> {
        let mut context = Context { path: String::new(), faults: Vec::new(), error: None };
        deserializer.deserialize_any(Reader { schema: None, context: &mut context })?;
        Ok(Skipped)
    }
}

/// A key of an object; YAML's may be numbers and booleans too.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Key, E> {
                Ok(Key(value.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Key, E> {
                Ok(Key(value))
            }

            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }
        }
        deserializer.deserialize_any(KeyVisitor)
    }
}

// === scalars ===

const SECONDS_EXAMPLE: &str = "2006-01-02T15:04:05Z";
const MICROS_EXAMPLE: &str = "2006-01-02T15:04:05.000000Z";

/// What a schema asks for, in words.
fn expected(schema: &Schema) -> &'static str {
    match (schema.special, schema.value_type) {
        (Some(Special::Bytes), _) => "a base64 string",
        (Some(Special::IntOrString), _) | (_, Type::IntOrString) => "an integer or a string",
        (Some(Special::MicroTime | Special::Time), _) => "a time in a string",
        (Some(Special::Quantity), _) => "a quantity: a string or a number",
        (Some(Special::FieldsV1 | Special::Json | Special::RawExtension), _) | (None, Type::Any) => "any value",
        (None, Type::Array) => "a list",
        (None, Type::Boolean) => "true or false",
        (None, Type::Integer) => "an integer",
        (None, Type::Number) => "a number",
        (None, Type::Object) => "an object",
        (None, Type::String) => "a string",
    }
}

fn check_scalar(schema: &Schema, value: Value, context: &Context) -> Result<Value, Error> {
    let path = || context.path();
    match (schema.special, schema.value_type, value) {
        (Some(Special::Bytes), _, Value::String(text)) => match base64(&text) {
            Ok(()) if text.contains(['\r', '\n']) => Ok(Value::from(text.replace(['\r', '\n'], ""))),
            Ok(()) => Ok(Value::String(text)),
            Err(offset) => Err(Error::Base64 { path: path(), offset }),
        },
        (Some(Special::IntOrString), _, Value::String(text)) => Ok(Value::String(text)),
        (Some(Special::IntOrString), _, Value::Number(number)) => integer(number, Some("int32"), path),
        (Some(Special::Quantity), _, Value::String(text)) => canonical(&text, path),
        (Some(Special::Quantity), _, Value::Number(number)) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e18 => {
                canonical(&format!("{float:.0}"), path)
            }
            _ => canonical(&number.to_string(), path),
        },
        (Some(Special::Time), _, Value::String(text)) => match time(&text, false) {
            Some(time) => Ok(Value::from(time)),
            None => Err(Error::Time { path: path(), text, example: SECONDS_EXAMPLE }),
        },
        (Some(Special::MicroTime), _, Value::String(text)) => match time(&text, true) {
            Some(time) => Ok(Value::from(time)),
            None => Err(Error::Time { path: path(), text, example: MICROS_EXAMPLE }),
        },
        (None, Type::Any, value)
        | (None, Type::Boolean, value @ Value::Bool(_))
        | (None, Type::Number, value @ Value::Number(_))
        | (None, Type::String | Type::IntOrString, value @ Value::String(_)) => Ok(value),
        (None, Type::Integer | Type::IntOrString, Value::Number(number)) => {
            integer(number, schema.format.as_deref(), path)
        }
        (_, _, value) => Err(Error::Type { path: path(), expected: expected(schema), found: found(&value) }),
    }
}

fn canonical(text: &str, path: impl Fn() -> String) -> Result<Value, Error> {
    match Quantity::canonical(text) {
        Ok(text) => Ok(Value::from(text)),
        Err(source) => Err(Error::Quantity { path: path(), source }),
    }
}

fn integer(number: serde_json::Number, format: Option<&str>, path: impl Fn() -> String) -> Result<Value, Error> {
    let (min, max) = match format {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    match number.as_i64() {
        Some(whole) if (min..=max).contains(&whole) => Ok(Value::Number(number)),
        _ => Err(Error::Range { path: path(), number: number.to_string(), min, max }),
    }
}

/// A value in words, for messages; long ones shortened.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(bool) => format!("{bool}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            let more = if short.len() < text.len() { "..." } else { "" };
            format!("the string {short:?}{more}")
        }
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The canonical text of an RFC 3339 time: UTC, whole seconds or microseconds.
fn time(text: &str, micros: bool) -> Option<String> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let shaped = bytes.len() > SHAPE.len()
        && SHAPE.iter().zip(bytes).all(|(want, have)| if *want == b'd' { have.is_ascii_digit() } else { want == have });
    if !shaped || text.get(17..19)? == "60" {
        return None;
    }
    let mut rest = text.get(SHAPE.len()..)?;
    let mut digits = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        rest = fraction.get(digits..)?;
        if digits == 0 {
            return None;
        }
    }
    let is_offset = |text: &str| {
        let bytes = text.as_bytes();
        bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())
    };
    if (rest != "Z" && !is_offset(rest)) || (micros && digits != 6) || digits > 9 {
        return None;
    }
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    let format = if micros { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(timestamp.strftime(format).to_string())
}

/// Checks base64 as Go's standard encoding does, line breaks allowed, and tells where it breaks.
fn base64(text: &str) -> Result<(), usize> {
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    let (mut in_quantum, mut quantum_start, mut padding) = (0, 0, 0);
    for (offset, byte) in text.bytes().enumerate().filter(|(_, byte)| !is_break(*byte)) {
        if in_quantum == 0 {
            if padding > 0 {
                return Err(offset);
            }
            quantum_start = offset;
        }
        match byte {
            b'=' if in_quantum >= 2 => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {}
            _ => return Err(offset),
        }
        in_quantum = (in_quantum + 1) % 4;
    }
    match (in_quantum, padding) {
        (0, _) => Ok(()),
        (_, 0) => Err(quantum_start),
        _ => Err(text.len()),
    }
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
