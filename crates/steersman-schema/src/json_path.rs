//! The JSONPath of custom resource definitions: `.spec.a[0].b`, `.a['x.y']`, `.a\.b`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Scale paths and selectable fields name one place ([`JsonPath::is_simple`]); printer columns may also search, and show the
//! first thing found. What clients send for `-o jsonpath` is theirs to evaluate.

mod filter;
mod parse;

use crate::json_path::filter::Filter;
use std::fmt;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

/// A parsed path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonPath {
    text: Box<str>,
    steps: Box<[Step]>,
}

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// `..`: everything below that holds something, and here. Once in a path.
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

    /// What is there; the first found, if the path searches.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        if self.is_simple() {
            return self.steps.iter().try_fold(value, |here, step| step.one(here));
        }
        self.find(value).first().copied()
    }

    /// All that is found, in the order of the object.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for here in found {
                step.walk(here, &mut next);
            }
            found = next;
        }
        found
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
                Step::Descendants | Step::Filter(_) | Step::Slice { .. } | Step::Wildcard => None,
            };
            let Some(next) = next else { return false };
            here = next;
        }
        *here = new;
        true
    }
}

impl Step {
    /// The one thing that a simple step leads to.
    fn one<'v>(&self, here: &'v Value) -> Option<&'v Value> {
        match self {
            Step::Field(name) => here.as_object()?.get(name.as_ref()),
            Step::Index(index) => {
                let items = here.as_array()?;
                items.get(place(*index, items.len())?)
            }
            Step::Descendants | Step::Filter(_) | Step::Slice { .. } | Step::Wildcard => None,
        }
    }

    fn walk<'v>(&self, here: &'v Value, found: &mut Vec<&'v Value>) {
        match self {
            Step::Field(_) | Step::Index(_) => found.extend(self.one(here)),
            Step::Descendants => descend(here, found),
            Step::Filter(filter) => {
                let items = here.as_array().into_iter().flatten();
                found.extend(items.filter(|item| filter.matches(item)));
            }
            Step::Slice { start, end, step } => {
                let Some(items) = here.as_array() else { return };
                let bound =
                    |bound: i64| if bound < 0 { place(bound, items.len()) } else { usize::try_from(bound).ok() };
                let start = bound(*start).unwrap_or_default();
                let end = end.map_or(Some(items.len()), bound).unwrap_or_default().min(items.len());
                found.extend(items.get(start..end).into_iter().flatten().step_by(*step));
            }
            Step::Wildcard => found.extend(children(here)),
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

fn descend<'v>(here: &'v Value, found: &mut Vec<&'v Value>) {
    if here.is_array() || here.is_object() {
        found.push(here);
        children(here).for_each(|child| descend(child, found));
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
