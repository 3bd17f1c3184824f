//! Values of matches, with what Envoy would refuse.

use crate::pilot::world::route::TextMatch;
use crate::pilot::world::verdict::Problem;

/// The size of a compiled expression, and how deep it may nest. Envoy has a bound of its own; this one keeps the check cheap.
const REGEX_LENGTH_MAX: usize = 4_096;
const REGEX_NESTING_MAX: u32 = 50;

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
    let refused =
        |why: String| Problem::unsupported(format!("the regular expression {pattern:?} cannot be used: {why}"));
    if pattern.len() > REGEX_LENGTH_MAX {
        return Err(Problem::unsupported(format!(
            "a regular expression has {} bytes: at most {REGEX_LENGTH_MAX} are supported",
            pattern.len()
        )));
    }
    let mut parser = regex_syntax::ast::parse::ParserBuilder::new().nest_limit(REGEX_NESTING_MAX).build();
    parser.parse(pattern).map_err(|error| refused(error.kind().to_string()))?;
    Ok(pattern.to_owned())
}

/// Drops all but the first of those whose names are equal, as the Gateway API wants it. `same` is the form of a name in which it
/// is compared.
pub(crate) fn first_of_each<V>(pairs: Vec<(String, V)>, same: impl Fn(&str) -> String) -> Vec<(String, V)> {
    let mut seen = std::collections::BTreeSet::new();
    pairs.into_iter().filter(|(name, _)| seen.insert(same(name))).collect()
}

/// `text` as a part of an expression that matches it alone.
pub(crate) fn quoted(text: &str) -> String {
    regex_syntax::escape(text)
}
