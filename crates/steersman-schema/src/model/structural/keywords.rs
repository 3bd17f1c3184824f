//! The OpenAPI keywords that Kubernetes allows, and where.

use crate::model::structural::merging::merging;
use crate::model::structural::node::Node;
use crate::model::structural::rules::rules;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::Map;

/// Checks the keywords of a definition.
pub(crate) fn check(root: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    open_api(root, path, Where { is_root: true, in_meta: false, no_defaults: None }, errors);
}

#[derive(Clone, Copy)]
struct Where {
    is_root: bool,
    in_meta: bool,
    /// Why a default is not allowed here, if so.
    no_defaults: Option<&'static str>,
}

fn open_api(node: Node<'_>, path: &Path, place: Where, errors: &mut Vec<Error>) {
    keywords(node, path, place, errors);
    let inner = Where { is_root: false, ..place };
    // Both true and false count as present.
    if let Some(additional) = node.0.get("additionalProperties").filter(|value| !value.is_null()) {
        let path = path.child("additionalProperties");
        if node.properties().next().is_some() && *additional != Value::Bool(true) {
            errors.push(Error::forbidden(&path, "additionalProperties and properties are mutual exclusive"));
        }
        let no_defaults = match place.in_meta {
            true => Some("inside additionalProperties applying to object metadata"),
            false => place.no_defaults,
        };
        if additional.is_object() {
            open_api(Node(additional), &path, Where { no_defaults, ..inner }, errors);
        }
    }
    for (name, property) in node.properties() {
        let is_meta = (place.is_root || node.is_embedded()) && matches!(name, "apiVersion" | "kind" | "metadata");
        let no_defaults = match (is_meta && place.is_root, name) {
            (true, "apiVersion") => Some("in top-level apiVersion"),
            (true, "kind") => Some("in top-level kind"),
            (true, _) => Some("in top-level metadata"),
            (false, _) => place.no_defaults,
        };
        let place = Where { in_meta: place.in_meta || is_meta, no_defaults, ..inner };
        open_api(property, &path.child("properties").key(name), place, errors);
    }
    if let Some(not) = node.node("not") {
        open_api(not, &path.child("not"), inner, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, each) in node.nodes(key) {
            open_api(each, &path.child(key).index(index), inner, errors);
        }
    }
    for (name, definition) in node.named("definitions") {
        open_api(definition, &path.child("definitions").key(name), inner, errors);
    }
    if let Some(items) = node.node("items") {
        open_api(items, &path.child("items"), inner, errors);
    }
    for (index, each) in node.nodes("items") {
        open_api(each, &path.child("items").index(index), inner, errors);
    }
    merging(node, path, errors);
    rules(node, path, errors);
}

fn keywords(node: Node<'_>, path: &Path, place: Where, errors: &mut Vec<Error>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let mut forbid = |key: &str, detail: &str| errors.push(Error::forbidden(&path.child(key), detail));
    if node.0.get("default").is_some_and(|default| !default.is_null())
        && let Some(why) = place.no_defaults
    {
        forbid("default", &format!("must not be set {why}"));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        // An empty map counts as absent.
        let is_empty_map = matches!(key, "patternProperties" | "definitions")
            && node.get(key).and_then(Value::as_object).is_some_and(Map::is_empty);
        // Even `additionalItems: false` is refused.
        let is_there = node.has(key) || node.0.get(key) == Some(&Value::Bool(false));
        if is_there && !is_empty_map {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    if node.text("type") == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if node.nodes("items").next().is_some() {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_meta && node.is_embedded() {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if node.flag("uniqueItems") {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
    let value_type = node.text("type");
    if !value_type.is_empty() && !TYPES.contains(&value_type) {
        errors.push(Error::not_supported(&path.child("type"), value_type, &TYPES));
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if node.0.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(Error::invalid(&path.child(preserve), false, "must be true or undefined"));
    }
}
