//! The JSONPath of custom resource definitions: `.spec.a[0].b`, `.a['x.y']`, `.a\.b`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Scale paths and selectable fields name one value ([`JsonPath::is_simple`]); printer columns may also search, and
//! show the first match. Clients evaluate `-o jsonpath` themselves.

mod filter;
mod parse;
mod search;

use crate::json_path::filter::Filter;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

pub use crate::json_path::search::Visits;

/// Longer paths are refused. The longest paths of real definitions are a fifth of it.
pub const PATH_BYTES_MAX: usize = 1024;

/// Paths of more steps are refused: each level of a real object takes at most two.
pub const STEPS_MAX: usize = 64;

/// A parsed path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonPath {
    text: Box<str>,
    steps: Box<[Step]>,
}

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// `..`: the value itself and every object and list below it. Never twice in a row, which would find nothing more.
    Descendants,
    Field(Box<str>),
    /// `[?(@.a=="b")]`
    Filter(Filter),
    /// The index of an item; a negative one counts from the end.
    Index(i64),
    /// `[1:5:2]`; a negative bound counts from the end.
    Slice {
        start: i64,
        end: Option<i64>,
        step: usize,
    },
    /// `[0,2]`, `['a','b']`: the matches of each step, in order.
    Union(Box<[Step]>),
    /// `*`
    Wildcard,
}

/// Why a text is not a path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// An invalid step, with its offset.
    #[error("must be a json path in the dot notation: {text:?} cannot be read from byte {offset}")]
    BadStep { text: String, offset: usize },
    #[error("must not be empty")]
    Empty,
    #[error("must be a simple json path starting with .")]
    NoDot,
    #[error("must have at most {PATH_BYTES_MAX} bytes, not {bytes}: name the place from its nearest field on")]
    TooLong { bytes: usize },
    #[error("must have at most {STEPS_MAX} steps")]
    TooManySteps,
}

impl JsonPath {
    /// Parses a path; `.` alone is the whole object.
    ///
    /// # Errors
    /// When it does not start with a dot, or a step is invalid.
    pub fn parse(text: &str) -> Result<JsonPath, ParseError> {
        Ok(JsonPath { text: text.into(), steps: parse::steps(text)?.into() })
    }

    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The steps, from the object down.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether it names one value: it only has fields and indexes.
    pub fn is_simple(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Field(_) | Step::Index(_)))
    }

    /// The value at the path; the first match, if the path searches. A search that visits the same values too often
    /// finds nothing.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.get_within(value, &mut Visits::of(value))
    }

    /// The same, for one of several paths that share their visits.
    pub fn get_within<'v>(&self, value: &'v Value, visits: &mut Visits<'_>) -> Option<&'v Value> {
        visits.begin_path();
        search::first(&self.steps, value, visits)
    }

    /// Sets the value at the path; objects on the way are created, lists are not. False if a value on the way has
    /// another type, or the path searches.
    pub fn set(&self, value: &mut Value, new: Value) -> bool {
        let mut here = value;
        for step in &self.steps {
            let next = match step {
                Step::Field(name) => {
                    if here.is_null() {
                        *here = Value::Object(Map::new());
                    }
                    here.as_object_mut().map(|fields| fields.entry(name.as_ref()).or_insert(Value::Null))
                }
                Step::Index(index) => here.as_array_mut().and_then(|items| {
                    let place = place(*index, items.len())?;
                    items.get_mut(place)
                }),
                Step::Descendants | Step::Filter(_) | Step::Slice { .. } | Step::Union(_) | Step::Wildcard => None,
            };
            let Some(next) = next else { return false };
            here = next;
        }
        *here = new;
        true
    }
}

fn place(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index.unsigned_abs()).ok()? {
        back if index < 0 => length.checked_sub(back),
        place => Some(place),
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
