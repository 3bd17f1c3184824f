//! Compares the documents with recorded answers of a real server.

use crate::http::documents::discovery::tests::built_in;
use crate::http::documents::openapi::{Document, OpenApi};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use steersman_kinds::catalog::{Catalog, Change, Handling, Resource, Scale, Subresource, Verb};
use steersman_kinds::crd;
use steersman_machinery::GroupVersionKind;
use steersman_schema::json_path::JsonPath;

fn gadgets(generation: u64) -> Arc<Resource> {
    crd::custom_resources(&json!({
        "metadata": {"name": "gadgets.example.com", "generation": generation},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [{
            "name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer", "minimum": generation}, "replicas": {"type": "integer"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                }},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }]},
        "status": {"acceptedNames": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}},
    }))
    .unwrap()
}

fn catalog(generation: u64) -> Arc<Catalog> {
    let with_status = |mut resource: Resource| {
        resource.versions[0].has_status = true;
        resource
    };
    let exec = Subresource {
        name: "exec".into(),
        kind: GroupVersionKind::new("", "v1", "PodExecOptions"),
        verbs: vec![Verb::Create, Verb::Get],
        handling: Handling::Connect,
    };
    let eviction = Subresource {
        name: "eviction".into(),
        kind: GroupVersionKind::new("policy", "v1", "Eviction"),
        verbs: vec![Verb::Create],
        handling: Handling::Connect,
    };
    let mut deployments = with_status(built_in("apps", "v1", "deployments", "Deployment", Vec::new()));
    let path = |path| JsonPath::parse(path).unwrap();
    deployments.versions[0].scale =
        Some(Scale { spec: path(".spec.replicas"), status: path(".status.replicas"), selector: None });
    Arc::new(Catalog::new([
        Arc::new(with_status(built_in("batch", "v1", "jobs", "Job", Vec::new()))),
        Arc::new(with_status(built_in("batch", "v1", "cronjobs", "CronJob", Vec::new()))),
        Arc::new(with_status(built_in("", "v1", "pods", "Pod", vec![eviction, exec]))),
        Arc::new(built_in("", "v1", "configmaps", "ConfigMap", Vec::new())),
        Arc::new(deployments),
        crd::resource(),
        gadgets(generation),
    ]))
}

fn read(document: &Document) -> Value {
    let value: Value = serde_json::from_slice(&document.bytes).unwrap();
    assert_eq!(document.hash.len(), 128);
    value
}

fn document(path: &str) -> Value {
    read(&OpenApi::new(&catalog(1)).document(path).unwrap())
}

/// Checks that every reference in a document can be resolved within it.
#[track_caller]
fn has_no_loose_ends(document: &Value) {
    fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(document, &mut found);
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
}

#[test]
fn the_index_names_a_document_per_group_version_with_its_hash() {
    let openapi = OpenApi::new(&catalog(1));
    let index: Value = serde_json::from_slice(&openapi.index()).unwrap();
    let paths: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "api",
            "api/v1",
            "apis",
            "apis/apiextensions.k8s.io",
            "apis/apiextensions.k8s.io/v1",
            "apis/apiextensions.k8s.io/v1beta1",
            "apis/apps",
            "apis/apps/v1",
            "apis/batch",
            "apis/batch/v1",
            "apis/example.com/v1",
            "version",
        ]
    );
    for path in paths {
        let document = openapi.document(path).unwrap();
        assert_eq!(index["paths"][path]["serverRelativeURL"], format!("/openapi/v3/{path}?hash={}", document.hash));
        has_no_loose_ends(&read(&document));
    }
    assert!(openapi.document("apis/nobody.example.com/v1").is_none());
}

#[test]
fn a_change_of_one_group_leaves_the_others_alone() {
    let before = OpenApi::new(&catalog(1));
    let hash = |openapi: &OpenApi, path: &str| openapi.document(path).unwrap().hash;
    let (batch, example) = (hash(&before, "apis/batch/v1"), hash(&before, "apis/example.com/v1"));
    let after = before.after(&catalog(2));
    assert_eq!(hash(&after, "apis/batch/v1"), batch);
    assert_eq!(hash(&OpenApi::new(&catalog(2)), "apis/batch/v1"), batch);
    assert_ne!(hash(&after, "apis/example.com/v1"), example);
}

#[test]
fn version_2_renders_again_what_changed_alone() {
    let first = catalog(1);
    let before = OpenApi::new(&first);
    before.v2();
    let gadgets = gadgets(2);
    let change = Change { name: gadgets.group_resource(), resource: Some(gadgets) };
    let after = before.after(&first.after(&[change]));
    let rendered = after.entries().map(|entry| (entry.path.key(), entry.part.get().is_some()));
    let anew: Vec<String> = rendered.filter(|(_, is_rendered)| !is_rendered).map(|(key, _)| key).collect();
    assert_eq!(anew, ["apis/example.com/v1"]);
    assert_eq!(after.v2().bytes, OpenApi::new(&catalog(2)).v2().bytes);
    assert_ne!(after.v2().hash, before.v2().hash);
}

#[test]
fn the_paths_of_a_group_version_are_those_recorded() {
    let document = document("apis/batch/v1");
    let lines: Vec<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, item)| {
            let methods: Vec<&str> =
                item.as_object().unwrap().keys().map(String::as_str).filter(|key| *key != "parameters").collect();
            format!("{path} {}", methods.join(" "))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "/apis/batch/v1/ get",
            "/apis/batch/v1/cronjobs get",
            "/apis/batch/v1/jobs get",
            "/apis/batch/v1/namespaces/{namespace}/cronjobs delete get post",
            "/apis/batch/v1/namespaces/{namespace}/cronjobs/{name} delete get patch put",
            "/apis/batch/v1/namespaces/{namespace}/cronjobs/{name}/status get patch put",
            "/apis/batch/v1/namespaces/{namespace}/jobs delete get post",
            "/apis/batch/v1/namespaces/{namespace}/jobs/{name} delete get patch put",
            "/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status get patch put",
            "/apis/batch/v1/watch/cronjobs get",
            "/apis/batch/v1/watch/jobs get",
            "/apis/batch/v1/watch/namespaces/{namespace}/cronjobs get",
            "/apis/batch/v1/watch/namespaces/{namespace}/cronjobs/{name} get",
            "/apis/batch/v1/watch/namespaces/{namespace}/jobs get",
            "/apis/batch/v1/watch/namespaces/{namespace}/jobs/{name} get",
        ]
    );
}

#[test]
fn an_operation_is_described_as_recorded() {
    let document = document("apis/batch/v1");
    let item = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"];
    let patch = &item["patch"];
    assert_eq!(
        (&patch["operationId"], &patch["tags"], &patch["x-kubernetes-action"]),
        (&json!("patchBatchV1NamespacedJob"), &json!(["batch_v1"]), &json!("patch"))
    );
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "batch", "kind": "Job", "version": "v1"}));
    let mut parameters: Vec<String> = [&patch["parameters"], &item["parameters"]]
        .into_iter()
        .flat_map(|parameters| parameters.as_array().unwrap())
        .map(|parameter| format!("{}:{}", parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap()))
        .collect();
    parameters.sort();
    assert_eq!(
        parameters,
        [
            "dryRun:query",
            "fieldManager:query",
            "fieldValidation:query",
            "force:query",
            "name:path",
            "namespace:path",
            "pretty:query"
        ]
    );
    let body = patch["requestBody"]["content"].as_object().unwrap();
    assert_eq!(
        body.keys().collect::<Vec<_>>(),
        [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json"
        ]
    );
    let job = json!({"schema": {"$ref": "#/components/schemas/io.k8s.api.batch.v1.Job"}});
    for code in ["200", "201"] {
        assert_eq!(
            patch["responses"][code]["content"],
            json!({"application/json": job, "application/yaml": job, "application/vnd.kubernetes.protobuf": job})
        );
    }
    assert_eq!(patch["responses"]["401"].get("content"), None);
}

#[test]
fn operations_are_named_as_generated_clients_expect() {
    let id = |path: &str, at: &str, method: &str| {
        document(path)["paths"][at][method]["operationId"].as_str().unwrap().to_owned()
    };
    for (path, at, method, want) in [
        ("api/v1", "/api/v1/pods", "get", "listCoreV1PodForAllNamespaces"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "put", "replaceCoreV1NamespacedPod"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post", "createCoreV1NamespacedPodEviction"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/exec", "get", "connectCoreV1GetNamespacedPodExec"),
        ("api/v1", "/api/v1/watch/pods", "get", "watchCoreV1PodListForAllNamespaces"),
        ("api/v1", "/api/v1/", "get", "getCoreV1APIResources"),
        (
            "apis/apps/v1",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            "patch",
            "patchAppsV1NamespacedDeploymentScale",
        ),
        (
            "apis/apiextensions.k8s.io/v1",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "post",
            "createApiextensionsV1CustomResourceDefinition",
        ),
        ("apis/example.com/v1", "/apis/example.com/v1/gadgets", "get", "listExampleComV1GadgetForAllNamespaces"),
        ("apis/apps", "/apis/apps/", "get", "getAppsAPIGroup"),
        ("apis", "/apis/", "get", "getAPIVersions"),
        ("version", "/version/", "get", "getCodeVersion"),
    ] {
        assert_eq!(id(path, at, method), want);
    }
}

#[test]
fn schemas_say_what_patches_rest_on() {
    let document = document("apis/batch/v1");
    let schemas = &document["components"]["schemas"];
    let job = &schemas["io.k8s.api.batch.v1.Job"];
    assert_eq!(job["x-kubernetes-group-version-kind"], json!([{"group": "batch", "kind": "Job", "version": "v1"}]));
    assert_eq!(
        job["properties"]["spec"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.batch.v1.JobSpec"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(
        (&containers["x-kubernetes-list-map-keys"], &containers["x-kubernetes-patch-strategy"]),
        (&json!(["name"]), &json!("merge"))
    );
    assert_eq!(document["components"]["securitySchemes"]["BearerToken"]["type"], "apiKey");
    assert_eq!((&document["openapi"], &document["info"]["title"]), (&json!("3.0.0"), &json!("Kubernetes")));
}

#[test]
fn a_custom_resource_is_described_as_recorded() {
    let document = document("apis/example.com/v1");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let own: Vec<&String> = schemas.keys().filter(|name| name.contains("Gadget")).collect();
    assert_eq!(own, ["com.example.v1.Gadget", "com.example.v1.GadgetList"]);
    let gadget = &schemas["com.example.v1.Gadget"];
    assert_eq!(
        gadget["properties"]["spec"],
        json!({
            "type": "object", "required": ["size"],
            "properties": {
                "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
                "replicas": {"type": "integer"}, "size": {"minimum": 1, "type": "integer"},
                "tags": {"items": {"type": "string"}, "type": "array", "x-kubernetes-list-type": "set"},
            },
        })
    );
    let fields: Vec<&String> = gadget["properties"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["apiVersion", "kind", "metadata", "spec", "status"]);
    for field in ["apiVersion", "kind", "metadata"] {
        assert!(gadget["properties"][field]["description"].is_string(), "kubectl explain has words for {field}");
    }
    // Tools search the output of kubectl explain for these beginnings of upstream's sentences.
    let says = |description: &Value, words: &str| description.as_str().unwrap_or_default().contains(words);
    assert!(says(&gadget["properties"]["apiVersion"]["description"], "APIVersion defines"));
    assert!(says(&gadget["properties"]["metadata"]["description"], "Standard object's metadata"));
    let metadata = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    assert!(says(&metadata["creationTimestamp"]["description"], "CreationTimestamp is a timestamp"));
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "/apis/example.com/v1/gadgets",
            "/apis/example.com/v1/namespaces/{namespace}/gadgets",
            "/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}",
            "/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}/scale",
            "/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}/status",
        ]
    );
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let types: Vec<&String> = patch["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(types, ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]);
}

#[test]
fn the_definitions_of_2018_have_a_document_too() {
    let document = document("apis/apiextensions.k8s.io/v1beta1");
    let schemas = &document["components"]["schemas"];
    let own = &schemas["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition"];
    assert_eq!(
        own["x-kubernetes-group-version-kind"],
        json!([{"group": "apiextensions.k8s.io", "version": "v1beta1", "kind": "CustomResourceDefinition"}])
    );
    assert!(own["properties"]["spec"]["properties"]["version"].is_object());
    assert!(schemas["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"].is_object());
}

#[test]
fn version_2_is_one_document_of_all() {
    let openapi = OpenApi::new(&catalog(1));
    let document = read(&openapi.v2());
    assert_eq!((&document["swagger"], &document["info"]["title"]), (&json!("2.0"), &json!("Kubernetes")));
    let scale = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["patch"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "kind": "Scale", "version": "v1"})
    );
    let exec = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["post"];
    assert_eq!(exec["x-kubernetes-action"], "connect");
    let definitions = &document["definitions"];
    assert_eq!(
        definitions["io.k8s.api.core.v1.ConfigMap"]["properties"]["data"]["additionalProperties"],
        json!({"type": "string"})
    );
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
    assert!(definitions["com.example.v1.Gadget"].is_object());
    has_no_loose_ends(&document);
}

#[test]
fn version_2_in_protobuf_has_every_definition_and_path_and_is_made_once() {
    let openapi = OpenApi::new(&catalog(1));
    let (json, message) = (read(&openapi.v2()), openapi.v2_protobuf());
    for part in ["definitions", "paths"] {
        for name in json[part].as_object().unwrap().keys() {
            // A text of this length and no other.
            let mut text = vec![0x0a];
            let length = name.len();
            text.extend(if length < 0x80 {
                vec![length as u8]
            } else {
                vec![length as u8 | 0x80, (length >> 7) as u8]
            });
            text.extend(name.bytes());
            assert!(message.windows(text.len()).any(|bytes| bytes == text), "{name}");
        }
    }
    assert_eq!(openapi.v2_protobuf().as_ptr(), message.as_ptr());
}
