//! Parses paths.

use crate::json_path::filter::Filter;
use crate::json_path::{PATH_BYTES_MAX, ParseError, STEPS_MAX, Step};

/// The maximum nesting of filters.
const DEPTH_MAX: usize = 8;

/// Parses all steps of a path.
pub(crate) fn steps(text: &str) -> Result<Vec<Step>, ParseError> {
    match text.chars().next() {
        None => return Err(ParseError::Empty),
        // Inside a filter `@['x']` begins with a bracket.
        Some('.' | '[') => {}
        Some(_) => return Err(ParseError::NoDot),
    }
    if text.len() > PATH_BYTES_MAX {
        return Err(ParseError::TooLong { bytes: text.len() });
    }
    let bad = |rest: &str| ParseError::BadStep { text: text.to_owned(), offset: text.len() - rest.len() };
    if text.matches("[?").count() > DEPTH_MAX {
        return Err(bad(text));
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && text != "." {
        let (step, behind) = step(rest).ok_or_else(|| bad(rest))?;
        rest = behind;
        if step == Step::Descendants && steps.last() == Some(&Step::Descendants) {
            continue;
        }
        if steps.len() == STEPS_MAX {
            return Err(ParseError::TooManySteps);
        }
        steps.push(step);
    }
    match steps.last() {
        Some(Step::Descendants) => Err(bad("")),
        _ => Ok(steps),
    }
}

fn step(rest: &str) -> Option<(Step, &str)> {
    let Some(after) = rest.strip_prefix('.') else { return bracketed(rest) };
    if after.starts_with('.') {
        return Some((Step::Descendants, after));
    }
    // `.['x']` is `['x']`.
    if after.starts_with('[') {
        return bracketed(after);
    }
    named(after)
}

/// A name up to the next `.` or `[`; a backslash escapes the next character.
fn named(rest: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut chars = rest.char_indices();
    let mut end = rest.len();
    let mut is_escaped = false;
    while let Some((at, char)) = chars.next() {
        match char {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => {
                is_escaped = true;
                name.push(chars.next()?.1);
            }
            ' ' | '\t' | '\r' | '\n' | ',' | ']' | '$' | '@' | '{' | '}' | '\'' | '"' => return None,
            _ => name.push(char),
        }
    }
    let step = match name.as_str() {
        "" => return None,
        "*" if !is_escaped => Step::Wildcard,
        _ => Step::Field(name.into()),
    };
    Some((step, &rest[end..]))
}

/// `[3]`, `[-1]`, `[1:5:2]`, `[*]`, `['x']`, `["x"]`, several of these as in `[0,2]`, or `[?(...)]`.
fn bracketed(rest: &str) -> Option<(Step, &str)> {
    let mut rest = rest.strip_prefix('[')?;
    if let Some(filter) = rest.strip_prefix("?(") {
        let end = filter_end(filter)?;
        return Some((Step::Filter(Filter::parse(&filter[..end])?), filter[end..].strip_prefix(")]")?));
    }
    let mut steps = Vec::new();
    loop {
        let (step, behind) = alternative(rest.trim_start())?;
        if steps.len() == STEPS_MAX {
            return None;
        }
        steps.push(step);
        let behind = behind.trim_start();
        if let Some(behind) = behind.strip_prefix(']') {
            let step = if steps.len() == 1 { steps.pop()? } else { Step::Union(steps.into()) };
            return Some((step, behind));
        }
        rest = behind.strip_prefix(',')?;
    }
}

/// One alternative between brackets, up to the `,` or `]` after it.
fn alternative(rest: &str) -> Option<(Step, &str)> {
    if let Some(quote) = rest.chars().next().filter(|char| matches!(char, '\'' | '"')) {
        let (name, behind) = quoted(&rest[1..], quote)?;
        return Some((Step::Field(name.into()), behind));
    }
    let (inside, behind) = rest.split_at(rest.find([',', ']'])?);
    let step = match inside.trim_end() {
        "*" => Step::Wildcard,
        inside if inside.contains(':') => slice(inside)?,
        inside => Step::Index(inside.parse().ok()?),
    };
    Some((step, behind))
}

fn slice(inside: &str) -> Option<Step> {
    let mut parts = inside.split(':');
    let mut number = || match parts.next().unwrap_or_default() {
        "" => Some(None),
        number => number.parse::<i64>().ok().map(Some),
    };
    let (start, end, step) = (number()?, number()?, number()?);
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    parts.next().is_none().then(|| Step::Slice { start: start.unwrap_or(0), end, step })
}

/// The position of the `)` that closes a filter: not inside a quoted string, nor of a nested filter.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(open), _) if char == open => quote = None,
            (None, '\'' | '"') => quote = Some(char),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return Some(at),
            (None, ')') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

/// The text up to its closing quote, and the rest after it.
pub(crate) fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => out.push(chars.next()?.1),
            _ if char == quote => return Some((out, &text[at + 1..])),
            _ => out.push(char),
        }
    }
    None
}
