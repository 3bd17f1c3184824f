//! One step of a field path, and the whole path.

use crate::ownership::fields::go;
use std::cmp::Ordering;
use std::fmt;
use steersman_machinery::Value;

/// One step of a field path. The order of the variants is their sort order.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Element {
    /// A field of a struct or a key of a map.
    Field(String),
    /// The item of a keyed list whose keys have these values, sorted by key.
    Key(Vec<(String, Literal)>),
    /// The item of a set with this value.
    Value(Literal),
    /// The item of a list at this index.
    Index(i64),
}

/// A JSON value with Kubernetes' comparison: `1` and `1.0` are equal.
#[derive(Clone, Debug)]
pub struct Literal(pub Value);

/// Steps from the root of an object; prints as `.spec.containers[name="c"].image`.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Path(pub Vec<Element>);

// === impl Literal ===

impl Ord for Literal {
    fn cmp(&self, other: &Literal) -> Ordering {
        order(&self.0, &other.0)
    }
}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Literal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

/// Whether two values are equal, with numbers compared by value and not by notation.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    order(a, b) == Ordering::Equal
}

/// The order: numbers, then strings, booleans, lists, objects and null.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first_difference = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|ordering| ordering.is_ne());
            first_difference.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a.iter().zip(b).map(|((a_key, a), (b_key, b))| a_key.cmp(b_key).then_with(|| order(a, b)));
            pairs.find(|ordering| ordering.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn order_numbers(a: &serde_json::Number, b: &serde_json::Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        // Adding zero makes -0.0 and 0.0 equal.
        _ => (a.as_f64().unwrap_or(f64::NAN) + 0.0).total_cmp(&(b.as_f64().unwrap_or(f64::NAN) + 0.0)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

// === impl Display ===

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                let keys: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", go::text(&value.0))).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", go::text(&value.0)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}
