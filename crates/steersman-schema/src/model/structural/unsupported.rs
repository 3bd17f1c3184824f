//! Keywords that keep a definition from being read as a structural schema at all. Its structure, its defaults and its rules are not checked
//! then.

use crate::model::structural::node::Node;
use steersman_machinery::Value;

/// The keywords, with the names that messages have for them.
const KEYWORDS: [(&str, &str); 7] = [
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
];

/// The sentence about the first such keyword, if there is one.
pub(crate) fn fault(node: Node<'_>) -> Option<String> {
    let is_there = |key: &str| match node.0.get(key) {
        // Even `additionalItems: false` is refused.
        Some(Value::Bool(_)) => true,
        Some(Value::Object(map)) => key == "additionalItems" || !map.is_empty(),
        _ => node.has(key),
    };
    if let Some((_, name)) = KEYWORDS.iter().find(|(key, _)| is_there(key)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if node.nodes("items").next().is_some() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let in_lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|key| node.nodes(key).map(|(_, each)| each));
    let below = ["items", "additionalProperties", "not"].into_iter().filter_map(|key| node.node(key));
    below.chain(node.properties().map(|(_, property)| property)).chain(in_lists).find_map(fault)
}
