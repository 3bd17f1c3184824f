//! Constant folding, as upstream optimizes: lists and maps of constants, conversions of constants, and membership tests
//! in constant lists are evaluated once at compile time, and cost nothing afterwards.
//!
//! A conversion that fails is an error at compile time.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::outcome::Implementation;
use crate::evaluation::plan::{Constant, Node};
use crate::evaluation::value::{Entries, Key, Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Conversions between types.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// A list whose items are all constant.
pub(super) fn list(nodes: &[Node], items: &[(u32, bool)]) -> Option<Node> {
    let values = items.iter().map(|(item, optional)| value(nodes, *item).filter(|_| !optional));
    values.collect::<Option<Vec<_>>>().map(|values| constant(Value::list(values)))
}

/// A map whose keys and values are all constant.
pub(super) fn map(nodes: &[Node], entries: &[(u32, u32, bool)]) -> Option<Node> {
    let mut map = BTreeMap::new();
    for (key, item, optional) in entries {
        if *optional {
            return None;
        }
        map.insert(Key::of(value(nodes, *key)?)?, value(nodes, *item)?);
    }
    Some(constant(Value::Map(Map(Entries::Values(Arc::new(map))))))
}

/// A call that can be folded, or has a simpler form.
pub(super) fn call(
    nodes: &[Node],
    function: &str,
    overload: Option<&str>,
    implementation: Implementation,
    args: &[u32],
) -> Option<Result<Node, EvalError>> {
    match args {
        [arg] if CONVERSIONS.contains(&function) => {
            let mut meter = Meter::new(u64::MAX);
            let converted = implementation(&mut meter, &[value(nodes, *arg)?])?;
            Some(converted.map(constant))
        }
        [left, right] if overload == Some("in_list") => match value(nodes, *right)? {
            Value::List(list) if list.len() == 0 => Some(Ok(constant(Value::Bool(false)))),
            Value::List(list) if list.iter().all(|item| item.is_ok_and(|item| item.is_scalar())) => {
                Some(Ok(Node::Among { value: *left, list: *right }))
            }
            _ => None,
        },
        _ => None,
    }
}

fn constant(value: Value<'static>) -> Node {
    Node::Const(Constant::Value(value))
}

/// The value of a constant node, without borrowed strings.
fn value(nodes: &[Node], id: u32) -> Option<Value<'static>> {
    match &nodes[id as usize] {
        Node::Const(constant) => Some(constant.to_value()),
        _ => None,
    }
}
