//! Writes a JSON text as a message, in one pass over the text and without a tree.
//!
//! Fields are written in the order of the text. The length of a message is known when its fields are written: one byte
//! is reserved for it, and a longer length moves the message. Values without a field in the message, and nulls, are
//! left out.

use crate::protobuf::NotJson;
use crate::protobuf::table::{Field, Form, Kind, Message, TABLE};
use crate::protobuf::text::{Quoted, Text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use steersman_machinery::time as times;

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;

/// Writes the fields of an object.
pub(super) fn write(message: &Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
    object(&mut Text::new(json), message, out).ok_or(NotJson)
}

/// Writes a field whose content is of known length.
pub(super) fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    tag(number, DELIMITED, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Writes a field whose content the callback writes.
pub(super) fn delimited<T>(number: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    tag(number, DELIMITED, out);
    let at = out.len();
    out.push(0);
    let written = content(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
        return written;
    }
    let extra = varint_len(length as u64) - 1;
    out.resize(out.len() + extra, 0);
    out.copy_within(at + 1..at + 1 + length, at + 1 + extra);
    let mut rest = length as u64;
    for byte in &mut out[at..=at + extra] {
        *byte = rest as u8 & 0x7f | 0x80;
        rest >>= 7;
    }
    out[at + extra] &= 0x7f;
    written
}

/// The start of a field with this length.
pub(super) fn head(number: u32, length: usize, out: &mut Vec<u8>) {
    tag(number, DELIMITED, out);
    varint(length as u64, out);
}

fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn object(text: &mut Text<'_>, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    if text.peek()? != b'{' {
        // A value of a type that the kind does not have is left out.
        return text.raw().map(|_| ());
    }
    let start = *text;
    fields(text, message, out)?;
    for part in &message.parts {
        let before = out.len();
        let mut again = start;
        delimited(part.number, out, |out| {
            let empty = out.len();
            object(&mut again, TABLE.at(part.message), out).map(|()| out.len() > empty)
        })
        .map(|has_fields| {
            if !has_fields {
                out.truncate(before);
            }
        })?;
    }
    Some(())
}

/// Writes the fields into the message itself.
fn fields(text: &mut Text<'_>, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    text.enter()?;
    // Stored objects are sorted by key like the fields, so the next field is usually the next one that matches.
    let mut next = 0;
    while text.has_more()? {
        let key = text.key()?;
        let (before, behind) = message.fields.split_at(next);
        let ahead = behind.iter().position(|field| key.is(field.name)).map(|ahead| next + ahead);
        match ahead.or_else(|| before.iter().position(|field| key.is(field.name))) {
            Some(found) => {
                field(text, &message.fields[found], out)?;
                next = found + 1;
            }
            None => {
                text.raw()?;
            }
        }
    }
    Some(())
}

fn field(text: &mut Text<'_>, field: &Field, out: &mut Vec<u8>) -> Option<()> {
    match (field.form, text.peek()?) {
        (_, b'n') => text.raw().map(|_| ()),
        (Form::One, _) => value(text, field.number, field.kind, out),
        (Form::List, b'[') => {
            text.enter()?;
            while text.has_more()? {
                value(text, field.number, field.kind, out)?;
            }
            Some(())
        }
        (Form::Map, b'{') => {
            text.enter()?;
            while text.has_more()? {
                let key = text.key()?.bytes()?;
                delimited(field.number, out, |out| {
                    bytes(1, &key, out);
                    value(text, 2, field.kind, out)
                })?;
            }
            Some(())
        }
        (Form::List | Form::Map, _) => text.raw().map(|_| ()),
    }
}

fn value(text: &mut Text<'_>, number: u32, kind: Kind, out: &mut Vec<u8>) -> Option<()> {
    let first = text.peek()?;
    let is_number = first == b'-' || first.is_ascii_digit();
    match (kind, first) {
        (Kind::Text, b'"') => bytes(number, &text.quoted()?.bytes()?, out),
        (Kind::Bytes, b'"') => {
            let encoded = text.quoted()?.bytes()?;
            delimited(number, out, |out| STANDARD.decode_vec(&*encoded, out)).ok()?;
        }
        (Kind::Integer, _) if is_number => {
            let value = integer(text.raw()?)?;
            tag(number, VARINT, out);
            varint(value.cast_unsigned(), out);
        }
        (Kind::Double, _) if is_number => {
            let value: f64 = std::str::from_utf8(text.raw()?).ok()?.parse().ok()?;
            tag(number, FIXED_64, out);
            out.extend_from_slice(&value.to_le_bytes());
        }
        (Kind::Truth, b't' | b'f') => {
            text.raw()?;
            tag(number, VARINT, out);
            out.push(u8::from(first == b't'));
        }
        (Kind::Message(reference), b'{') => {
            delimited(number, out, |out| object(text, TABLE.at(reference), out))?;
        }
        (Kind::Quantity, b'"') => {
            let quantity = text.quoted()?.bytes()?;
            delimited(number, out, |out| bytes(1, &quantity, out));
        }
        (Kind::Quantity, _) if is_number => {
            let quantity = text.raw()?;
            delimited(number, out, |out| bytes(1, quantity, out));
        }
        (Kind::IntOrString, _) => int_or_string(text, number, out)?,
        (Kind::MicroTime | Kind::Time, b'"') => {
            let (seconds, nanos) = time(text.quoted()?)?;
            delimited(number, out, |out| {
                tag(1, VARINT, out);
                varint(seconds.cast_unsigned(), out);
                if nanos != 0 && kind == Kind::MicroTime {
                    tag(2, VARINT, out);
                    varint(u64::from(nanos), out);
                }
            });
        }
        (Kind::Json, _) => {
            let json = text.raw()?;
            delimited(number, out, |out| bytes(1, json, out));
        }
        (Kind::Texts, b'[') => delimited(number, out, |out| texts(text, 1, out))?,
        (Kind::Either(reference), _) => delimited(number, out, |out| either(text, TABLE.at(reference), out))?,
        // A null in a list counts as an empty item.
        (Kind::Message(_), b'n') => {
            text.raw()?;
            head(number, 0, out);
        }
        _ => {
            text.raw()?;
        }
    }
    Some(())
}

fn integer(raw: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(raw).ok()?;
    match text.parse::<i64>() {
        Ok(value) => Some(value),
        // Out of range, or with an exponent: the nearest integer, as in Go.
        Err(_) => text.parse::<f64>().ok().map(|value| value as i64),
    }
}

fn int_or_string(text: &mut Text<'_>, number: u32, out: &mut Vec<u8>) -> Option<()> {
    if text.peek()? == b'"' {
        let quoted = text.quoted()?.bytes()?;
        delimited(number, out, |out| {
            tag(1, VARINT, out);
            out.push(1);
            bytes(3, &quoted, out);
        });
        return Some(());
    }
    let value = integer(text.raw()?)?;
    delimited(number, out, |out| {
        tag(1, VARINT, out);
        out.push(0);
        tag(2, VARINT, out);
        varint(value.cast_unsigned(), out);
    });
    Some(())
}

fn texts(text: &mut Text<'_>, number: u32, out: &mut Vec<u8>) -> Option<()> {
    text.enter()?;
    while text.has_more()? {
        value(text, number, Kind::Text, out)?;
    }
    Some(())
}

/// A schema, or its replacement: a bool, several schemas, or names.
fn either(text: &mut Text<'_>, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    let name = match text.peek()? {
        b't' | b'f' => "allows",
        b'[' if message.named("property").is_some() => "property",
        b'[' => "jSONSchemas",
        _ => "schema",
    };
    // In a union of a schema and a bool, a schema implies true.
    if let Some(allows) = message.named("allows").filter(|_| name == "schema") {
        tag(allows.number, VARINT, out);
        out.push(1);
    }
    match message.named(name) {
        Some(known) => field(text, known, out),
        None => text.raw().map(|_| ()),
    }
}

/// The seconds since 1970 and the nanoseconds of an RFC 3339 time.
fn time(quoted: Quoted<'_>) -> Option<(i64, u32)> {
    let text = quoted.text()?;
    if let Some(seconds) = whole_seconds(text.as_bytes()) {
        return Some((seconds, 0));
    }
    Some(times::since_1970(times::to_utc(&text)?))
}

/// Parses the form in which the server writes times, `2026-01-02T03:04:05Z`, as seconds since 1970.
fn whole_seconds(text: &[u8]) -> Option<i64> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2, b'Z'] = text else {
        return None;
    };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[n1, n2])?, number(&[s1, s2])?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days since 1970 with years that begin in March, so that the leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}
