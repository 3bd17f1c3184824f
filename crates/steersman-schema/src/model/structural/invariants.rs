//! The rules of structural schemas: types are specified outside of alternatives, and every restricted field is also
//! specified there.

use crate::model::structural::node::Node;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::Map;

#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Level {
    Field,
    Item,
    Root,
}

pub(crate) fn invariants(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    if node.text("type") == "array" && !node.has("items") {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = node.node("items") {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    // `additionalProperties: false` counts as specified.
    if let Some(additional) = node.0.get("additionalProperties").filter(|value| !value.is_null()) {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(Error::forbidden(&path, "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(Node(additional), Level::Field, &path, errors);
        }
        if node.is_embedded() {
            errors.push(Error::forbidden(&path, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    extensions(node, path, errors);
    let any_of_is_type = is_int_or_string(node);
    let all_of_is_type = node.nodes("allOf").next().is_some_and(|(_, first)| is_int_or_string(first));
    restrictions(node, any_of_is_type, all_of_is_type, path, errors);
    value_type(node, level, path, errors);
    meta(node, level, path, errors);
}

fn extensions(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.flag("x-kubernetes-int-or-string") && node.flag(key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(Error::invalid(&path.child(key), true, detail));
        }
    }
    if node.is_embedded() && !node.flag("x-kubernetes-preserve-unknown-fields") && node.properties().next().is_none() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.child("properties"), detail));
    }
}

fn value_type(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    let (value_type, path) = (node.text("type"), path.child("type"));
    let is_free = node.flag("x-kubernetes-int-or-string") || node.flag("x-kubernetes-preserve-unknown-fields");
    if node.is_embedded() && value_type != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match value_type {
            "" => Error::required(&path, detail),
            other => Error::invalid(&path, other, detail),
        });
    } else if value_type.is_empty() && !is_free {
        let detail = match level {
            Level::Field => "must not be empty for specified object fields",
            Level::Item => "must not be empty for specified array items",
            Level::Root => "must not be empty at the root",
        };
        errors.push(Error::required(&path, detail));
    }
    if level == Level::Root && !value_type.is_empty() && value_type != "object" {
        errors.push(Error::invalid(&path, value_type, "must be object at the root"));
    }
}

/// The restrictions that a schema may have for `apiVersion`, `kind` and `metadata`.
fn meta(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    let is_resource = level == Level::Root || node.is_embedded();
    let path = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = node.property(name).filter(|property| is_resource && property.text("type") != "string")
        {
            errors.push(Error::invalid(&path.key(name).child("type"), property.text("type"), "must be string"));
        }
    }
    let Some(metadata) = node.property("metadata") else { return };
    let path = path.key("metadata");
    if is_resource && metadata.text("type") != "object" {
        errors.push(Error::invalid(&path.child("type"), metadata.text("type"), "must be object"));
    }
    let only_names = metadata.properties().all(|(name, _)| matches!(name, "name" | "generateName"));
    let says_more = metadata
        .0
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .any(|key| !matches!(key.as_str(), "default" | "properties" | "type") && metadata.has(key));
    if level == Level::Root && (!only_names || says_more) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(Error::forbidden(&path, detail));
    }
}

/// The only types allowed inside `anyOf`: integer or string, in this order.
fn is_int_or_string(node: Node<'_>) -> bool {
    let types: Vec<&Value> = node.nodes("anyOf").map(|(_, each)| each.0).collect();
    let is_only = |value: &Value, name: &str| {
        value.as_object().is_some_and(|fields| fields.len() == 1)
            && value.get("type").and_then(Value::as_str) == Some(name)
    };
    matches!(types.as_slice(), [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

/// The restrictions in alternatives. Their patterns are checked for the definition as a whole.
fn restrictions(node: Node<'_>, skip_any_of: bool, skip_in_all_of: bool, path: &Path, errors: &mut Vec<Error>) {
    if !skip_any_of {
        for (index, each) in node.nodes("anyOf") {
            nested(each, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, each) in node.nodes("allOf") {
        nested(each, skip_in_all_of && index == 0, &path.child("allOf").index(index), errors);
    }
    for (index, each) in node.nodes("oneOf") {
        nested(each, false, &path.child("oneOf").index(index), errors);
    }
    if let Some(not) = node.node("not") {
        nested(not, false, &path.child("not"), errors);
    }
}

fn nested(node: Node<'_>, skip_any_of: bool, path: &Path, errors: &mut Vec<Error>) {
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    restrictions(node, skip_any_of, false, path, errors);
    if let Some(items) = node.node("items") {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    if node.node("additionalProperties").is_some() {
        errors.push(Error::forbidden(&path.child("additionalProperties"), "must be undefined to be structural"));
    }
    for (key, detail) in FORBIDDEN {
        // A default may be any value, including an empty one.
        if node.has(key) || (key == "default" && node.0.get(key).is_some_and(|default| !default.is_null())) {
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
    if node.property("metadata").is_some() {
        let path = path.child("properties").key("metadata");
        errors.push(Error::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Every restricted field must be specified.
pub(crate) fn complete(node: Node<'_>, said: Option<Node<'_>>, said_path: &Path, path: &Path, errors: &mut Vec<Error>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, each) in node.nodes(key) {
            complete_nested(each, said, said_path, &path.child(key).index(index), errors);
        }
    }
    if let Some(not) = node.node("not") {
        complete_nested(not, said, said_path, &path.child("not"), errors);
    }
}

fn complete_nested(node: Node<'_>, said: Option<Node<'_>>, said_path: &Path, path: &Path, errors: &mut Vec<Error>) {
    let Some(said) = said else {
        return errors.push(Error::required(said_path, format!("because it is defined in {path}")));
    };
    complete(node, Some(said), said_path, path, errors);
    if let Some(items) = node.node("items") {
        complete_nested(items, said.node("items"), &said_path.child("items"), &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        let said_path = said_path.child("properties").key(name);
        complete_nested(property, said.property(name), &said_path, &path.child("properties").key(name), errors);
    }
}
