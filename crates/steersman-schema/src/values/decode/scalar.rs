//! Scalars: checked against their type, and converted to their canonical text.

use crate::model::schema::{Schema, Special, Type};
use crate::values::decode::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::{Value, time as times};

const SECONDS_EXAMPLE: &str = "2006-01-02T15:04:05Z";
const MICROS_EXAMPLE: &str = "2006-01-02T15:04:05.000000Z";

/// The type that a schema expects, in words.
pub(crate) fn expected(schema: &Schema) -> &'static str {
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

pub(crate) fn check(schema: &Schema, value: Value, path: impl Fn() -> String) -> Result<Value, Error> {
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
            Some(Canonical::Same) => Ok(Value::String(text)),
            Some(Canonical::Other(time)) => Ok(Value::String(time)),
            None => Err(Error::Time { path: path(), text, example: SECONDS_EXAMPLE }),
        },
        (Some(Special::MicroTime), _, Value::String(text)) => match time(&text, true) {
            Some(Canonical::Same) => Ok(Value::String(text)),
            Some(Canonical::Other(time)) => Ok(Value::String(time)),
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

/// A value in words, for messages; long values are shortened.
pub(crate) fn found(value: &Value) -> String {
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

/// The canonical form of a string.
enum Canonical {
    Other(String),
    Same,
}

/// The canonical text of an RFC 3339 time: UTC, whole seconds or microseconds.
fn time(text: &str, micros: bool) -> Option<Canonical> {
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
    // Not parsed as a timestamp, whose range ends before the end of the year 9999.
    let utc = times::to_utc(text)?;
    let n_digits = if micros { 6 } else { 0 };
    if rest == "Z" && digits == n_digits {
        return Some(Canonical::Same);
    }
    let format = if micros { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(Canonical::Other(utc.strftime(format).to_string()))
}

/// Checks base64 like Go's standard encoding, which allows line breaks, and returns the offset of the error.
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
