//! The JSONPath of custom resource definitions: `.spec.a[0].b`, `.a['x.y']`, `.a\.b`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Scale paths and selectable fields name one place ([`JsonPath::is_simple`]); printer columns may also search, and show the
//! first thing found. What clients send for `-o jsonpath` is theirs to evaluate.

mod filter;
mod parse;
mod search;

use crate::json_path::filter::Filter;
use crate::json_path::search::Visits;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// Longer paths are not read. The longest that definitions in the wild carry are a fifth of it.
pub const PATH_BYTES_MAX: usize = 1024;

/// Paths of more steps are not read: each level of a real object is at most two of them.
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
    /// `..`: everything below that holds something, and here. Never twice in a row, which would find nothing more.
    Descendants,
    Field(Box<str>),
    /// `[?(@.a=="b")]`
    Filter(Filter),
    /// From the end if negative.
    Index(i64),
    /// `[1:5:2]`; a bound counts from the end if negative.
    Slice {
        start: i64,
        end: Option<i64>,
        step: usize,
    },
    /// `[0,2]`, `['a','b']`: what each leads to, in their order.
    Union(Box<[Step]>),
    /// `*`
    Wildcard,
}

/// A text that is no path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A step that is none, with where it starts.
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
    /// Reads a path; `.` alone is the whole object.
    ///
    /// # Errors
    /// When it does not start with a dot, or a step is none.
    pub fn parse(text: &str) -> Result<JsonPath, ParseError> {
        Ok(JsonPath { text: text.into(), steps: parse::steps(text)?.into() })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its steps from the object down.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// It names one place: fields and places in lists only.
    pub fn is_simple(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Field(_) | Step::Index(_)))
    }

    /// What is there; the first found, if the path searches. A search that goes over the same values again and again ends
    /// with nothing.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        search::first(&self.steps, value, &mut Visits::of(value))
    }

    /// Puts something there; objects on the way are made, lists are not. False if the way is barred, or the path searches.
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
