//! Compares definitions and their objects with recordings of a real server.

use crate::catalog::{Resource, Verb, Version};
use crate::crd::{self, Deletion, NameIndex, Names, Rewriting};
use crate::strategy::{DecodeError, Endpoint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use steersman_machinery::Budget;
use steersman_machinery::budget::{Interrupt, Limits};
use steersman_machinery::field;
use steersman_schema::decode::Body;

const NOW: &str = "2026-11-21T08:00:00Z";

fn now() -> jiff::Timestamp {
    NOW.parse().unwrap()
}

fn version<'a>(resource: &'a Resource, name: &str) -> &'a Version {
    resource.versions.iter().find(|version| &*version.name == name).unwrap()
}

/// The internal form of a new definition that would be stored, or the validation errors.
fn create(definition: &Value) -> Result<Value, Vec<String>> {
    let resource = crd::resource();
    let version = version(&resource, definition["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap());
    let strategy = &resource.strategy;
    let print = |errors: Vec<field::Error>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let decoded =
        strategy.decode(version, Body::Tree(definition.clone()), &Budget::unlimited()).map_err(
            |error| match error {
                DecodeError::Budget(error) => vec![error.to_string()],
                DecodeError::Malformed(text) => vec![text],
                DecodeError::Invalid(errors) => print(errors),
            },
        )?;
    assert_eq!(decoded.faults, []);
    let mut value = decoded.value;
    strategy.default(version, &mut value, &Budget::unlimited()).unwrap();
    let mut value = strategy.internal(version, value);
    strategy.prepare_create(version, &mut value);
    let mut errors = print(strategy.validate_create(version, &value, &Budget::unlimited()));
    errors.sort();
    if errors.is_empty() { Ok(value) } else { Err(errors) }
}

/// The definition after it is established.
fn establish(definition: &Value) -> Value {
    let mut value = create(definition).unwrap();
    value["status"] = crd::reconcile(&value, &NameIndex::default(), now()).unwrap();
    value
}

fn hats(spec: &Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hats.example.com"},
        "spec": {
            "group": "example.com", "names": {"kind": "Hat", "plural": "hats"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        definition["spec"][key] = value.clone();
    }
    definition
}

/// The definition in the recorded walk about custom resources.
fn shirts() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shirts.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Shirt", "plural": "shirts", "shortNames": ["sh"], "categories": ["wardrobe"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count", "labelSelectorPath": ".status.selector",
                }},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {
                        "color": {"type": "string", "enum": ["blue", "red"]},
                        "size": {"type": "string", "default": "M", "pattern": "^(S|M|L)$"},
                        "count": {"type": "integer", "minimum": 0, "maximum": 10},
                        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }},
                    "status": {"type": "object", "properties": {"count": {"type": "integer"}, "selector": {"type": "string"}}},
                }}},
            }],
        },
    })
}

fn sample_v1beta1() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "networks.samplecrd.k8s.io"},
        "spec": {
            "group": "samplecrd.k8s.io", "version": "v1", "names": {"kind": "Network", "plural": "networks"},
            "scope": "Namespaced",
        },
    })
}

#[track_caller]
fn refused(definition: &Value, want: &[&str]) {
    assert_eq!(create(definition).unwrap_err(), want);
}

// === definitions ===

#[test]
fn what_is_left_out_is_filled_in() {
    let stored = create(&shirts()).unwrap();
    assert_eq!(
        stored["spec"]["names"],
        json!({"categories": ["wardrobe"], "kind": "Shirt", "listKind": "ShirtList", "plural": "shirts", "shortNames": ["sh"], "singular": "shirt"})
    );
    assert_eq!(stored["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(stored["spec"]["versions"], shirts()["spec"]["versions"]);
    assert_eq!(stored["metadata"]["generation"], 1);
    assert_eq!(
        stored["status"],
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]})
    );
}

#[test]
fn faults_are_named_as_recorded() {
    let mut misnamed = hats(&json!({}));
    misnamed["metadata"]["name"] = json!("hats");
    refused(&misnamed, &[r#"metadata.name: Invalid value: "hats": must be spec.names.plural+"."+spec.group"#]);
    let schema = |schema: Value| json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]});
    refused(
        &hats(
            &json!({"versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}),
        ),
        &[
            r#"spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version"#,
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ],
    );
    refused(
        &hats(&json!({"versions": [{"name": "v1", "served": true, "storage": true}]})),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    refused(
        &hats(&schema(
            json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}, "b": {"type": "array"}}}),
        )),
        &[
            "spec.validation.openAPIV3Schema.properties[b].items: Required value: must be specified",
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
    refused(
        &hats(&schema(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}}}),
        )),
        &[
            r#"spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#,
        ],
    );
    refused(
        &hats(&json!({
            "names": {"kind": "hat", "plural": "hats"}, "scope": "Everywhere",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [{"name": "A", "type": "colour", "jsonPath": "spec.a"}]}],
        })),
        &[
            r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec.a": must be a simple json path starting with ."#,
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "colour": must be one of boolean,date,integer,number,string"#,
            r#"spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced""#,
        ],
    );
}

#[test]
fn a_name_of_a_version_is_looked_for_once_and_blamed_twice() {
    let version = |name: &str| json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let errors = create(&hats(&json!({"versions": [version("v1"), version("v1")]}))).unwrap_err();
    let of_stored: Vec<&String> = errors.iter().filter(|error| error.starts_with("status.storedVersions")).collect();
    assert_eq!(of_stored, [r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v1"#]);
    let errors = create(&hats(&json!({"versions": [version("A")]}))).unwrap_err();
    let fields: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(fields, ["spec.version", "spec.versions[0].name"]);
}

#[test]
fn faults_of_conversion_and_subresources_have_their_places() {
    refused(
        &hats(
            &json!({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://example.com/convert"}, "conversionReviewVersions": ["v9"]}}}),
        ),
        &[
            r#"spec.conversion.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[:port]/path"#,
        ],
    );
    refused(
        &hats(&json!({"versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "object"}}}}}},
            "subresources": {"scale": {"specReplicasPath": ".spe.n", "statusReplicasPath": ""}},
            "selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.b"}],
        }]})),
        &[
            r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.a": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
            r#"spec.selectableFields[1].jsonPath: Invalid value: ".spec.b": is an invalid path: does not refer to a valid field"#,
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".spe.n": should be a json path under .spec"#,
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
}

#[test]
fn faults_are_named_at_the_version_where_versions_differ() {
    let version = |name: &str, schema: Value, path: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": path}]})
    };
    let (good, bad) = (json!({"type": "object"}), json!({"type": "object", "properties": {"a": {}}}));
    refused(
        &hats(&json!({"versions": [version("v1", good.clone(), ".a"), version("v2", bad, "a")]})),
        &[
            r#"spec.versions[1].additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with ."#,
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields",
        ],
    );
    refused(
        &hats(&json!({"versions": [version("v1", good.clone(), "a"), version("v2", good, "a")]})),
        &[
            r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with ."#,
        ],
    );
}

#[test]
fn reserved_groups_need_a_word_in_v1_alone() {
    let mut definition = hats(&json!({"group": "samplecrd.k8s.io"}));
    definition["metadata"]["name"] = json!("hats.samplecrd.k8s.io");
    refused(
        &definition,
        &[
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#,
        ],
    );
    for good in ["unapproved, sample", "https://example.com/approval"] {
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": good});
        assert!(create(&definition).is_ok(), "{good}");
    }
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "yes"});
    assert!(create(&definition).unwrap_err()[0].contains("with either a URL or a reason"));
    assert!(create(&sample_v1beta1()).is_ok());
}

#[test]
fn a_format_that_nobody_checks_is_told_of() {
    let fields = json!({"a": {"type": "string", "format": "date-time"}, "b": {"type": "array", "items": {"type": "string", "format": "odd"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": fields}});
    let stored =
        create(&hats(&json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]})))
            .unwrap();
    let resource = crd::resource();
    let warnings = resource.strategy.warnings(version(&resource, "v1"), &stored, &Value::Null);
    assert_eq!(warnings, [r#"unrecognized format "odd""#]);
}

#[test]
fn what_is_stored_and_reached_cannot_change() {
    let resource = crd::resource();
    let v1 = version(&resource, "v1");
    let old = establish(&hats(&json!({})));
    let change = |spec: Value| {
        let mut new = old.clone();
        for (key, value) in spec.as_object().unwrap() {
            new["spec"][key] = value.clone();
        }
        resource.strategy.prepare_update(v1, Endpoint::Main, &mut new, &old);
        let errors = resource.strategy.validate_update(v1, Endpoint::Main, &new, &old, &Budget::unlimited());
        (new, errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(change(json!({"scope": "Cluster"})).1, [r#"spec.scope: Invalid value: "Cluster": field is immutable"#]);
    let other =
        json!({"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let (new, errors) = change(json!({"versions": [other]}));
    assert_eq!(
        errors,
        [
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#
        ]
    );
    assert_eq!((&new["status"]["storedVersions"], &new["metadata"]["generation"]), (&json!(["v1", "v2"]), &json!(2)));
    let (same, errors) = change(json!({}));
    assert!(errors.is_empty() && same["metadata"]["generation"] == 1);
}

#[test]
fn the_definition_of_2018_is_stored_as_one_of_today() {
    let stored = create(&sample_v1beta1()).unwrap();
    assert_eq!(stored["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(
        stored["spec"],
        json!({
            "group": "samplecrd.k8s.io", "scope": "Namespaced", "conversion": {"strategy": "None"}, "preserveUnknownFields": true,
            "names": {"kind": "Network", "listKind": "NetworkList", "plural": "networks", "singular": "network"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        })
    );
    let resource = crd::resource();
    let shown = resource.strategy.present(version(&resource, "v1beta1"), stored);
    assert_eq!((&shown["spec"]["version"], &shown["spec"]["preserveUnknownFields"]), (&json!("v1"), &json!(true)));
    assert_eq!(shown["apiVersion"], "apiextensions.k8s.io/v1beta1");
}

#[test]
fn what_v1beta1_says_once_goes_into_every_version_and_back() {
    let mut definition = sample_v1beta1();
    let spec = definition["spec"].as_object_mut().unwrap();
    spec.extend(
        json!({
            "version": "v1",
            "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true, "storage": false}],
            "validation": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Cidr", "type": "string", "JSONPath": ".spec.cidr"}],
            "preserveUnknownFields": false,
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    let stored = create(&definition).unwrap();
    for version in stored["spec"]["versions"].as_array().unwrap() {
        assert_eq!(version["subresources"], json!({"status": {}}));
        assert_eq!(version["schema"], definition["spec"]["validation"]);
        assert_eq!(
            version["additionalPrinterColumns"],
            json!([{"name": "Cidr", "type": "string", "jsonPath": ".spec.cidr"}])
        );
    }
    let top: Vec<&String> = stored["spec"].as_object().unwrap().keys().collect();
    assert_eq!(top, ["conversion", "group", "names", "scope", "versions"]);
    let resource = crd::resource();
    let shown = resource.strategy.present(version(&resource, "v1beta1"), stored);
    for (key, value) in definition["spec"].as_object().unwrap().iter().filter(|(key, _)| *key != "names") {
        assert_eq!(shown["spec"][key], *value, "{key}");
    }
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    refused(
        &definition,
        &["spec.subresources: Forbidden: top-level and per-version subresources are mutually exclusive"],
    );
}

// === status ===

fn conditions(status: &Value) -> Vec<String> {
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap().to_owned();
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().map(|one| ["type", "status", "reason", "message"].map(|key| text(one, key)).join(" ")).collect()
}

/// An index with the names of another definition.
fn taken(definition: &str, names: &Names) -> NameIndex {
    let mut index = NameIndex::default();
    index.insert(definition, names);
    index
}

#[test]
fn a_good_definition_is_established_at_once() {
    let definition = create(&shirts()).unwrap();
    let status = crd::reconcile(&definition, &NameIndex::default(), now()).unwrap();
    assert_eq!(
        conditions(&status),
        [
            "NamesAccepted True NoConflicts no conflicts found",
            "Established True InitialNamesAccepted the initial names have been accepted",
        ]
    );
    assert_eq!(status["acceptedNames"], definition["spec"]["names"]);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], NOW);
    let settled = json!({"metadata": definition["metadata"], "spec": definition["spec"], "status": status});
    assert_eq!(crd::reconcile(&settled, &NameIndex::default(), now()), None);
    assert!(crd::is_served(&settled) && !crd::is_served(&definition));
}

#[test]
fn a_name_that_is_taken_is_not_given_again() {
    let mut caps = hats(&json!({"names": {"kind": "Hat", "plural": "caps"}}));
    caps["metadata"]["name"] = json!("caps.example.com");
    let caps = create(&caps).unwrap();
    let names = Names::accepted(&establish(&hats(&json!({}))));
    let status = crd::reconcile(&caps, &taken("hats.example.com", &names), now()).unwrap();
    assert_eq!(
        conditions(&status),
        [
            r#"NamesAccepted False ListKindConflict "HatList" is already in use"#,
            "Established False NotAccepted not all names are accepted",
        ]
    );
    assert_eq!(status["acceptedNames"]["plural"], "caps");
    let elsewhere = taken("hats.other.example.com", &Names { group: "other.example.com".to_owned(), ..names });
    assert!(conditions(&crd::reconcile(&caps, &elsewhere, now()).unwrap())[0].starts_with("NamesAccepted True"));
}

#[test]
fn a_later_conflict_leaves_a_definition_established() {
    let mut hats = establish(&hats(&json!({})));
    hats["spec"]["names"]["shortNames"] = json!(["ht", "cap"]);
    let other = Names { group: "example.com".to_owned(), short_names: vec!["cap".to_owned()], ..Names::default() };
    let status = crd::reconcile(&hats, &taken("caps.example.com", &other), now()).unwrap();
    assert_eq!(
        conditions(&status),
        [
            r#"NamesAccepted False ShortNamesConflict "cap" is already in use"#,
            "Established True InitialNamesAccepted the initial names have been accepted",
        ]
    );
    assert_eq!(status["acceptedNames"].get("shortNames"), None);
    hats["status"] = status;
    let status = crd::reconcile(&hats, &NameIndex::default(), now()).unwrap();
    assert_eq!(status["acceptedNames"]["shortNames"], json!(["ht", "cap"]));
}

#[test]
fn an_old_definition_is_told_what_is_wrong_with_it() {
    let status = crd::reconcile(&create(&sample_v1beta1()).unwrap(), &NameIndex::default(), now()).unwrap();
    assert_eq!(
        conditions(&status)[..2],
        [
            "NonStructuralSchema True Violations spec.preserveUnknownFields: Invalid value: true: must be false",
            r#"KubernetesAPIApprovalPolicyConformant False MissingAnnotation protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#,
        ]
    );
}

#[test]
fn a_definition_goes_when_its_objects_are_gone() {
    let mut definition = establish(&hats(&json!({})));
    crd::begin_deletion(&mut definition, now());
    assert_eq!(definition["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(definition["metadata"]["deletionTimestamp"], NOW);
    assert_eq!(
        definition["status"]["conditions"][2],
        json!({
            "lastTransitionTime": NOW, "reason": "InstanceDeletionPending", "status": "True", "type": "Terminating",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        })
    );
    let verbs = &crd::custom_resources(&definition).unwrap().verbs;
    assert_eq!(*verbs, [Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch]);
    let again = definition.clone();
    crd::begin_deletion(&mut definition, "2026-11-22T08:00:00Z".parse().unwrap());
    assert_eq!(definition, again);
    crd::set_deletion(&mut definition, &Deletion::Remaining(2), now());
    assert!(conditions(&definition["status"])[2].starts_with("Terminating True InstanceDeletionCheck"));
    crd::set_deletion(&mut definition, &Deletion::Completed, now());
    assert_eq!(definition["metadata"].get("finalizers"), None);
    assert_eq!(
        conditions(&definition["status"])[2],
        "Terminating False InstanceDeletionCompleted removed all instances"
    );
}

// === objects ===

/// An object written through one version: the stored object and its unknown fields, or the validation errors.
fn put(resource: &Arc<Resource>, through: &str, object: Value) -> Result<(Value, Vec<String>), Vec<String>> {
    let version = version(resource, through);
    let decoded = resource.strategy.decode(version, Body::Tree(object), &Budget::unlimited()).unwrap();
    let unknown = decoded.faults.iter().map(|error| error.path().to_owned()).collect();
    let mut value = decoded.value;
    resource.strategy.default(version, &mut value, &Budget::unlimited()).unwrap();
    let mut value = resource.strategy.internal(version, value);
    resource.strategy.prepare_create(version, &mut value);
    let errors = resource.strategy.validate_create(version, &value, &Budget::unlimited());
    if !errors.is_empty() {
        let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.sort();
        return Err(errors);
    }
    Ok((resource.strategy.store(resource, version, value).unwrap(), unknown))
}

fn shirt(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Shirt", "metadata": {"name": "a"}, "spec": spec, "status": {"count": 9}})
}

#[test]
fn a_definition_cannot_serve_the_groups_without_a_dot() {
    let mut definition = establish(&shirts());
    definition["spec"]["group"] = json!("steersman");
    let refused = crd::custom_resources(&definition).unwrap_err().to_string();
    assert!(refused.ends_with("has the group \"steersman\": only groups with a dot can be defined"), "{refused}");
}

#[test]
fn an_object_is_pruned_and_defaulted() {
    let resource = crd::custom_resources(&establish(&shirts())).unwrap();
    let given = json!({"color": "blue", "pocket": true, "extra": {"any": {"thing": 1}}});
    let (stored, unknown) = put(&resource, "v1", shirt(given)).unwrap();
    assert_eq!(unknown, ["spec.pocket"]);
    assert_eq!(stored["spec"], json!({"color": "blue", "extra": {"any": {"thing": 1}}, "size": "M"}));
    assert_eq!((stored.get("status"), &stored["metadata"]["generation"]), (None, &json!(1)));
}

#[test]
fn all_faults_come_at_once_with_those_of_scale() {
    let resource = crd::custom_resources(&establish(&shirts())).unwrap();
    let errors = put(&resource, "v1", shirt(json!({"color": "green", "size": "XXL", "count": "three"}))).unwrap_err();
    assert_eq!(
        errors,
        [
            ".spec.count: Invalid value: 0: .spec.count accessor error: three is of the type string, expected int64",
            r#"spec.color: Unsupported value: "green": supported values: "blue", "red""#,
            r#"spec.count: Invalid value: "string": spec.count in body must be of type integer: "string""#,
            r#"spec.size: Invalid value: "XXL": spec.size in body should match '^(S|M|L)$'"#,
        ]
    );
    assert_eq!(put(&resource, "v1", shirt(json!({"count": 1}))).unwrap_err(), ["spec.color: Required value"]);
}

#[test]
fn status_and_spec_keep_to_their_endpoints() {
    let resource = crd::custom_resources(&establish(&shirts())).unwrap();
    let v1 = version(&resource, "v1");
    let (old, _) = put(&resource, "v1", shirt(json!({"color": "blue"}))).unwrap();
    let change = |endpoint, old: &Value, patch: Value| {
        let mut new = old.clone();
        for (key, value) in patch.as_object().unwrap() {
            new[key] = value.clone();
        }
        resource.strategy.prepare_update(v1, endpoint, &mut new, old);
        new
    };
    let patch = json!({"spec": {"color": "red"}, "status": {"count": 2}});
    let reported = change(Endpoint::Status, &old, patch.clone());
    assert_eq!((&reported["spec"]["color"], &reported["status"]), (&json!("blue"), &json!({"count": 2})));
    assert_eq!(reported["metadata"]["generation"], 1);
    let wanted = change(Endpoint::Main, &reported, json!({"spec": {"color": "red"}, "status": {"count": 5}}));
    assert_eq!((&wanted["spec"]["color"], &wanted["status"]), (&json!("red"), &json!({"count": 2})));
    assert_eq!(wanted["metadata"]["generation"], 2);
    let labeled =
        change(Endpoint::Main, &wanted, json!({"metadata": {"name": "a", "labels": {"x": "y"}, "generation": 2}}));
    assert_eq!(labeled["metadata"]["generation"], 2);
}

#[test]
fn versions_differ_in_their_fields_and_are_read_through_each_other() {
    let schema = |fields: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}});
    let definition = establish(&hats(&json!({"versions": [
        {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": schema(json!({"a": {"type": "string"}}))},
        {"name": "v1", "served": true, "storage": true, "schema": schema(json!({"a": {"type": "string"}, "b": {"type": "string", "default": "bee"}}))},
    ]})));
    let resource = crd::custom_resources(&definition).unwrap();
    assert_eq!(resource.versions.iter().map(|version| &*version.name).collect::<Vec<_>>(), ["v1", "v1beta1"]);
    let (v1, v1beta1) = (version(&resource, "v1"), version(&resource, "v1beta1"));
    assert_eq!(v1beta1.deprecation.as_deref(), Some("example.com/v1beta1 Hat is deprecated; use example.com/v1 Hat"));
    assert_eq!(v1.deprecation, None);
    let hat = json!({"apiVersion": "example.com/v1beta1", "kind": "Hat", "metadata": {"name": "h"}, "spec": {"a": "x", "b": "y"}});
    let (stored, unknown) = put(&resource, "v1beta1", hat).unwrap();
    assert_eq!((&stored["apiVersion"], &stored["spec"]), (&json!("example.com/v1"), &json!({"a": "x", "b": "bee"})));
    assert_eq!(unknown, ["spec.b"]);
    assert!(resource.strategy.is_stored_form(&resource, v1) && !resource.strategy.is_stored_form(&resource, v1beta1));
    let read = resource.strategy.load(&resource, v1beta1, stored).unwrap();
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("example.com/v1beta1"), &json!({"a": "x"})));
}

#[test]
fn a_changed_schema_reaches_objects_stored_before() {
    let mut definition = establish(&shirts());
    let old = crd::custom_resources(&definition).unwrap();
    let (stored, _) = put(&old, "v1", shirt(json!({"color": "blue", "extra": {}}))).unwrap();
    let fields =
        &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    fields.as_object_mut().unwrap().remove("extra");
    fields["cut"] = json!({"type": "string", "default": "slim"});
    definition["metadata"]["generation"] = json!(2);
    let new = crd::custom_resources(&definition).unwrap();
    assert!(!new.strategy.is_stored_form(&new, version(&new, "v1")));
    let read = new.strategy.load(&new, version(&new, "v1"), stored).unwrap();
    assert_eq!(read["spec"], json!({"color": "blue", "cut": "slim", "size": "M"}));
}

#[test]
fn objects_are_read_as_they_are_stored_once_they_have_been_rewritten() {
    let is_read_as_stored = |definition: &Value| {
        let resource = crd::custom_resources(definition).unwrap();
        resource.strategy.is_stored_form(&resource, version(&resource, "v1"))
    };
    let mut definition = establish(&hats(&json!({})));
    assert!(is_read_as_stored(&definition));
    definition["metadata"]["generation"] = json!(2);
    assert!(!is_read_as_stored(&definition));
    crd::set_rewriting(&mut definition, &Rewriting::InProgress { checked: 1, total: 3 }, now());
    assert!(!is_read_as_stored(&definition));
    crd::set_rewriting(&mut definition, &Rewriting::Completed, now());
    assert!(is_read_as_stored(&definition));
    assert_eq!(
        conditions(&definition["status"]).last().map(String::as_str),
        Some("StoredObjectsCurrent True Completed all stored objects have the form of this generation")
    );
    definition["metadata"]["generation"] = json!(3);
    assert!(!is_read_as_stored(&definition), "what was said of another generation counts for nothing");
}

#[test]
fn without_a_schema_everything_stays() {
    let resource = crd::custom_resources(&establish(&sample_v1beta1())).unwrap();
    let network = json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "n"},
        "spec": {"cidr": "192.168.0.0/16", "any": [{"thing": null}]}, "status": {"networkID": "x"},
    });
    let (stored, unknown) = put(&resource, "v1", network.clone()).unwrap();
    assert_eq!((&stored["spec"], &stored["status"], unknown.len()), (&network["spec"], &network["status"], 0));
    assert!(!version(&resource, "v1").has_status);
}

#[test]
fn cells_show_what_the_columns_name() {
    let resource = crd::custom_resources(&establish(&shirts())).unwrap();
    let v1 = version(&resource, "v1");
    let names: Vec<&str> = v1.columns.iter().map(|column| &*column.name).collect();
    assert_eq!((names, v1.columns[2].priority), (vec!["Name", "Color", "Count"], 1));
    let cells = |object: &Value| resource.strategy.cells(v1, object, now());
    assert_eq!(cells(&shirt(json!({"color": "red", "count": 4}))), [json!("a"), json!("red"), json!(4)]);
    assert_eq!(cells(&shirt(json!({"color": "red"}))), [json!("a"), json!("red"), json!(null)]);
    let networks = crd::custom_resources(&establish(&sample_v1beta1())).unwrap();
    let network = json!({"metadata": {"name": "n", "creationTimestamp": "2026-11-21T07:55:00Z"}});
    assert_eq!(networks.strategy.cells(version(&networks, "v1"), &network, now()), [json!("n"), json!("5m")]);
}

#[test]
fn the_manifests_of_the_project_are_accepted() {
    let read = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let full = establish(&read(include_str!("../../../../manifests/crd/network-v1.yaml")));
    let brief = establish(&read(include_str!("../../../../manifests/crd/network.yaml")));
    for definition in [&full, &brief] {
        assert!(crd::is_served(definition));
        assert_eq!(&*crd::custom_resources(definition).unwrap().kind, "Network");
    }
    let resource = crd::custom_resources(&full).unwrap();
    let object = json!({"metadata": {"name": "n"}, "spec": {"cidr": "c"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let cells = resource.strategy.cells(version(&resource, "v1"), &object, now());
    assert_eq!(cells[..5], [json!("n"), json!("c"), json!(null), json!(null), json!("True")]);
}

// === arbitrary input ===

/// Any small JSON value.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "[a-z.\\[]{0,6}".prop_map(Value::from),
        Just(json!("Webhook")),
        Just(json!(".spec.a")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![
            Just("name"),
            Just("schema"),
            Just("openAPIV3Schema"),
            Just("properties"),
            Just("items"),
            Just("type"),
            Just("default"),
            Just("scale"),
            Just("service"),
            Just("strategy"),
            Just("x-kubernetes-list-type"),
            Just("storage"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Puts a value at the position that the numbers choose, level by level.
fn put_somewhere(value: &mut Value, choices: &[usize], new: Value) {
    let inner = match (choices.split_first(), &mut *value) {
        (Some((choice, rest)), Value::Object(fields)) if !fields.is_empty() => {
            let at = choice % fields.len();
            fields.values_mut().nth(at).map(|field| (field, rest))
        }
        (Some((choice, rest)), Value::Array(items)) if !items.is_empty() => {
            let at = choice % items.len();
            items.get_mut(at).map(|item| (item, rest))
        }
        _ => None,
    };
    match inner {
        Some((inner, rest)) => put_somewhere(inner, rest, new),
        None => *value = new,
    }
}

proptest! {
    #[test]
    fn a_damaged_definition_is_accepted_or_refused(
        choices in prop::collection::vec(0_usize..8, 1..9),
        new in any_json(),
        is_old in any::<bool>(),
    ) {
        let mut definition = if is_old { sample_v1beta1() } else { shirts() };
        let (api_version, name) = (definition["apiVersion"].clone(), definition["metadata"]["name"].clone());
        put_somewhere(&mut definition["spec"], &choices, new);
        // The registry has checked these before it calls a strategy.
        definition["apiVersion"] = api_version;
        definition["metadata"] = json!({"name": name});
        let resource = crd::resource();
        let version = version(&resource, if is_old { "v1beta1" } else { "v1" });
        let strategy = &resource.strategy;
        let Ok(decoded) = strategy.decode(version, Body::Tree(definition), &Budget::unlimited()) else { return Ok(()) };
        let mut value = decoded.value;
        strategy.default(version, &mut value, &Budget::unlimited()).unwrap();
        let mut value = strategy.internal(version, value);
        strategy.prepare_create(version, &mut value);
        let _ = strategy.warnings(version, &value, &Value::Null);
        if strategy.validate_create(version, &value, &Budget::unlimited()).is_empty() {
            value["status"] = crd::reconcile(&value, &NameIndex::default(), now()).unwrap();
            prop_assert!(crd::custom_resources(&value).is_ok(), "{value}");
        }
        let _ = strategy.present(version, value);
    }

    #[test]
    fn a_definition_is_the_same_after_a_visit_to_v1beta1(
        versions in prop::collection::vec((any::<bool>(), 0_usize..3, 0_usize..3, any::<bool>()), 1..4),
        preserves in any::<bool>(),
    ) {
        let versions: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(index, (served, schema, columns, has_status))| {
                let mut version = json!({"name": format!("v{index}"), "served": served, "storage": index == 0});
                if *schema > 0 {
                    version["schema"] = json!({"openAPIV3Schema": {"type": "object", "maxProperties": schema}});
                }
                if *columns > 0 {
                    version["additionalPrinterColumns"] = json!([{"name": "A", "type": "string", "jsonPath": format!(".a{columns}")}]);
                }
                if *has_status {
                    version["subresources"] = json!({"status": {}});
                }
                version
            })
            .collect();
        let mut definition = hats(&json!({"versions": versions, "conversion": {"strategy": "None"}}));
        if preserves {
            definition["spec"]["preserveUnknownFields"] = json!(true);
        }
        let resource = crd::resource();
        let v1beta1 = version(&resource, "v1beta1");
        let visited = resource.strategy.internal(v1beta1, resource.strategy.present(v1beta1, definition.clone()));
        prop_assert_eq!(visited, definition);
    }

    #[test]
    fn a_damaged_object_is_accepted_or_refused(choices in prop::collection::vec(0_usize..8, 1..5), new in any_json()) {
        static SHIRTS: LazyLock<Arc<Resource>> = LazyLock::new(|| crd::custom_resources(&establish(&shirts())).unwrap());
        let resource = &*SHIRTS;
        let v1 = version(resource, "v1");
        let mut object = shirt(json!({"color": "blue", "size": "M", "count": 1, "extra": {"a": [1]}}));
        put_somewhere(&mut object["spec"], &choices, new);
        let old = shirt(json!({"color": "red"}));
        if let Ok((mut stored, _)) = put(resource, "v1", object) {
            resource.strategy.prepare_update(v1, Endpoint::Main, &mut stored, &old);
            let _ = resource.strategy.validate_update(v1, Endpoint::Main, &stored, &old, &Budget::unlimited());
            let _ = resource.strategy.cells(v1, &stored, now());
            let _ = resource.strategy.load(resource, v1, stored).unwrap();
        }
    }
}

#[test]
fn judging_the_defaults_of_a_definition_is_charged() {
    let branches: Vec<Value> = (0..100).map(|n| json!({"maxLength": n / 99})).collect();
    let list = json!({"type": "array", "items": {"type": "string", "anyOf": branches}, "default": vec!["a"; 100]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": list}}});
    let definition =
        create(&hats(&json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]})))
            .unwrap();
    let is_exceeded = |steps_max| {
        let budget = Budget::new(Limits { steps_max, ..Limits::default() }, Interrupt::default());
        let resource = crd::resource();
        resource.strategy.validate_create(version(&resource, "v1"), &definition, &budget);
        budget.is_exceeded()
    };
    // Each of the items is tried with each of the branches.
    assert!(is_exceeded(10_000) && !is_exceeded(100_000_000));
}
