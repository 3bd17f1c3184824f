//! Values of matches, with what Envoy would refuse.

use crate::pilot::world::expression;
use crate::pilot::world::route::TextMatch;
use crate::pilot::world::verdict::Problem;

/// The most characters of a value that a message quotes.
const QUOTED_MAX: usize = 200;

/// Whether a match compares values or expressions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Comparison {
    Exact,
    Regex,
}

/// The match of `value`.
///
/// # Errors
/// The expression is none.
pub(crate) fn text_match(comparison: Comparison, value: &str) -> Result<TextMatch, Problem> {
    match comparison {
        Comparison::Exact => Ok(TextMatch::Exact(value.to_owned())),
        Comparison::Regex => regex(value).map(TextMatch::Regex),
    }
}

/// Checks an expression: Envoy refuses a whole table of routes for one that it cannot read.
///
/// # Errors
/// It cannot be read.
pub(crate) fn regex(pattern: &str) -> Result<String, Problem> {
    expression::check(pattern).map_err(|why| {
        Problem::unsupported(format!("the regular expression {} cannot be used: {why}", shown(pattern)))
    })?;
    Ok(pattern.to_owned())
}

/// Checks a value that Envoy writes into a header, as it does with paths and hosts: it refuses a whole table of routes for one with
/// a line break. `place` is the field that has it.
///
/// # Errors
/// It has such a character.
pub(crate) fn header_value(place: &str, value: &str) -> Result<String, Problem> {
    if value.contains(['\0', '\r', '\n']) {
        let message = format!("{place} has the value {} with a line break or a NUL", shown(value));
        return Err(Problem::unsupported(message));
    }
    Ok(value.to_owned())
}

fn shown(value: &str) -> String {
    match value.char_indices().nth(QUOTED_MAX) {
        None => format!("{value:?}"),
        Some((end, _)) => format!("{:?}...", &value[..end]),
    }
}

/// Drops all but the first of those whose names are equal, as the Gateway API wants it. `same` is the form of a name in which it
/// is compared.
pub(crate) fn first_of_each<V>(pairs: Vec<(String, V)>, same: impl Fn(&str) -> String) -> Vec<(String, V)> {
    let mut seen = std::collections::BTreeSet::new();
    pairs.into_iter().filter(|(name, _)| seen.insert(same(name))).collect()
}

/// The expression that finds `prefix` at the beginning of a path, with the slashes after it.
pub(crate) fn leading(prefix: &str) -> String {
    format!("^{}/*", quoted(prefix))
}

/// `text` as a part of an expression that matches it alone.
pub(crate) fn quoted(text: &str) -> String {
    regex_syntax::escape(text)
}
