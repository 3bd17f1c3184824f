//! The `autoscaling/v1 Scale` of an object: the answer of `/scale`, and the object that webhooks and policies get for a
//! write through it.

use crate::catalog::{Scale, ScaleSelector};
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
