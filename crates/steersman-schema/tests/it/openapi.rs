//! Compares schemas written as OpenAPI with recordings of a real server.

use serde_json::json;
use steersman_machinery::{GroupVersionKind, Value};
use steersman_schema::openapi::{self, Version};
use steersman_schema::{Definitions, Edition, structural};

fn v3(name: &str) -> Value {
    openapi::definition_json(Edition::Kubernetes, name, Version::V3).unwrap()
}

fn v2(name: &str) -> Value {
    openapi::definition_json(Edition::Kubernetes, name, Version::V2).unwrap()
}

#[test]
fn a_definition_names_its_kind_and_wraps_its_references() {
    let job = v3("io.k8s.api.batch.v1.Job");
    assert_eq!(job["x-kubernetes-group-version-kind"], json!([{"group": "batch", "kind": "Job", "version": "v1"}]));
    assert_eq!(
        job["properties"]["spec"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.batch.v1.JobSpec"}])
    );
    assert_eq!(job["properties"]["spec"]["default"], json!({}));
    assert_eq!((&job["type"], &job["properties"]["apiVersion"]["type"]), (&json!("object"), &json!("string")));
    let spec = v3("io.k8s.api.batch.v1.JobSpec");
    let words = |of: &Value| of["description"].clone();
    let parallelism = &spec["properties"]["parallelism"];
    assert_eq!(*parallelism, json!({"type": "integer", "format": "int32", "description": words(parallelism)}));
    assert_eq!(spec["required"], json!(["template"]));
    let job = v2("io.k8s.api.batch.v1.Job");
    let spec = &job["properties"]["spec"];
    assert_eq!(*spec, json!({"$ref": "#/definitions/io.k8s.api.batch.v1.JobSpec", "description": words(spec)}));
}

#[test]
fn what_patches_rest_on_is_printed() {
    let pod = v3("io.k8s.api.core.v1.PodSpec");
    let containers = &pod["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["items"]["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]));
    assert_eq!(pod["properties"]["tolerations"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(pod["properties"]["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(pod["properties"]["nodeSelector"]["x-kubernetes-map-type"], "atomic");
    assert_eq!(pod["properties"]["nodeSelector"]["additionalProperties"], json!({"type": "string", "default": ""}));
    assert_eq!(v3("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference")["x-kubernetes-map-type"], "atomic");
    let ports = &v2("io.k8s.api.core.v1.ServiceSpec")["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
    assert_eq!(
        v2("io.k8s.api.core.v1.ConfigMap")["properties"]["data"]["additionalProperties"],
        json!({"type": "string"})
    );
}

#[test]
fn special_types_are_printed_as_clients_know_them() {
    let int_or_string = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
    assert_eq!(v2(int_or_string), json!({"type": "string", "format": "int-or-string"}));
    assert_eq!(
        v3(int_or_string),
        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
    );
    let quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity";
    assert_eq!(v3(quantity), json!({"oneOf": [{"type": "string"}, {"type": "number"}]}));
    assert_eq!(v2(quantity), json!({"type": "string"}));
    let limits = &v3("io.k8s.api.core.v1.ResourceRequirements")["properties"]["limits"]["additionalProperties"];
    assert_eq!(limits, &json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}));
    let data = &v3("io.k8s.api.core.v1.Secret")["properties"]["data"]["additionalProperties"];
    assert_eq!(data, &json!({"type": "string", "format": "byte"}));
    assert_eq!(v3("io.k8s.api.core.v1.ContainerPort")["properties"]["protocol"]["default"], "TCP");
}

#[test]
fn a_closure_holds_everything_that_is_referred_to() {
    let found = openapi::closure(Edition::Kubernetes, ["io.k8s.api.batch.v1.JobList"]);
    for name in
        ["io.k8s.api.batch.v1.JobList", "io.k8s.api.core.v1.Container", "io.k8s.apimachinery.pkg.apis.meta.v1.Time"]
    {
        assert!(found.contains(name), "{name}");
    }
    assert!(!found.contains("io.k8s.api.apps.v1.Deployment"));
    let all: Vec<&str> = Definitions::builtin().iter().map(|definition| definition.name()).collect();
    assert_eq!(openapi::closure(Edition::Kubernetes, all.iter().copied()).len(), all.len());
}

/// The definition in the recordings.
fn gadget() -> (std::sync::Arc<steersman_schema::Schema>, GroupVersionKind) {
    let definition = json!({"type":"object","properties":{"spec":{"type":"object","required":["size"],"properties":{
        "size":{"type":"integer","minimum":1},"replicas":{"type":"integer"},"port":{"x-kubernetes-int-or-string":true},
        "tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}}},
        "status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}});
    (structural::compile(&definition), GroupVersionKind::new("stable.example.com", "v1", "Gadget"))
}

#[test]
fn a_custom_resource_is_printed_as_recorded() {
    let (schema, gvk) = gadget();
    let out = openapi::custom_resource(&schema, &gvk, &["spec.size"], Version::V3);
    assert_eq!(
        out["properties"]["spec"],
        json!({"properties": {"port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}, "replicas": {"type": "integer"}, "size": {"minimum": 1, "type": "integer"}, "tags": {"items": {"type": "string"}, "type": "array", "x-kubernetes-list-type": "set"}}, "required": ["size"], "type": "object"})
    );
    assert_eq!(out["properties"]["status"], json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(
        out["x-kubernetes-group-version-kind"],
        json!([{"group": "stable.example.com", "kind": "Gadget", "version": "v1"}])
    );
    let names: Vec<&String> = out["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["apiVersion", "kind", "metadata", "spec", "status"]);
    assert_eq!(out["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.size"}]));
    assert_eq!(openapi::custom_definition_name(&gvk), "com.example.stable.v1.Gadget");
    let list = openapi::custom_resource_list(
        &GroupVersionKind::new("stable.example.com", "v1", "GadgetList"),
        "com.example.stable.v1.Gadget",
        Version::V3,
    );
    assert_eq!(
        list["properties"]["items"]["items"],
        json!({"$ref": "#/components/schemas/com.example.stable.v1.Gadget"})
    );
}

#[test]
fn version_2_is_loosened() {
    let (schema, gvk) = gadget();
    let out = openapi::custom_resource(&schema, &gvk, &["spec.size"], Version::V2);
    assert_eq!(out["properties"]["spec"]["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(out["properties"]["status"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    let metadata = &out["properties"]["metadata"];
    assert_eq!(metadata["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    assert!(metadata["description"].is_string());
    let loose = structural::compile(&json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "object", "nullable": true, "properties": {"x": {"type": "string"}}},
        "b": {"type": "array", "items": {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "x"}]}}}}));
    assert_eq!(
        openapi::schema_json(&loose, Version::V2),
        json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "array", "items": {"type": "string"}}}})
    );
    let any = structural::compile(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(
        openapi::custom_resource(&any, &gvk, &[], Version::V2),
        json!({"type": "object", "x-kubernetes-group-version-kind": [{"group": "stable.example.com", "kind": "Gadget", "version": "v1"}]})
    );
}

#[test]
fn all_that_a_definition_says_is_printed_in_version_3() {
    let definition = json!({
        "type": "object", "description": "d", "title": "t", "externalDocs": {"url": "u"}, "example": {"a": 1},
        "x-kubernetes-validations": [{"rule": "true"}], "minProperties": 1, "maxProperties": 9,
        "oneOf": [{"required": ["n"]}, {"not": {"required": ["n"]}}],
        "properties": {
            "n": {"type": "number", "minimum": 0.5, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": true, "multipleOf": 0.5, "format": "double"},
            "s": {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^a", "default": "a", "enum": ["a", "b"], "nullable": true},
            "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            "m": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "f": {"type": "object", "additionalProperties": true},
        },
    });
    assert_eq!(openapi::schema_json(&structural::compile(&definition), Version::V3), definition);
    let embedded = structural::compile(
        &json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
    );
    let out = openapi::schema_json(&embedded, Version::V3);
    assert_eq!(out["required"], json!(["kind", "apiVersion"]));
    assert!(out["properties"]["metadata"].is_object());
}

#[test]
fn what_initializers_had_is_in_the_edition_with_them_alone() {
    const CONFIGURATION: &str = "io.k8s.api.admissionregistration.v1alpha1.InitializerConfiguration";
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(openapi::definition_json(Edition::Kubernetes, CONFIGURATION, Version::V3), None);
    assert_eq!(v3(META)["properties"].get("initializers"), None);
    let with = |name| openapi::definition_json(Edition::WithInitializers, name, Version::V2).unwrap();
    assert_eq!(
        with(CONFIGURATION)["x-kubernetes-group-version-kind"],
        json!([{"group": "admissionregistration.k8s.io", "version": "v1alpha1", "kind": "InitializerConfiguration"}])
    );
    let initializers = with(META)["properties"]["initializers"].clone();
    assert_eq!(initializers["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Initializers");
    let pod = openapi::closure(Edition::WithInitializers, ["io.k8s.api.core.v1.Pod"]);
    assert!(pod.contains("io.k8s.apimachinery.pkg.apis.meta.v1.Initializer"));
}

#[test]
fn webhooks_policies_and_rules_are_explained_field_by_field() {
    let kinds = [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ];
    let roots = kinds.map(|kind| format!("io.k8s.api.admissionregistration.v1.{kind}"));
    let names = openapi::closure(Edition::Kubernetes, roots.iter().map(String::as_str));
    let names = names.into_iter().filter(|name| name.contains(".admissionregistration.")).map(str::to_owned);
    let kinds = ["CustomResourceConversion", "ValidationRule", "WebhookClientConfig", "WebhookConversion"];
    let definitions = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    for name in names.chain(kinds.map(|kind| format!("{definitions}.{kind}"))) {
        let definition = v3(&name);
        assert!(definition["description"].is_string(), "{name} is not explained");
        let Some(Value::Object(fields)) = definition.get("properties") else { continue };
        for (field, property) in fields {
            assert!(property["description"].is_string(), "{field} of {name} is not explained");
        }
    }
}
