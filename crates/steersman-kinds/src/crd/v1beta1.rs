//! The form of definitions before Kubernetes 1.22: one version's name at the top, and schema, subresources and columns
//! either there or in the versions.

use crate::crd::{flag, list, shared, text, texts};
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::value::{at, object_at, remove_at};
use steersman_machinery::{Value, field};
use steersman_schema::Schema;

/// The name of the version.
pub(super) const NAME: &str = "v1beta1";
/// The deprecation warning.
pub(super) const DEPRECATION: &str = "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated; use apiextensions.k8s.io/v1 CustomResourceDefinition";

/// The schema of the version.
pub(super) fn schema() -> Arc<Schema> {
    Arc::new(Schema::from_json(&written()))
}

/// The schema in an OpenAPI document, with this prefix of references.
pub(super) fn open_api(prefix: &str) -> Value {
    fn print(value: &mut Value, prefix: &str) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| print(item, prefix)),
            Value::Object(fields) => {
                fields.remove("x-zero");
                if let Some(Value::String(name)) = fields.get_mut("$ref") {
                    name.insert_str(0, prefix);
                }
                fields.values_mut().for_each(|field| print(field, prefix));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut schema = written();
    print(&mut schema, prefix);
    schema
}

/// The schema as written; the parts that are equal in `v1` refer to it.
fn written() -> Value {
    let v1 = |name: &str| json!({"$ref": format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}")});
    let text = || json!({"type": "string", "x-zero": "omit"});
    let needed = || json!({"type": "string", "x-zero": "write"});
    let flag = || json!({"type": "boolean", "x-zero": "omit"});
    let column = json!({"type": "object", "required": ["name", "type", "JSONPath"], "properties": {
        "name": needed(), "type": needed(), "format": text(), "description": text(), "JSONPath": needed(),
        "priority": {"type": "integer", "format": "int32", "x-zero": "omit"},
    }});
    let columns = json!({"type": "array", "items": column, "x-zero": "omit", "x-kubernetes-list-type": "atomic"});
    let selectable =
        json!({"type": "array", "items": v1("SelectableField"), "x-zero": "omit", "x-kubernetes-list-type": "atomic"});
    let texts =
        json!({"type": "array", "items": {"type": "string"}, "x-zero": "omit", "x-kubernetes-list-type": "atomic"});
    let version = json!({"type": "object", "required": ["name", "served", "storage"], "properties": {
        "name": needed(),
        "served": {"type": "boolean", "x-zero": "write"},
        "storage": {"type": "boolean", "x-zero": "write"},
        "deprecated": flag(), "deprecationWarning": {"type": "string"},
        "schema": v1("CustomResourceValidation"),
        "subresources": v1("CustomResourceSubresources"),
        "additionalPrinterColumns": columns, "selectableFields": selectable,
    }});
    let conversion = json!({"type": "object", "required": ["strategy"], "properties": {
        "strategy": needed(), "webhookClientConfig": v1("WebhookClientConfig"), "conversionReviewVersions": texts,
    }});
    let spec = json!({"type": "object", "required": ["group", "names", "scope"], "properties": {
        "group": needed(), "version": text(), "names": v1("CustomResourceDefinitionNames"), "scope": needed(),
        "validation": v1("CustomResourceValidation"),
        "subresources": v1("CustomResourceSubresources"),
        "versions": {"type": "array", "items": version, "x-zero": "omit", "x-kubernetes-list-type": "atomic"},
        "additionalPrinterColumns": columns, "selectableFields": selectable,
        "conversion": conversion,
        "preserveUnknownFields": {"type": "boolean"},
    }});
    json!({"type": "object", "required": ["spec"], "properties": {
        "apiVersion": text(), "kind": text(),
        "metadata": {"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
        "spec": spec,
        "status": v1("CustomResourceDefinitionStatus"),
    }})
}

/// Sets the defaults.
pub(super) fn default(value: &mut Value) {
    let Some(spec) = object_at(value, &["spec"]) else { return };
    let given = |spec: &serde_json::Map<String, Value>, key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if spec.get("scope").and_then(Value::as_str).unwrap_or_default().is_empty() {
        spec.insert("scope".to_owned(), json!("Namespaced"));
    }
    let name = spec.get("version").and_then(Value::as_str).unwrap_or_default().to_owned();
    let has_versions = spec.get("versions").and_then(Value::as_array).is_some_and(|versions| !versions.is_empty());
    if !has_versions && !name.is_empty() {
        spec.insert("versions".to_owned(), json!([{"name": name, "served": true, "storage": true}]));
    }
    if has_versions && name.is_empty() {
        let first = spec["versions"][0].get("name").cloned().unwrap_or_default();
        spec.insert("version".to_owned(), first);
    }
    if !given(spec, "preserveUnknownFields") {
        spec.insert("preserveUnknownFields".to_owned(), json!(true));
    }
    let is_webhook = spec.get("conversion").is_some_and(|conversion| text(conversion, &["strategy"]) == "Webhook");
    if is_webhook && list(&spec["conversion"], &["conversionReviewVersions"]).is_empty() {
        spec["conversion"]["conversionReviewVersions"] = json!(["v1beta1"]);
    }
}

/// The errors that the internal form cannot show: keys that are both at the top and in a version.
pub(super) fn errors(value: &Value) -> Vec<field::Error> {
    let spec = field::Path::new("spec");
    let versions = list(value, &["spec", "versions"]);
    let mut errors = Vec::new();
    for (key, top) in shared::KEYS {
        let is_twice = value.get("spec").is_some_and(|spec| shared::said(spec, top).is_some())
            && versions.iter().any(|version| shared::said(version, key).is_some());
        if is_twice {
            let noun = if key == "schema" { "schemas" } else { key };
            let detail = format!("top-level and per-version {noun} are mutually exclusive");
            errors.push(field::Error::forbidden(&spec.child(top), detail));
        }
    }
    let (name, first) = (text(value, &["spec", "version"]), versions.first().map(|version| text(version, &["name"])));
    if !name.is_empty() && first.is_some_and(|first| first != name) {
        let detail = "must match the first version in spec.versions";
        errors.push(field::Error::invalid(&spec.child("version"), name, detail));
    }
    errors
}

/// Converts a defaulted definition to the internal form.
pub(super) fn to_internal(mut value: Value) -> Value {
    for (key, top) in shared::KEYS {
        let Some(said) = remove_at(&mut value, &["spec", top]).filter(|said| !said.is_null()) else { continue };
        for version in versions_mut(&mut value) {
            if shared::said(version, key).is_none() {
                version[key] = said.clone();
            }
        }
    }
    versions_mut(&mut value).iter_mut().for_each(|version| rename_paths(version, "JSONPath", "jsonPath"));
    remove_at(&mut value, &["spec", "version"]);
    if !flag(&value, &["spec", "preserveUnknownFields"]) {
        remove_at(&mut value, &["spec", "preserveUnknownFields"]);
    }
    let config = remove_at(&mut value, &["spec", "conversion", "webhookClientConfig"]);
    let reviews = remove_at(&mut value, &["spec", "conversion", "conversionReviewVersions"]);
    if config.is_some() || reviews.is_some() {
        let mut webhook = serde_json::Map::new();
        webhook.extend(config.map(|config| ("clientConfig".to_owned(), config)));
        webhook.extend(reviews.map(|reviews| ("conversionReviewVersions".to_owned(), reviews)));
        value["spec"]["conversion"]["webhook"] = Value::Object(webhook);
    }
    value["apiVersion"] = json!("apiextensions.k8s.io/v1");
    value
}

/// Converts the internal form to this version.
pub(super) fn from_internal(mut value: Value) -> Value {
    versions_mut(&mut value).iter_mut().for_each(|version| rename_paths(version, "jsonPath", "JSONPath"));
    for (key, top) in shared::KEYS {
        if !shared::is_shared(list(&value, &["spec", "versions"]), key) {
            continue;
        }
        let mut said = None;
        for version in versions_mut(&mut value) {
            said = version.as_object_mut().and_then(|version| version.remove(key)).or(said);
        }
        if let (Some(said), Some(spec)) = (said, object_at(&mut value, &["spec"])) {
            spec.insert(top.to_owned(), said);
        }
    }
    let first = list(&value, &["spec", "versions"]).first().and_then(|version| version.get("name")).cloned();
    let keeps = flag(&value, &["spec", "preserveUnknownFields"]);
    let webhook = remove_at(&mut value, &["spec", "conversion", "webhook"]);
    if let Some(spec) = object_at(&mut value, &["spec"]) {
        spec.extend(first.map(|first| ("version".to_owned(), first)));
        spec.insert("preserveUnknownFields".to_owned(), json!(keeps));
    }
    if let (Some(webhook), Some(conversion)) = (webhook, object_at(&mut value, &["spec", "conversion"])) {
        if let Some(config) = at(&webhook, &["clientConfig"]) {
            conversion.insert("webhookClientConfig".to_owned(), config.clone());
        }
        conversion.insert("conversionReviewVersions".to_owned(), json!(texts(&webhook, &["conversionReviewVersions"])));
    }
    value["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    value
}

fn versions_mut(value: &mut Value) -> &mut [Value] {
    let spec = value.get_mut("spec").and_then(Value::as_object_mut);
    let versions = spec.and_then(|spec| spec.get_mut("versions")).and_then(Value::as_array_mut);
    versions.map(Vec::as_mut_slice).unwrap_or_default()
}

/// Renames the path of columns, which has different names in the two forms.
fn rename_paths(version: &mut Value, from: &str, to: &str) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.to_owned(), path);
        }
    }
}
