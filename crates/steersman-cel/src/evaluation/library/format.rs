//! `'%s of %d'.format([..])`: parses clauses and formats values.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::library::{convert, strings};
use crate::evaluation::outcome::Outcome;
use crate::evaluation::value::{Fields, List, Object, Value};
use std::fmt::Write;

/// The number of decimals unless the clause gives it.
const PRECISION: usize = 6;
/// The largest precision that a clause may give.
const PRECISION_MAX: usize = 100;

/// A clause of the template, which formats one value: `%d`, `%.2f`.
pub(crate) struct Clause {
    pub(crate) verb: Verb,
    precision: Option<usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Binary,
    Decimal,
    Fixed,
    Hex { upper: bool },
    Octal,
    Scientific,
    Text,
}

impl Clause {
    /// Parses the clause after a `%`, and advances `rest` behind it.
    pub(crate) fn read(rest: &mut &str) -> Result<Clause, EvalError> {
        let bad = |why: String| EvalError::new(format!("could not parse formatting clause: {why}"));
        if rest.is_empty() {
            return Err(EvalError::new("unexpected end of string"));
        }
        let mut precision = None;
        if let Some(behind) = rest.strip_prefix('.') {
            let end = behind.find(|char: char| !char.is_ascii_digit());
            let end = end.ok_or_else(|| {
                bad("error while parsing precision: could not find end of precision specifier".to_owned())
            })?;
            let digits = behind[..end].parse::<usize>().ok().filter(|digits| *digits <= PRECISION_MAX);
            let digits = digits.ok_or_else(|| {
                bad(format!("error while parsing precision: want a number up to {PRECISION_MAX} behind the point"))
            })?;
            precision = Some(digits);
            *rest = &behind[end..];
        }
        let letter = rest.chars().next().ok_or_else(|| EvalError::new("unexpected end of string"))?;
        *rest = &rest[letter.len_utf8()..];
        let verb = match letter {
            's' => Verb::Text,
            'd' => Verb::Decimal,
            'f' => Verb::Fixed,
            'e' => Verb::Scientific,
            'b' => Verb::Binary,
            'x' | 'X' => Verb::Hex { upper: letter == 'X' },
            'o' => Verb::Octal,
            _ => return Err(bad(format!("unrecognized formatting clause \"{letter}\""))),
        };
        Ok(Clause { verb, precision })
    }
}

impl Verb {
    /// The error of a value of a type that the verb cannot format.
    pub(crate) fn fault(self, found: &str) -> EvalError {
        let why = match self {
            Verb::Binary => "only integers and bools can be formatted as binary",
            Verb::Decimal => "decimal clause can only be used on integers",
            Verb::Fixed => "fixed-point clause can only be used on doubles",
            Verb::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Verb::Octal => "octal clause can only be used on integers",
            Verb::Scientific => "scientific clause can only be used on doubles",
            Verb::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
        };
        EvalError::new(format!("error during formatting: {why}, was given {found}"))
    }
}

pub(super) fn format<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::String(template), Value::List(values)] = args else { return None };
    Some(formatted(meter, template, values).map(Value::text))
}

fn formatted(meter: &mut Meter, template: &str, values: &List<'_>) -> Result<String, EvalError> {
    meter.work(template.len())?;
    let mut out = String::with_capacity(template.len() + 16);
    let mut rest = template;
    let mut at = 0;
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let value = values.get(at).ok_or_else(|| EvalError::new(format!("index {at} out of range")))??;
        at += 1;
        let clause = Clause::read(&mut rest)?;
        let before = out.len();
        let precision = clause.precision.unwrap_or(PRECISION);
        match clause.verb {
            Verb::Text => write_value(meter, &mut out, &value)?,
            Verb::Decimal => decimal(&mut out, &value)?,
            Verb::Fixed => fixed(&mut out, double_of(&value, clause.verb)?, precision),
            Verb::Scientific => scientific(&mut out, double_of(&value, clause.verb)?, precision),
            Verb::Binary => binary(&mut out, &value)?,
            Verb::Hex { upper } => hex(&mut out, &value, upper)?,
            Verb::Octal => octal(&mut out, &value)?,
        }
        meter.work(out.len() - before)?;
    }
    out.push_str(rest);
    Ok(out)
}

/// Writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        let _ = write!($out, $($arg)*);
    }};
}

fn decimal(out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::Int(int) => put!(out, "{int}"),
        Value::Uint(uint) => put!(out, "{uint}"),
        _ => return Err(Verb::Decimal.fault(value.type_name())),
    }
    Ok(())
}

fn binary(out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::Int(int) if *int < 0 => put!(out, "-{:b}", int.unsigned_abs()),
        Value::Int(int) => put!(out, "{int:b}"),
        Value::Uint(uint) => put!(out, "{uint:b}"),
        Value::Bool(bool) => out.push(if *bool { '1' } else { '0' }),
        _ => return Err(Verb::Binary.fault(value.type_name())),
    }
    Ok(())
}

fn octal(out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::Int(int) if *int < 0 => put!(out, "-{:o}", int.unsigned_abs()),
        Value::Int(int) => put!(out, "{int:o}"),
        Value::Uint(uint) => put!(out, "{uint:o}"),
        _ => return Err(Verb::Octal.fault(value.type_name())),
    }
    Ok(())
}

fn hex(out: &mut String, value: &Value<'_>, upper: bool) -> Result<(), EvalError> {
    let number = |out: &mut String, number: u64| {
        if upper { put!(out, "{number:X}") } else { put!(out, "{number:x}") }
    };
    let bytes: &[u8] = match value {
        Value::Int(int) => {
            if *int < 0 {
                out.push('-');
            }
            number(out, int.unsigned_abs());
            return Ok(());
        }
        Value::Uint(uint) => {
            number(out, *uint);
            return Ok(());
        }
        Value::String(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => return Err(Verb::Hex { upper }.fault(value.type_name())),
    };
    for byte in bytes {
        if upper { put!(out, "{byte:02X}") } else { put!(out, "{byte:02x}") }
    }
    Ok(())
}

fn double_of(value: &Value<'_>, verb: Verb) -> Result<f64, EvalError> {
    match value {
        Value::Double(double) => Ok(*double),
        Value::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(verb.fault(value.type_name())),
        },
        _ => Err(verb.fault(value.type_name())),
    }
}

/// Formats NaN and infinity as upstream's locale does.
fn is_special(out: &mut String, double: f64) -> bool {
    match double {
        _ if double.is_nan() => out.push_str("NaN"),
        f64::INFINITY => out.push('∞'),
        f64::NEG_INFINITY => out.push_str("-∞"),
        _ => return false,
    }
    true
}

/// Separates thousands with commas: upstream uses the English locale.
fn fixed(out: &mut String, double: f64, precision: usize) {
    if is_special(out, double) {
        return;
    }
    let text = format!("{double:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    out.push_str(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        put!(out, ".{fraction}");
    }
}

/// Always six decimals: upstream uses the precision of the clause as the minimum width. The exponent is a superscript,
/// as in the English locale.
fn scientific(out: &mut String, double: f64, width: usize) {
    let mut special = String::new();
    if is_special(&mut special, double) {
        return padded(out, &special, width);
    }
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let text = format!("{double:.PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised: String =
        format!("{exponent:0>2}").chars().filter_map(|digit| RAISED.get(digit.to_digit(10)? as usize)).collect();
    let number = format!("{digits}×10{sign}{raised}");
    padded(out, &number, width);
}

fn padded(out: &mut String, text: &str, width: usize) {
    let missing = width.saturating_sub(text.chars().count());
    out.extend(std::iter::repeat_n(' ', missing));
    out.push_str(text);
}

/// `%s`: any value; inside lists and maps in the syntax of expressions.
fn write_value(meter: &mut Meter, out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Bytes(bytes) => out.push_str(&String::from_utf8_lossy(bytes)),
        Value::Null => out.push_str("null"),
        Value::Type(name) => out.push_str(name),
        Value::List(_) | Value::Map(_) | Value::Object(_) => return write_inner(meter, out, value),
        _ => match convert::scalar_text(value) {
            Some(text) => out.push_str(&text),
            None => {
                return Err(Verb::Text.fault(value.type_name()));
            }
        },
    }
    Ok(())
}

fn write_entries(meter: &mut Meter, out: &mut String, entries: &[(String, Value<'_>)]) -> Result<(), EvalError> {
    out.push('{');
    for (at, (key, value)) in entries.iter().enumerate() {
        put!(out, "{}{key}:", if at > 0 { ", " } else { "" });
        write_inner(meter, out, value)?;
    }
    out.push('}');
    Ok(())
}

fn write_inner(meter: &mut Meter, out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    meter.enter()?;
    meter.visit()?;
    match value {
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_inner(meter, out, &item?)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for (key, value) in map.iter() {
                let mut key_text = String::new();
                write_inner(meter, &mut key_text, &key)?;
                entries.push((key_text, value?));
            }
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            write_entries(meter, out, &entries)?;
        }
        // Upstream represents JSON objects as maps.
        Value::Object(object @ Object(Fields::Json(map, _))) => {
            let mut entries = Vec::with_capacity(map.len());
            for name in map.keys() {
                let mut key_text = String::new();
                quoted(&mut key_text, name);
                if let Some(value) = object.get(name) {
                    entries.push((key_text, value?));
                }
            }
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            write_entries(meter, out, &entries)?;
        }
        Value::String(text) => quoted(out, text),
        Value::Bytes(bytes) => {
            out.push('b');
            quoted(out, &String::from_utf8_lossy(bytes));
        }
        Value::Double(double) if double.is_nan() => out.push_str("\"NaN\""),
        Value::Double(double) if double.is_infinite() => {
            out.push_str(if *double > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" });
        }
        Value::Double(double) => put!(out, "{double:.PRECISION$}"),
        Value::Duration(_) | Value::Timestamp(_) => {
            let name = if matches!(value, Value::Duration(_)) { "duration" } else { "timestamp" };
            put!(out, "{name}(\"{}\")", convert::scalar_text(value).unwrap_or_default());
        }
        _ => match value {
            Value::Bool(_) | Value::Int(_) | Value::Null | Value::Type(_) | Value::Uint(_) => {
                write_value(meter, out, value)?;
            }
            _ => {
                let message = format!("error during formatting: no formatting function for {}", value.type_name());
                return Err(EvalError::new(message));
            }
        },
    }
    meter.leave();
    Ok(())
}

/// Quotes a string like Go: control characters without an escape are written by number.
fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match strings::escape_of(char) {
            Some(escape) => out.push_str(escape),
            None if char.is_ascii_control() => put!(out, "\\x{:02x}", u32::from(char)),
            None => out.push(char),
        }
    }
    out.push('"');
}
