//! String functions. Positions count characters.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::library::format;
use crate::evaluation::library::lists::{self, Occurrence};
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Text, Value};

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "charAt" => char_at,
        "contains" => |_, args| pair(args, |text, part| text.contains(part)),
        "endsWith" => |_, args| pair(args, |text, part| text.ends_with(part)),
        "format" => format::format,
        "indexOf" => |meter, args| match args {
            [Value::List(_), _] => lists::index_of(meter, args, Occurrence::First),
            _ => index_of(args),
        },
        "join" => join,
        "jsonpatch.escapeKey" => |meter, args| mapped(meter, args, |text| text.replace('~', "~0").replace('/', "~1")),
        "lastIndexOf" => |meter, args| match args {
            [Value::List(_), _] => lists::index_of(meter, args, Occurrence::Last),
            _ => last_index_of(args),
        },
        "lowerAscii" => |meter, args| mapped(meter, args, str::to_ascii_lowercase),
        "replace" => replace,
        "split" => split,
        "startsWith" => |_, args| pair(args, |text, part| text.starts_with(part)),
        "strings.quote" => |meter, args| mapped(meter, args, quote),
        "substring" => substring,
        "trim" => |meter, args| mapped(meter, args, |text| text.trim().to_owned()),
        "upperAscii" => |meter, args| mapped(meter, args, str::to_ascii_uppercase),
        _ => return None,
    })
}

fn pair<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Option<Outcome<'a>> {
    match args {
        [Value::String(text), Value::String(part)] => Some(Ok(Value::Bool(test(text, part)))),
        _ => None,
    }
}

fn mapped<'a>(meter: &mut Meter, args: &[Value<'a>], map: fn(&str) -> String) -> Option<Outcome<'a>> {
    match args {
        [Value::String(text)] => Some(meter.work(text.len()).map(|()| Value::text(map(text)))),
        _ => None,
    }
}

/// The byte offset of the character at a position; the end is a position too.
fn byte_at(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    if text.is_ascii() {
        return (at <= text.len()).then_some(at);
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(at)
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

fn char_at<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::String(text), Value::Int(at)] = args else { return None };
    let Some(byte) = byte_at(text, *at) else { return Some(Err(out_of_range(*at))) };
    Some(Ok(Value::text(text[byte..].chars().next().map(String::from).unwrap_or_default())))
}

fn chars_before(text: &str, byte: usize) -> Value<'static> {
    Value::Int(i64::try_from(text[..byte].chars().count()).unwrap_or(i64::MAX))
}

fn index_of<'a>(args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return None,
    };
    if part.is_empty() {
        return Some(Ok(Value::Int(from)));
    }
    if from < 0 {
        return Some(Err(out_of_range(from)));
    }
    let Some(start) = byte_at(text, from) else { return Some(Ok(Value::Int(-1))) };
    let found = text[start..].find(&**part).map(|at| chars_before(text, start + at));
    Some(Ok(found.unwrap_or(Value::Int(-1))))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return None,
    };
    if part.is_empty() {
        return Some(Ok(from.map_or_else(|| chars_before(text, text.len()), Value::Int)));
    }
    let mut end = match from {
        None => text.len(),
        Some(from) if from < 0 => return Some(Err(out_of_range(from))),
        // A match that begins at the position may extend beyond it.
        Some(from) => match byte_at(text, from).filter(|byte| *byte < text.len()) {
            Some(byte) => text.len().min(byte + part.len()),
            None => return Some(Ok(Value::Int(-1))),
        },
    };
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text[..end].rfind(&**part).map(|at| chars_before(text, at));
    Some(Ok(found.unwrap_or(Value::Int(-1))))
}

fn substring<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (text, from, to) = match args {
        [Value::String(text), Value::Int(from)] => (text, *from, None),
        [Value::String(text), Value::Int(from), Value::Int(to)] => (text, *from, Some(*to)),
        _ => return None,
    };
    let Some(start) = byte_at(text, from) else { return Some(Err(out_of_range(from))) };
    let end = match to {
        None => text.len(),
        Some(to) if to < from => {
            let message = format!("invalid substring range. start: {from}, end: {to}");
            return Some(Err(EvalError::new(message)));
        }
        Some(to) => match byte_at(text, to) {
            Some(end) => end,
            None => return Some(Err(out_of_range(to))),
        },
    };
    Some(Ok(slice(text, start, end)))
}

/// A part of a string, borrowed where the whole is.
fn slice<'a>(text: &Text<'a>, start: usize, end: usize) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::String(Text::Borrowed(&text[start..end])),
        Text::Shared(text) => Value::text(&text[start..end]),
    }
}

fn split<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return None,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // In the worst case each byte becomes a separate value.
    if let Err(error) = meter.work(text.len().saturating_mul(8)) {
        return Some(Err(error));
    }
    let start = text.as_ptr() as usize;
    let part = |part: &str| {
        let from = part.as_ptr() as usize - start;
        slice(text, from, from + part.len())
    };
    let parts = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let mut parts = Vec::new();
        let mut rest: &str = text;
        while let Some(first) = rest.chars().next() {
            if parts.len() + 1 == limit {
                parts.push(part(rest));
                break;
            }
            let (taken, behind) = rest.split_at(first.len_utf8());
            parts.push(part(taken));
            rest = behind;
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(part).collect()
    };
    Some(Ok(Value::list(parts)))
}

fn replace<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (text, from, to, limit) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(limit)] => (text, from, to, *limit),
        _ => return None,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = text.matches(&**from).take(limit).count();
    // The result may be much longer than its parts.
    if let Err(error) = meter.work(text.len() + found.saturating_mul(to.len())) {
        return Some(Err(error));
    }
    Some(Ok(Value::text(text.replacen(&**from, to, found))))
}

fn join<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return None,
    };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        match item {
            Ok(Value::String(text)) => {
                if let Err(error) = meter.work(text.len() + separator.len() + 1) {
                    return Some(Err(error));
                }
                if at > 0 {
                    out.push_str(separator);
                }
                out.push_str(&text);
            }
            Ok(other) => {
                let message = format!("join: invalid input: unsupported type: {}", other.type_name());
                return Some(Err(EvalError::new(message)));
            }
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Value::text(out)))
}

/// Quotes a string, so that it is safe to print.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match escape_of(char) {
            Some(escape) => out.push_str(escape),
            None => out.push(char),
        }
    }
    out.push('"');
    out
}

/// The escape sequence of a character in double quotes, if it needs one.
pub(super) fn escape_of(char: char) -> Option<&'static str> {
    Some(match char {
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\\' => "\\\\",
        '"' => "\\\"",
        _ => return None,
    })
}
