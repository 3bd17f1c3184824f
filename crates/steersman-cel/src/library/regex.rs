//! Regular expressions: RE2's syntax, matched in linear time, bounded in length and size when they are compiled.

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{Text, Value};
use steersman_schema::pattern::Pattern;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Regex(Pattern);

/// What a pattern is looked for with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Search {
    Find,
    FindAll,
    Matches,
}

impl Search {
    /// The search that a function is.
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
    /// A pattern of the expression itself.
    pub(crate) fn new(text: &str) -> Result<Regex, EvalError> {
        Pattern::check(text).map_err(|error| EvalError::new(error.to_string()))?;
        Ok(Regex(Pattern::new(text)))
    }

    /// A pattern that is known at run time only. To compile it is work, the more the heavier it is.
    pub(crate) fn at_run_time(text: &str, meter: &mut Meter) -> Result<Regex, EvalError> {
        let weight = Pattern::check(text).map_err(|error| EvalError::new(error.to_string()))?;
        meter.work(weight.saturating_mul(4).saturating_add(1000))?;
        Ok(Regex(Pattern::new(text)))
    }

    /// What a search finds. A negative limit is none.
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
                    // A value of its own is some tens of bytes, and often longer than the text.
                    meter.work(64 + part.len())?;
                    found.push(Value::text(part));
                }
                Value::list(found)
            }
        })
    }
}
