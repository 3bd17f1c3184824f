//! The objects that are written: custom resources, their definitions, a Pod. All are artificial and of a known size.

use serde_json::{Value, json};

pub(crate) const GROUP: &str = "load.example.com";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The label of objects that a run creates outside its namespace.
pub(crate) const LABEL: &str = "load.example.com/bench";
/// All Widgets.
pub(crate) const WIDGETS: &str = "/apis/load.example.com/v1/widgets";
pub(crate) const DEFINITION_BYTES: usize = 18 * 1024;

/// The name of a Widget. All names have the same length, so that all objects have the same size.
pub(crate) fn widget_name(n: u64) -> String {
    format!("w-{n:07}")
}

pub(crate) fn widgets_path(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{namespace}/widgets")
}

/// A Widget in the form in which it is created and applied; `tag` pads it to its size.
pub(crate) fn widget(n: u64, replicas: u64, tag: &str) -> String {
    let name = widget_name(n);
    format!(
        r#"{{"apiVersion":"{GROUP}/v1","kind":"Widget","metadata":{{"name":"{name}","labels":{{"shard":"{}"}}}},"spec":{{"image":"app:{tag}","ports":[{{"name":"http","port":8080}}],"replicas":{replicas}}}}}"#,
        n % 10
    )
}

/// The definition of Widgets: a schema, a status subresource, columns.
pub(crate) fn widget_definition() -> String {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["image"], "properties": {
            "image": {"type": "string", "minLength": 1, "maxLength": 4096},
            "paused": {"type": "boolean"},
            "ports": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name", "port"], "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                    "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}}}},
            "replicas": {"type": "integer", "format": "int64", "minimum": 0}}},
        "status": {"type": "object", "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "readyReplicas": {"type": "integer", "format": "int64"}}}}});
    let columns = json!([
        {"name": "Image", "type": "string", "jsonPath": ".spec.image"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    definition(GROUP, "Widget", &schema, &columns).to_string()
}

/// The name and the definition of one of many kinds, of [`DEFINITION_BYTES`] each and ten per group.
pub(crate) fn large_definition(n: usize) -> (String, String) {
    let group = format!("g{}.{GROUP}", n / 10);
    let kind = format!("Large{n}");
    let mut properties = serde_json::Map::new();
    let mut text = String::new();
    while text.len() < DEFINITION_BYTES {
        for _ in 0..4 {
            let name = format!("field{}", properties.len());
            let described =
                format!("Says how the part named {name} of a made-up machine is to be set up, and by whom.");
            properties.insert(
                name,
                json!({"type": "object", "description": described, "required": ["name"], "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 63, "description": "Its name, a DNS label."},
                    "count": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
                    "mode": {"type": "string", "enum": ["Fast", "Slow", "Off"], "default": "Fast"},
                    "tags": {"type": "array", "maxItems": 32, "items": {"type": "string"}}}}),
            );
        }
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        text = definition(&group, &kind, &schema, &json!([])).to_string();
    }
    (format!("{}s.{group}", kind.to_lowercase()), text)
}

fn definition(group: &str, kind: &str, schema: &Value, columns: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": {LABEL: "true"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema}}]}})
}

/// A Pod with two containers that no scheduler places.
pub(crate) fn pod(name: &str) -> String {
    let container = |name: &str| {
        json!({"name": name, "image": "example/app:1.2.3", "args": ["--listen", ":8080", "--verbose"],
            "env": [{"name": "REGION", "value": "north"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "ports": [{"name": name, "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 5}})
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench", "turn": "0"}},
        "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [container("app"), container("proxy")]}})
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widgets_of_the_same_tag_are_of_the_same_size() {
        let (first, last) = (widget(0, 1, "x"), widget(999_999, 9, "x"));
        assert_eq!(first.len(), last.len());
        let read: Value = serde_json::from_str(&last).unwrap();
        assert_eq!(read["metadata"]["name"], "w-0999999");
    }

    #[test]
    fn large_definitions_are_as_large_as_they_say() {
        let (name, text) = large_definition(123);
        assert_eq!(name, "large123s.g12.load.example.com");
        assert!((DEFINITION_BYTES..DEFINITION_BYTES + 2048).contains(&text.len()), "{}", text.len());
    }
}
