//! The JSONPath of printer columns: what client-go's `jsonpath` reads, as far as one value is wanted.
//!
//! `.a.b`, `['a']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `.*`, `..a`, `[0,2]` and filters such as `[?(@.type=="Ready")]`. The
//! first value found is the one shown.

use std::cmp::Ordering;
use steersman_machinery::Value;

/// How deep `..` looks.
const DEPTH_MAX: usize = 64;

/// A path to the value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ColumnPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Everything,
    Field(String),
    Filter(Filter),
    Index(i64),
    Recursive,
    Slice(Option<i64>, Option<i64>, i64),
    Union(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// None: the left side is there.
    test: Option<(Operator, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    /// From the item that is tested.
    Path(ColumnPath),
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

impl ColumnPath {
    /// Reads a path; none if it cannot be read.
    pub(super) fn parse(path: &str) -> Option<ColumnPath> {
        let mut steps = Vec::new();
        let mut rest = path.strip_prefix('$').unwrap_or(path);
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.extend(step);
            rest = after;
        }
        Some(ColumnPath(steps))
    }

    /// The first value that the path leads to.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.select(value)).collect();
        }
        found.into_iter().next()
    }
}

impl Step {
    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Everything => children(value),
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Filter(filter) => children(value).into_iter().filter(|item| filter.holds(item)).collect(),
            Step::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                place(*index, items.len()).and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Recursive => {
                let mut all = Vec::new();
                descendants(value, 0, &mut all);
                all
            }
            Step::Slice(from, to, by) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let from = from.map_or(Some(0), |from| place(from, items.len())).unwrap_or(items.len());
                let to =
                    to.map_or(Some(items.len()), |to| place(to, items.len())).unwrap_or(items.len()).min(items.len());
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                items.get(from..to).into_iter().flatten().step_by(by).collect()
            }
            Step::Union(steps) => steps.iter().flat_map(|step| step.select(value)).collect(),
        }
    }
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let Some((operator, right)) = &self.test else { return self.left.value(item).is_some() };
        let (Some(left), Some(right)) = (self.left.value(item), right.value(item)) else { return false };
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (left, right) => (left == right).then_some(Ordering::Equal),
        };
        match operator {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
            Operator::NotEqual => order != Some(Ordering::Equal),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Operand::Literal(value) => Some(value),
            Operand::Path(path) => path.first(item),
        }
    }
}

/// The index of an item; negative ones count from the end.
fn place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn descendants<'a>(value: &'a Value, depth: usize, all: &mut Vec<&'a Value>) {
    all.push(value);
    if depth < DEPTH_MAX {
        children(value).into_iter().for_each(|child| descendants(child, depth + 1, all));
    }
}

/// Reads one step (none for a single dot) and gives what follows.
fn step(path: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = path.strip_prefix("..") {
        return match rest.starts_with('[') || rest.is_empty() {
            true => Some((Some(Step::Recursive), rest)),
            // The name after the two dots is read as that of a field of each.
            false => Some((Some(Step::Recursive), &path[1..])),
        };
    }
    if let Some(rest) = path.strip_prefix('[') {
        let end = closing(rest)?;
        return Some((Some(bracket(rest[..end].trim())?), &rest[end + 1..]));
    }
    let rest = path.strip_prefix('.').unwrap_or(path);
    if rest.is_empty() || rest.starts_with('[') {
        return Some((None, rest));
    }
    let mut name = String::new();
    let mut chars = rest.char_indices();
    let mut end = rest.len();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            _ => name.push(char),
        }
    }
    let step = if name == "*" { Step::Everything } else { Step::Field(name) };
    (end > 0).then(|| (Some(step), &rest[end..]))
}

/// Where the bracket that is open here closes, quotes and inner brackets aside.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (_, '\\') => {
                chars.next();
            }
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(char),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// What stands between brackets.
fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::Everything);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return filter_of(filter.trim()).map(Step::Filter);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name));
    }
    if text.contains(',') {
        let steps: Option<Vec<Step>> = text.split(',').map(|part| bracket(part.trim())).collect();
        return steps.map(Step::Union);
    }
    if text.contains(':') {
        let number = |part: Option<&str>| match part.map(str::trim) {
            None | Some("") => Some(None),
            Some(text) => text.parse().ok().map(Some),
        };
        let mut parts = text.split(':');
        let (from, to, by) = (number(parts.next())?, number(parts.next())?, number(parts.next())?);
        return parts.next().is_none().then(|| Step::Slice(from, to, by.unwrap_or(1)));
    }
    text.parse().ok().map(Step::Index)
}

fn filter_of(text: &str) -> Option<Filter> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let mut quote = None;
    for (at, char) in text.char_indices() {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(char),
            (None, _) => {
                let here = OPERATORS.iter().find(|(sign, _)| text[at..].starts_with(sign));
                if let Some((sign, operator)) = here {
                    let right = operand(text[at + sign.len()..].trim())?;
                    return Some(Filter { left: operand(text[..at].trim())?, test: Some((*operator, right)) });
                }
            }
        }
    }
    Some(Filter { left: operand(text)?, test: None })
}

fn operand(text: &str) -> Option<Operand> {
    if let Some(path) = text.strip_prefix('@') {
        return ColumnPath::parse(path).map(Operand::Path);
    }
    if let Some(text) = quoted(text) {
        return Some(Operand::Literal(Value::from(text)));
    }
    // What is left is a number or a flag.
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_number() || value.is_boolean()).then_some(Operand::Literal(value))
}

fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|char| matches!(char, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains(quote)).then(|| inner.replace("\\.", "."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(path: &str, want: Option<Value>) {
        let object = json!({
            "spec": {"a": {"b": 1}, "dotted.key": 2, "list": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}], "flag": true},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let found = ColumnPath::parse(path).unwrap().first(&object).cloned();
        assert_eq!(found, want, "{path}");
    }

    #[test]
    fn paths_lead_where_kubectl_goes() {
        check(".spec.a.b", Some(json!(1)));
        check(".spec['a'].b", Some(json!(1)));
        check(r".spec.dotted\.key", Some(json!(2)));
        check(".spec['dotted.key']", Some(json!(2)));
        check(".spec.list[1].n", Some(json!(2)));
        check(".spec.list[-1].t", Some(json!("y")));
        check(".spec.list[5].t", None);
        check(".spec.list[*].n", Some(json!(1)));
        check(".spec.list[1:].n", Some(json!(2)));
        check(".spec.list[0:1].t", Some(json!("x")));
        check(".spec.list[1,0].n", Some(json!(2)));
        check("..status.conditions[0].status", Some(json!("False")));
        check("..b", Some(json!(1)));
        check(".spec.missing.deeper", None);
        check(r#".status.conditions[?(@.type=="Ready")].status"#, Some(json!("True")));
        check(".status.conditions[?(@.type=='Ready')].status", Some(json!("True")));
        check(".status.conditions[?(@.type != 'Ready')].status", Some(json!("False")));
        check(".spec.list[?(@.n > 1)].t", Some(json!("y")));
        check(".spec.list[?(@.missing)].t", None);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [".a[", ".a[?(@.b==)]", ".a[x]", ".a[1:2:3:4]"] {
            assert_eq!(ColumnPath::parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[.a\\[\\]'\"?(@)=<>*:0-9,\\\\]{0,24}|\\PC{0,12}") {
            if let Some(path) = ColumnPath::parse(&text) {
                let _ = path.first(&json!({"a": [{"a": 1}, "a", {"": [0]}]}));
            }
        }
    }
}
