//! The `autoscaling/v1 Scale` of an object: the answer of `/scale`, and the object that webhooks and policies get for a
//! write through it.

use crate::builtin::rules::cells;
use crate::catalog::{Resource, Scale, ScaleSelector};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::{Value, value};

/// The Scale of an object.
pub fn read(scale: &Scale, object: &Value) -> Value {
    let number = |path: &steersman_schema::JsonPath| path.get(object).and_then(Value::as_i64).unwrap_or(0);
    let mut made = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {"replicas": number(&scale.spec)},
        "status": {"replicas": number(&scale.status)},
    });
    for key in ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"] {
        if let Some(kept) = value::at(object, &["metadata", key]) {
            made["metadata"][key] = kept.clone();
        }
    }
    let selector = match &scale.selector {
        None => None,
        Some(ScaleSelector::Text(path)) => path.get(object).and_then(Value::as_str).map(str::to_owned),
        Some(ScaleSelector::Object(path)) => path.get(object).map(selector_text),
        Some(ScaleSelector::Labels(path)) => {
            path.get(object).map(|labels| selector_text(&json!({ "matchLabels": labels })))
        }
    };
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        made["status"]["selector"] = selector.into();
    }
    if made["spec"]["replicas"] == json!(0) {
        made["spec"] = json!({});
    }
    made
}

/// The table of a Scale, as a version of `meta.k8s.io`. Upstream describes the columns of custom resources in other words.
pub fn table(resource: &Resource, scale: &Value, meta_version: &str, now: Timestamp) -> Value {
    let (format, age) = if resource.is_custom() { ("name", "date") } else { ("", "string") };
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    let number = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let metadata = &scale["metadata"];
    let version = metadata.get("resourceVersion");
    json!({
        "kind": "Table", "apiVersion": meta_version,
        "metadata": version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version})),
        "columnDefinitions": [
            column("Name", "string", format, "The name of the object that is scaled."),
            column("Desired", "integer", "", "The number of replicas that it should have."),
            column("Available", "integer", "", "The number of replicas that it has."),
            column("Age", age, "", "The time since the object was created."),
        ],
        "rows": [{
            "cells": [cells::name(scale), number("spec"), number("status"), cells::age(scale, now)],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata},
        }],
    })
}

/// A `LabelSelector` in its text form.
fn selector_text(selector: &Value) -> String {
    let mut terms = Vec::new();
    for (key, label) in value::at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
        terms.push(format!("{key}={}", label.as_str().unwrap_or("")));
    }
    for expression in value::at(selector, &["matchExpressions"]).and_then(Value::as_array).into_iter().flatten() {
        let key = value::str_at(expression, &["key"]).unwrap_or("");
        let values: Vec<&str> = value::at(expression, &["values"])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        terms.push(match value::str_at(expression, &["operator"]) {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_schema::JsonPath;

    #[test]
    fn a_map_of_labels_is_a_selector() {
        let scale = Scale {
            spec: JsonPath::parse(".spec.replicas").unwrap(),
            status: JsonPath::parse(".status.replicas").unwrap(),
            selector: Some(ScaleSelector::Labels(JsonPath::parse(".spec.selector").unwrap())),
        };
        let object = json!({"spec": {"selector": {"a": "b", "c": "d"}}});
        assert_eq!(read(&scale, &object)["status"]["selector"], "a=b,c=d");
    }

    #[test]
    fn a_table_of_a_scale_has_the_numbers_of_replicas() {
        let scale = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"replicas": 2}, "status": {"replicas": 0}});
        let resource = crate::builtin::resources(&crate::runtime_config::RuntimeConfig::default()).remove(0);
        let table = table(&resource, &scale, "meta.k8s.io/v1", Timestamp::UNIX_EPOCH);
        assert_eq!(table["rows"][0]["cells"], json!(["a", 2, 0, "<unknown>"]));
        assert_eq!(table["rows"][0]["object"]["metadata"], scale["metadata"]);
        let names =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["Name", "Desired", "Available", "Age"]);
    }

    #[test]
    fn a_scale_says_what_the_paths_say() {
        let scale = Scale {
            spec: JsonPath::parse(".spec.count").unwrap(),
            status: JsonPath::parse(".status.count").unwrap(),
            selector: Some(ScaleSelector::Object(JsonPath::parse(".spec.selector").unwrap())),
        };
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}},
            "spec": {"count": 3, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}},
            "status": {"count": 2}
        });
        assert_eq!(
            read(&scale, &object),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "uid": "u"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b,c in (d)"}
            })
        );
    }
}
