//! Filters of lists: `@.type=="Ready"`, `@.count>=3`, `@.name`.

use crate::json_path::search::{self, Visits};
use crate::json_path::{JsonPath, parse};
use std::cmp::Ordering;
use steersman_machinery::Value;

/// The condition that items of a list must meet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filter {
    left: Operand,
    /// None: the left side must exist.
    test: Option<(Operator, Operand)>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Operand {
    Literal(Value),
    /// A path that begins at the item.
    Path(JsonPath),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operator {
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    NotEqual,
}

impl Filter {
    /// Parses the text between `?(` and `)`.
    pub(crate) fn parse(text: &str) -> Option<Filter> {
        let Some(start) = text.find(['=', '!', '<', '>']).filter(|start| !is_quoted(text, *start)) else {
            return Some(Filter { left: Operand::parse(text)?, test: None });
        };
        let (left, rest) = text.split_at(start);
        let end = rest.find(|char| !matches!(char, '=' | '!' | '<' | '>'))?;
        let operator = match &rest[..end] {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => return None,
        };
        Some(Filter { left: Operand::parse(left)?, test: Some((operator, Operand::parse(&rest[end..])?)) })
    }

    /// Whether an item matches. Values that cannot be compared do not match.
    pub(crate) fn matches(&self, item: &Value, visits: &mut Visits<'_>) -> bool {
        let Some(left) = self.left.value(item, visits) else { return false };
        let Some((operator, right)) = &self.test else { return true };
        let Some(right) = right.value(item, visits) else { return false };
        let Some(order) = compare(left, right) else { return false };
        match operator {
            Operator::Equal => order.is_eq(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::NotEqual => order.is_ne(),
        }
    }
}

impl Operand {
    fn parse(text: &str) -> Option<Operand> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix('@') {
            let path = if path.is_empty() { "." } else { path };
            return Some(Operand::Path(JsonPath { text: path.into(), steps: parse::steps(path).ok()?.into() }));
        }
        let quoted = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        if let Some(quote) = quoted {
            let (literal, rest) = parse::quoted(&text[1..], quote)?;
            return rest.is_empty().then(|| Operand::Literal(Value::from(literal)));
        }
        serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_array() && !value.is_object())
            .map(Operand::Literal)
    }

    fn value<'v>(&'v self, item: &'v Value, visits: &mut Visits<'_>) -> Option<&'v Value> {
        match self {
            Operand::Literal(value) => Some(value),
            Operand::Path(path) => search::first(&path.steps, item, visits),
        }
    }
}

/// Whether a position lies inside a quoted string.
fn is_quoted(text: &str, place: usize) -> bool {
    let mut quote = None;
    for char in text[..place].chars() {
        match quote {
            None if matches!(char, '\'' | '"') => quote = Some(char),
            Some(open) if char == open => quote = None,
            None | Some(_) => {}
        }
    }
    quote.is_some()
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        _ => None,
    }
}
