//! Bodies of built-in kinds: values that are kept, dropped, added and refused, as recorded.

use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::Budget;
use steersman_machinery::Value;
use steersman_schema::decode::{Body, Unknown};
use steersman_schema::{Definitions, Edition, Schema, decode, prune, strategic, structural};

fn schema(name: &str) -> &'static Schema {
    Definitions::builtin().schema(name).unwrap()
}

#[track_caller]
fn check(name: &str, body: &str, value: &Value, faults: &[&str]) {
    let decoded = decode::built_in(schema(name), Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap();
    assert_eq!(&decoded.value, value);
    let said: Vec<String> = decoded.faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, faults);
    let again = decode::from_value(schema(name), &decoded.value, &Budget::unlimited()).unwrap();
    assert_eq!(again.value, decoded.value, "reading what was written changes nothing");
    let mut normal = decoded.value.clone();
    decode::normalize(schema(name), &mut normal);
    assert_eq!(normal, decoded.value);
}

#[track_caller]
fn refused(name: &str, body: &str, want: &str) {
    assert_eq!(
        decode::built_in(schema(name), Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap_err().to_string(),
        want
    );
}

const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
const POD: &str = "io.k8s.api.core.v1.Pod";

#[test]
fn unknown_and_duplicate_fields_are_told_in_the_order_of_the_document() {
    check(
        CONFIG_MAP,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s","unknownMeta":1},"data":{"k":"v"},"daata":{},"data":{"k":"w"}}"#,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"k": "w"}}),
        &[r#"unknown field "metadata.unknownMeta""#, r#"unknown field "daata""#, r#"duplicate field "data""#],
    );
}

#[test]
fn a_fault_is_told_once_and_what_is_in_an_unknown_field_is_not() {
    check(
        CONFIG_MAP,
        r#"{"data":{"k":"1","k":"2","k":"3"},"odd":{"x":1,"x":2},"odd":1}"#,
        &json!({"metadata": {}, "data": {"k": "3"}}),
        &[r#"duplicate field "data.k""#, r#"unknown field "odd""#],
    );
    let fields: Vec<String> = (0..200).map(|n| format!("\"odd{n}\":1")).collect();
    let body = format!("{{{}}}", fields.join(","));
    let decoded = decode::built_in(schema(CONFIG_MAP), Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap();
    assert_eq!(decoded.faults.len(), decode::FAULTS_MAX);
}

#[test]
fn a_later_empty_field_takes_away_an_earlier_one() {
    check(
        CONFIG_MAP,
        r#"{"metadata":{"name":"a","name":""}}"#,
        &json!({"metadata": {}}),
        &[r#"duplicate field "metadata.name""#],
    );
}

#[test]
fn names_of_fields_have_their_case_and_paths_their_indices() {
    check(
        POD,
        r#"{"Metadata":{},"spec":{"containers":[{"name":"c"},{"name":"d","Image":"i","env":[{"nam":"x"}]}]}}"#,
        &json!({
            "metadata": {},
            "spec": {"containers": [{"name": "c", "resources": {}}, {"name": "d", "resources": {}, "env": [{"name": ""}]}]},
            "status": {},
        }),
        &[
            r#"unknown field "Metadata""#,
            r#"unknown field "spec.containers[1].Image""#,
            r#"unknown field "spec.containers[1].env[0].nam""#,
        ],
    );
}

#[test]
fn empty_values_go_or_stay_as_go_writes_them() {
    check(
        "io.k8s.api.apps.v1.Deployment",
        r#"{"metadata":{"labels":{},"name":"","creationTimestamp":null},"spec":{"replicas":0,"paused":false,"minReadySeconds":0,"selector":null,
            "template":{"spec":{"containers":[],"hostNetwork":false,"securityContext":{},"nodeSelector":null,"automountServiceAccountToken":false}}}}"#,
        &json!({
            "metadata": {},
            "spec": {
                "replicas": 0,
                "selector": null,
                "strategy": {},
                "template": {
                    "metadata": {},
                    "spec": {"containers": [], "securityContext": {}, "automountServiceAccountToken": false},
                },
            },
            "status": {},
        }),
        &[],
    );
    check(POD, "{}", &json!({"metadata": {}, "spec": {"containers": null}, "status": {}}), &[]);
    check(
        "io.k8s.api.core.v1.Node",
        "{}",
        &json!({
            "metadata": {}, "spec": {},
            "status": {
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
                },
            },
        }),
        &[],
    );
    check(
        "io.k8s.api.apps.v1.StatefulSet",
        r#"{"spec":{"selector":{},"template":{"spec":{"containers":null}}}}"#,
        &json!({
            "metadata": {},
            "spec": {"selector": {}, "serviceName": "", "template": {"metadata": {}, "spec": {"containers": null}}, "updateStrategy": {}},
            "status": {"availableReplicas": 0, "replicas": 0},
        }),
        &[],
    );
}

#[test]
fn null_in_a_map_or_list_is_the_empty_value() {
    check(CONFIG_MAP, "null", &json!({"metadata": {}}), &[]);
    check(CONFIG_MAP, r#"{"data":{"a":null}}"#, &json!({"metadata": {}, "data": {"a": ""}}), &[]);
    check(
        POD,
        r#"{"spec":{"containers":[null],"schedulingGates":null}}"#,
        &json!({"metadata": {}, "spec": {"containers": [{"name": "", "resources": {}}]}, "status": {}}),
        &[],
    );
}

#[test]
fn quantities_times_and_bytes_take_their_canonical_text() {
    let pod = br#"{"metadata":{"creationTimestamp":"2026-01-01T01:00:00.5+01:00"},
            "spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":1.5,"memory":"1024Mi","x":2,"y":1e3}},"ports":[{"containerPort":80}],
            "livenessProbe":{"httpGet":{"port":"http"}}}]}}"#;
    let decoded = decode::built_in(schema(POD), Body::Json(pod), &Budget::unlimited()).unwrap();
    assert_eq!(decoded.value["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let limits = &decoded.value["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"cpu": "1500m", "memory": "1Gi", "x": "2", "y": "1k"}));
    check(
        "io.k8s.api.coordination.v1.Lease",
        r#"{"spec":{"renewTime":"2026-01-01T00:00:00.123456Z"}}"#,
        &json!({"metadata": {}, "spec": {"renewTime": "2026-01-01T00:00:00.123456Z"}}),
        &[],
    );
    check(
        "io.k8s.api.core.v1.Secret",
        "{\"data\":{\"a\":\"AA\\nE=\",\"b\":\"\"}}",
        &json!({"metadata": {}, "data": {"a": "AAE=", "b": ""}}),
        &[],
    );
}

#[test]
fn bytes_may_be_a_list_of_numbers() {
    const SECRET: &str = "io.k8s.api.core.v1.Secret";
    check(
        SECRET,
        r#"{"data":{"a":[0,1,255],"b":[],"c":[null]}}"#,
        &json!({"metadata": {}, "data": {"a": "AAH/", "b": "", "c": "AA=="}}),
        &[],
    );
    for list in ["[256]", "[-1]", r#"["a"]"#, "[[]]"] {
        refused(SECRET, &format!(r#"{{"data":{{"a":{list}}}}}"#), "data.a must be a base64 string, not a list");
    }
}

#[test]
fn an_empty_record_of_owners_stays() {
    let body = Body::Json(br#"{"metadata":{"managedFields":[],"finalizers":[]}}"#);
    let decoded = decode::built_in(schema("io.k8s.api.core.v1.Secret"), body, &Budget::unlimited()).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"managedFields": []}}));
}

#[test]
fn empty_lists_and_maps_stay_within_lists_that_have_one_owner() {
    let read = |kind: &str, body: &str| {
        decode::built_in(schema(kind), Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap().value
    };
    assert_eq!(
        read(
            "io.k8s.api.rbac.v1.Role",
            r#"{"metadata":{"labels":{},"finalizers":[]},"rules":[{"verbs":["get"],"resources":[],"resourceNames":[""]}]}"#
        ),
        json!({"metadata": {}, "rules": [{"verbs": ["get"], "resources": [], "resourceNames": [""]}]})
    );
    // A map that has one owner is compared field by field.
    let selector =
        r#"{"spec":{"podSelector":{"matchLabels":{},"matchExpressions":[{"key":"a","operator":"In","values":[]}]}}}"#;
    let expressions = json!([{"key": "a", "operator": "In", "values": []}]);
    assert_eq!(
        read("io.k8s.api.networking.v1.NetworkPolicy", selector)["spec"]["podSelector"],
        json!({"matchExpressions": expressions})
    );
}

#[test]
fn what_is_opaque_stays_as_it_is() {
    let body = json!({
        "metadata": {"managedFields": [{"fieldsV1": {"f:data": {".": {}, "f:a": {}}}, "manager": "m"}]},
        "data": {"any": {"thing": [1, null]}},
        "revision": 1,
    });
    let decoded =
        decode::from_value(schema("io.k8s.api.apps.v1.ControllerRevision"), &body, &Budget::unlimited()).unwrap();
    assert_eq!(decoded.value, body);
    let json = json!({
        "spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {
            "default": {"x": null}, "items": {"type": "string"}, "enum": [1, "a"], "additionalProperties": true}}}}}]}
    });
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
    let decoded = decode::from_value(schema(name), &json, &Budget::unlimited()).unwrap();
    assert!(decoded.faults.is_empty(), "{:?}", decoded.faults);
    assert_eq!(
        decoded.value.pointer("/spec/versions/0/schema"),
        json.pointer("/spec/versions/0/schema"),
        "nothing is added to a schema"
    );
}

#[test]
fn a_wrong_value_is_named_with_its_place() {
    refused(CONFIG_MAP, r#"{"data":{"k":1}}"#, "data.k must be a string, not the number 1");
    refused(CONFIG_MAP, r#"{"data":[]}"#, "data must be an object, not a list");
    refused(CONFIG_MAP, "[]", "the object must be an object, not a list");
    refused(POD, r#"{"spec":{"containers":{}}}"#, "spec.containers must be a list, not an object");
    refused(
        "io.k8s.api.apps.v1.Deployment",
        r#"{"spec":{"replicas":"three"}}"#,
        r#"spec.replicas must be an integer, not the string "three""#,
    );
    refused(
        "io.k8s.api.apps.v1.Deployment",
        r#"{"spec":{"replicas":3000000000}}"#,
        "spec.replicas must be a whole number from -2147483648 to 2147483647, not 3000000000",
    );
    refused(
        POD,
        r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
        r#"metadata.creationTimestamp must be a time such as 2006-01-02T15:04:05Z, not "yesterday""#,
    );
    refused(CONFIG_MAP, r#"{"apiVersion":"v1","kind":"#, "unexpected end of JSON input");
    refused(CONFIG_MAP, "", "unexpected end of JSON input");
    refused(CONFIG_MAP, "{} {}", "there is more behind the end of the JSON value");
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(decode::document(nested(decode::DEPTH_MAX).as_bytes(), &Budget::unlimited()).is_ok());
    let error = decode::document(nested(decode::DEPTH_MAX + 1).as_bytes(), &Budget::unlimited()).unwrap_err();
    assert_eq!(error.to_string(), "the object is nested deeper than 100 levels");
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(20_000), "]".repeat(20_000));
    assert!(decode::built_in(schema(CONFIG_MAP), Body::Json(deep.as_bytes()), &Budget::unlimited()).is_err());
    assert!(decode::document(deep.as_bytes(), &Budget::unlimited()).is_err());
}

#[test]
fn times_have_one_shape() {
    let lease = |text: &str| {
        let body = json!({"spec": {"renewTime": text}});
        decode::from_value(schema("io.k8s.api.coordination.v1.Lease"), &body, &Budget::unlimited())
            .map(|decoded| decoded.value)
    };
    assert_eq!(lease("2026-01-01T01:00:00.000001+01:00").unwrap()["spec"]["renewTime"], "2026-01-01T00:00:00.000001Z");
    for text in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.1234567Z"] {
        let want = format!("spec.renewTime must be a time such as 2006-01-02T15:04:05.000000Z, not {text:?}");
        assert_eq!(lease(text).unwrap_err().to_string(), want);
    }
    let created = |text: &str| {
        decode::from_value(schema(CONFIG_MAP), &json!({"metadata": {"creationTimestamp": text}}), &Budget::unlimited())
    };
    for text in [
        "",
        "2026-01-01",
        "2026-01-01 00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+01",
    ] {
        assert!(created(text).is_err(), "{text}");
    }
}

#[test]
fn recorded_sentences_of_quantities_and_bytes() {
    refused(
        POD,
        r#"{"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"lots"}}}]}}"#,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
    for (text, offset) in [("%%%", 0), ("AA%A", 2), ("AAA", 0), ("AAAAAA", 4), ("AA=", 3), ("AA==A", 4), ("A===", 1)] {
        let body = json!({"data": {"pass": text}}).to_string();
        refused("io.k8s.api.core.v1.Secret", &body, &format!("illegal base64 data at input byte {offset}"));
    }
}

#[test]
fn a_document_without_schema_keeps_all_and_tells_duplicates() {
    let decoded = decode::document(br#"{"a":{"b":1,"b":null},"c":[{"d":1,"d":2}]}"#, &Budget::unlimited()).unwrap();
    assert_eq!(decoded.value, json!({"a": {"b": null}, "c": [{"d": 2}]}));
    let said: Vec<&str> = decoded.faults.iter().map(decode::Fault::path).collect();
    assert_eq!(said, ["a.b", "c[0].d"]);
    let decoded = decode::document(br#"{"a":5.0,"b":[1e3,1.5]}"#, &Budget::unlimited()).unwrap();
    assert_eq!(decoded.value.to_string(), r#"{"a":5,"b":[1000,1.5]}"#, "numbers as Go prints them");
}

// === custom resources ===

fn gadget() -> Arc<Schema> {
    structural::compile(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
        "spec": {"type": "object", "properties": {
            "a": {"type": "integer"},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "items": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        }},
        "data": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }}))
}

#[track_caller]
fn read_gadget(body: &str) -> decode::Decoded {
    decode::custom_resource(&gadget(), Unknown::Prune, Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap()
}

#[test]
fn the_metadata_of_a_custom_resource_is_an_object_meta() {
    let decoded = read_gadget(
        r#"{"apiVersion":"g/v1","kind":"Gadget","metadata":{"name":"a","odd":1,"labels":{},"creationTimestamp":null,
            "annotations":{"x":null}},"odd":{},"spec":{"a":1.0,"a":2,"template":{"apiVersion":"v1","kind":"Pod",
            "metadata":{"labels":{"l":"1"},"nope":{}},"spec":{"gone":1}},"open":{"kept":{"x":[1]},"items":{"a":"1","b":2}}}}"#,
    );
    assert_eq!(
        decoded.value,
        json!({
            "apiVersion": "g/v1", "kind": "Gadget", "metadata": {"name": "a", "annotations": {"x": ""}},
            "spec": {
                "a": 2,
                "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"l": "1"}}, "spec": {}},
                "open": {"kept": {"x": [1]}, "items": {"a": "1"}},
            },
        })
    );
    let said: Vec<String> = decoded.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            r#"unknown field "metadata.odd""#,
            r#"unknown field "odd""#,
            r#"duplicate field "spec.a""#,
            r#"unknown field "spec.template.metadata.nope""#,
            r#"unknown field "spec.template.spec.gone""#,
            r#"unknown field "spec.open.items.b""#,
        ]
    );
}

#[test]
fn metadata_of_wrong_types_is_refused_wherever_it_is() {
    let refused = |body: &str| {
        let read = decode::custom_resource(&gadget(), Unknown::Keep, Body::Json(body.as_bytes()), &Budget::unlimited());
        read.unwrap_err().to_string()
    };
    assert_eq!(refused(r#"{"metadata":{"labels":{"n":1}}}"#), "metadata.labels.n must be a string, not the number 1");
    assert_eq!(
        refused(r#"{"metadata":{"annotations":{"x":true}}}"#),
        "metadata.annotations.x must be a string, not true"
    );
    assert_eq!(refused(r#"{"metadata":[]}"#), "metadata must be an object, not a list");
    assert_eq!(
        refused(r#"{"spec":{"template":{"metadata":{"finalizers":"x"}}}}"#),
        r#"spec.template.metadata.finalizers must be a list, not the string "x""#
    );
}

#[test]
fn a_kind_that_preserves_unknown_fields_preserves_them_everywhere() {
    let body = br#"{"metadata":{"name":"a","odd":1},"odd":{"x":null},"spec":{"odd":1,"parts":[{"odd":1}]}}"#;
    let decoded = decode::custom_resource(&gadget(), Unknown::Keep, Body::Json(body), &Budget::unlimited()).unwrap();
    assert_eq!(
        decoded.value,
        json!({"metadata": {"name": "a"}, "odd": {"x": null}, "spec": {"odd": 1, "parts": [{"odd": 1}]}})
    );
    assert_eq!(decoded.faults, [decode::Fault::Unknown("metadata.odd".to_owned())]);
}

proptest! {
    #[test]
    fn bytes_and_trees_are_read_alike(body in super::values::value()) {
        // As codecs decode trees: with whole numbers as integers.
        let mut tree = body;
        steersman_machinery::value::normalize_numbers(&mut tree);
        let json = tree.to_string();
        let mut tree: Value = serde_json::from_str(&json).unwrap();
        steersman_machinery::value::normalize_numbers(&mut tree);
        let json = tree.to_string();
        let tree: Value = serde_json::from_str(&json).unwrap();
        for name in [POD, CONFIG_MAP, "io.k8s.api.core.v1.Service"] {
            let of_bytes = decode::built_in(schema(name), Body::Json(json.as_bytes()), &Budget::unlimited());
            prop_assert_eq!(&of_bytes, &decode::built_in(schema(name), Body::Tree(tree.clone()), &Budget::unlimited()));
            prop_assert_eq!(&of_bytes, &decode::from_value(schema(name), &tree, &Budget::unlimited()));
        }
        let gadget = gadget();
        for unknown in [Unknown::Keep, Unknown::Prune] {
            let of_bytes = decode::custom_resource(&gadget, unknown, Body::Json(json.as_bytes()), &Budget::unlimited());
            let of_tree = decode::custom_resource(&gadget, unknown, Body::Tree(tree.clone()), &Budget::unlimited());
            prop_assert_eq!(&of_bytes, &of_tree);
            if let Ok(read) = of_bytes {
                let again = decode::custom_resource(&gadget, unknown, Body::Tree(read.value.clone()), &Budget::unlimited()).unwrap();
                prop_assert_eq!(&again.value, &read.value);
                prop_assert!(again.faults.is_empty());
                if unknown == Unknown::Prune {
                    // Pruning a tree in place gives the same result as decoding, except for the metadata, which it does
                    // not check.
                    let mut pruned = tree.clone();
                    prune::prune(&gadget, &mut pruned);
                    for (name, field) in pruned.as_object().into_iter().flatten().filter(|(name, _)| *name == "data") {
                        prop_assert_eq!(Some(field), read.value.get(name));
                    }
                }
            }
        }
    }

    #[test]
    fn no_bytes_stop_the_reader(json in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\":,0-e.ntr"[..])], 0..60)) {
        let schema = schema(POD);
        let _ = decode::built_in(schema, Body::Json(&json), &Budget::unlimited());
        let _ = decode::custom_resource(&gadget(), Unknown::Prune, Body::Json(&json), &Budget::unlimited());
        let read = decode::document(&json, &Budget::unlimited());
        prop_assert_eq!(read.is_ok(), serde_json::from_slice::<Value>(&json).is_ok());
    }

    #[test]
    fn any_value_is_read_or_refused_and_reading_is_stable(body in super::values::value()) {
        for name in [POD, CONFIG_MAP, "io.k8s.api.core.v1.Service"] {
            if let Ok(first) = decode::from_value(schema(name), &body, &Budget::unlimited()) {
                let second = decode::from_value(schema(name), &first.value, &Budget::unlimited()).unwrap();
                prop_assert_eq!(&second.value, &first.value);
                prop_assert!(second.faults.is_empty());
            }
        }
    }
}

#[test]
fn initializers_are_a_field_of_metadata_in_the_edition_with_them_alone() {
    let body =
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","initializers":{"pending":[{"name":"a.b.c"}]}}}"#;
    let read = |schema: &Schema| decode::built_in(schema, Body::Json(body.as_bytes()), &Budget::unlimited()).unwrap();
    let without = read(schema(POD));
    assert_eq!(without.value["metadata"], json!({"name": "p"}));
    assert_eq!(without.faults[0].to_string(), r#"unknown field "metadata.initializers""#);
    let pod = Definitions::of(Edition::WithInitializers).schema(POD).unwrap();
    let with = read(pod);
    assert_eq!(
        (&with.value["metadata"]["initializers"], with.faults.len()),
        (&json!({"pending": [{"name": "a.b.c"}]}), 0)
    );
    // The schema of a custom resource does not define its metadata: its edition does.
    let custom = structural::compile(&json!({"type": "object", "properties": {"spec": {"type": "object"}}}));
    let with = Schema::clone(&custom).of_resource_in(Edition::WithInitializers);
    let n_faults = |schema: &Schema| {
        decode::custom_resource(schema, Unknown::Prune, Body::Json(body.as_bytes()), &Budget::unlimited())
            .unwrap()
            .faults
            .len()
    };
    assert_eq!((n_faults(&custom), n_faults(&with)), (1, 0));
}

#[test]
fn pending_initializers_merge_by_name() {
    let pod = Definitions::of(Edition::WithInitializers).schema(POD).unwrap();
    let live = json!({"metadata": {"initializers": {"pending": [{"name": "a.b.c"}, {"name": "d.e.f"}]}}});
    let patch = json!({"metadata": {"initializers": {"pending": [{"$patch": "delete", "name": "a.b.c"}]}}});
    let merged = strategic::apply(pod, live, patch).unwrap();
    assert_eq!(merged["metadata"]["initializers"]["pending"], json!([{"name": "d.e.f"}]));
}
