//! Checks how a definition's lists and maps merge.

use crate::model::structural::node::Node;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

/// Checks the merge keywords of one schema.
pub(crate) fn merging(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    let (value_type, list, map) =
        (node.text("type"), node.text("x-kubernetes-list-type"), node.text("x-kubernetes-map-type"));
    let must_be = |wanted: &str, key: &str| {
        let detail = format!("must be {wanted} if {key} is specified");
        match value_type {
            "" => Error::required(&path.child("type"), detail),
            other => Error::invalid(&path.child("type"), other, detail),
        }
    };
    if !map.is_empty() && value_type != "object" {
        errors.push(must_be("object", "x-kubernetes-map-type"));
    }
    if !matches!(map, "" | "atomic" | "granular") {
        errors.push(Error::not_supported(&path.child("x-kubernetes-map-type"), map, &["atomic", "granular"]));
    }
    let items = node.node("items");
    if !list.is_empty() && value_type != "array" {
        errors.push(must_be("array", "x-kubernetes-list-type"));
    } else if let Some(items) = items.filter(|_| list == "set") {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let key = match items.text("type") {
            "array" if !matches!(items.text("x-kubernetes-list-type"), "" | "atomic") => "x-kubernetes-list-type",
            "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
            _ => "",
        };
        if !key.is_empty() {
            let have = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
            errors.push(Error::invalid(&path.child("items").child(key), have, detail));
        }
    }
    let list_path = path.child("x-kubernetes-list-type");
    if !matches!(list, "" | "atomic" | "map" | "set") {
        errors.push(Error::not_supported(&list_path, list, &["atomic", "set", "map"]));
    }
    if node.has("x-kubernetes-list-map-keys") && list != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list {
            "" => Error::required(&list_path, detail),
            other => Error::invalid(&list_path, other, detail),
        });
    }
    if list == "map" {
        map_keys(node, path, errors);
    }
    if let Some(items) = items.filter(|_| matches!(list, "map" | "set")) {
        keys_are_there(node, items, list, path, errors);
    }
}

fn map_keys(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    let keys = node.texts("x-kubernetes-list-map-keys");
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(Error::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = node.node("items") else {
        if !node.has("items") {
            errors.push(Error::required(&path.child("items"), "must have a schema if x-kubernetes-list-type is map"));
        }
        return;
    };
    let path = path.child("items");
    if items.text("type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.push(Error::invalid(&path.child("type"), items.text("type"), detail));
    }
    let all = || Value::from(keys.clone());
    for (index, key) in keys.iter().enumerate() {
        match items.property(key).map(|property| property.text("type")) {
            Some("array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let path = path.child("properties").key(key).child("type");
                errors.push(Error::invalid(&path, items.text("type"), detail));
            }
            Some(_) => {}
            None => errors.push(Error::invalid(&keys_path, all(), "entries must all be names of item properties")),
        }
        if keys[..index].contains(key) {
            errors.push(Error::invalid(&keys_path, all(), "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and maps must not be nullable, and the keys of a map's items must be required or have defaults.
fn keys_are_there(node: Node<'_>, items: Node<'_>, list: &str, path: &Path, errors: &mut Vec<Error>) {
    let path = path.child("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(Error::forbidden(&path.child("nullable"), detail));
    }
    if list != "map" {
        return;
    }
    let required = items.texts("required");
    for key in node.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.property(key) else { continue };
        let path = path.child("properties").key(key);
        if !required.contains(&key) && property.0.get("default").is_none_or(Value::is_null) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&path.child("default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&path.child("nullable"), detail));
        }
    }
}
