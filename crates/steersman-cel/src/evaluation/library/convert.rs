//! Conversions between types: `int()`, `string()` and similar.

use crate::error::EvalError;
use crate::evaluation::data::time;
use crate::evaluation::library::ip;
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Opaque, Value};
use steersman_machinery::duration;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "bool" => |_, args| one(args, to_bool),
        "bytes" => |_, args| match args {
            [Value::Bytes(_)] => args.first().cloned().map(Ok),
            [Value::String(text)] => Some(Ok(Value::Bytes(text.as_bytes().into()))),
            _ => None,
        },
        "double" => |_, args| one(args, to_double),
        "duration" => |_, args| one(args, to_duration),
        "int" => |_, args| one(args, to_int),
        "string" => |_, args| one(args, to_string),
        "timestamp" => |_, args| one(args, to_timestamp),
        "uint" => |_, args| one(args, to_uint),
        _ => return None,
    })
}

fn one<'a>(args: &[Value<'a>], convert: fn(&Value<'a>) -> Option<Outcome<'a>>) -> Option<Outcome<'a>> {
    match args {
        [value] => convert(value),
        _ => None,
    }
}

fn failed(from: &str, to: &str) -> EvalError {
    EvalError::new(format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match value {
        Value::Bool(bool) => Ok(Value::Bool(*bool)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed("string", "bool")),
        },
        _ => return None,
    })
}

fn to_double<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match value {
        Value::Double(double) => Ok(Value::Double(*double)),
        Value::Int(int) => Ok(Value::Double(*int as f64)),
        Value::Uint(uint) => Ok(Value::Double(*uint as f64)),
        Value::String(text) => parse_double(text).map(Value::Double).ok_or_else(|| failed("string", "double")),
        _ => return None,
    })
}

/// Parses a float like Go; a number beyond the largest is invalid.
fn parse_double(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let named = ["inf", "infinity", "nan"].iter().any(|name| digits.eq_ignore_ascii_case(name));
    let number: f64 = text.parse().ok()?;
    (named || number.is_finite()).then_some(number)
}

fn to_duration<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match value {
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        Value::Int(nanos) => Ok(Value::Duration(*nanos)),
        Value::String(text) => {
            duration::parse(text).map(Value::Duration).map_err(|_| failed("string", "google.protobuf.Duration"))
        }
        _ => return None,
    })
}

fn to_int<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let out_of_range = || EvalError::new("integer overflow");
    Some(match value {
        Value::Int(int) => Ok(Value::Int(*int)),
        // Upstream excludes both ends of the range.
        Value::Double(double) if -END < *double && *double < END => Ok(Value::Int(*double as i64)),
        Value::Double(_) => Err(out_of_range()),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(at) => Ok(Value::Int(at.seconds)),
        Value::Uint(uint) => i64::try_from(*uint).map(Value::Int).map_err(|_| out_of_range()),
        Value::String(text) => text.parse().map(Value::Int).map_err(|_| failed("string", "int")),
        _ => return None,
    })
}

fn to_uint<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let out_of_range = || EvalError::new("unsigned integer overflow");
    Some(match value {
        Value::Uint(uint) => Ok(Value::Uint(*uint)),
        Value::Double(double) if 0.0 <= *double && *double < END => Ok(Value::Uint(*double as u64)),
        Value::Double(_) => Err(out_of_range()),
        Value::Int(int) => u64::try_from(*int).map(Value::Uint).map_err(|_| out_of_range()),
        Value::String(text) if text.starts_with('+') => Err(failed("string", "uint")),
        Value::String(text) => text.parse().map(Value::Uint).map_err(|_| failed("string", "uint")),
        _ => return None,
    })
}

fn to_timestamp<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => {
            time::Timestamp::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(time::out_of_range)
        }
        Value::String(text) => time::parse_timestamp(text)
            .map(Value::Timestamp)
            .ok_or_else(|| failed("string", "google.protobuf.Timestamp")),
        _ => return None,
    })
}

fn to_string<'a>(value: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match value {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Opaque(Opaque::Ip(ip)) => Ok(Value::text(ip.to_string())),
        Value::Opaque(Opaque::Cidr(cidr)) => Ok(Value::text(ip::cidr_text(cidr))),
        _ => Ok(Value::text(scalar_text(value)?)),
    })
}

/// The text of a number, bool, timestamp or duration.
pub(crate) fn scalar_text(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Bool(bool) => bool.to_string(),
        Value::Double(double) => double_text(*double),
        Value::Duration(nanos) => time::duration_text(*nanos),
        Value::Int(int) => int.to_string(),
        Value::Timestamp(at) => at.to_string(),
        Value::Uint(uint) => uint.to_string(),
        _ => return None,
    })
}

/// A number as Go prints it: the shortest digits, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn double_text(double: f64) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let size = double.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{double:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{double}")
}
