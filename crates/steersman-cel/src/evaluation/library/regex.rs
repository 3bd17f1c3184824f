//! Regular expressions: RE2's syntax, matched in linear time, with bounds on length and size at compile time.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::value::{Text, Value};
use steersman_schema::pattern::Pattern;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Regex(Pattern);

/// The kind of search.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Search {
    Find,
    FindAll,
    Matches,
}

impl Search {
    /// The search of a function.
    pub(crate) fn named(name: &str) -> Option<Search> {
        Some(match name {
            "find" => Search::Find,
            "findAll" => Search::FindAll,
            "matches" => Search::Matches,
            _ => return None,
        })
    }
}

impl Regex {
    /// A constant pattern of the expression.
    pub(crate) fn new(text: &str) -> Result<Regex, EvalError> {
        Pattern::check(text).map_err(|error| EvalError::new(error.to_string()))?;
        Ok(Regex(Pattern::new(text)))
    }

    /// A pattern known only at run time. Compiling it is charged as work by its weight.
    pub(crate) fn at_run_time(text: &str, meter: &mut Meter) -> Result<Regex, EvalError> {
        let weight = Pattern::check(text).map_err(|error| EvalError::new(error.to_string()))?;
        meter.work(weight.saturating_mul(4).saturating_add(1000))?;
        Ok(Regex(Pattern::new(text)))
    }

    /// The result of a search. A negative limit means no limit.
    pub(crate) fn search<'a>(
        &self,
        search: Search,
        text: &Text<'a>,
        limit: i64,
        meter: &mut Meter,
    ) -> Result<Value<'a>, EvalError> {
        meter.work(text.len())?;
        Ok(match search {
            Search::Matches => Value::Bool(self.0.is_match(text)),
            Search::Find => Value::text(self.0.find_iter(text).next().unwrap_or_default()),
            Search::FindAll => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let mut found = Vec::new();
                for part in self.0.find_iter(text).take(limit) {
                    // A separate value takes some tens of bytes, often more than its text.
                    meter.work(64 + part.len())?;
                    found.push(Value::text(part));
                }
                Value::list(found)
            }
        })
    }
}
