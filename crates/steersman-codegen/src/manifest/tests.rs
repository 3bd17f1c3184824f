//! The form of a definition's manifest, and that it has the same meaning as the definition.

use expect_test::expect;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use crate::manifest::{definition, merge, object};

/// A definition as kube's derive returns it.
fn fleet(version: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.sea.example.com", "annotations": {}, "creationTimestamp": null},
        "spec": {
            "group": "sea.example.com", "scope": "Namespaced",
            "names": {"categories": [], "kind": "Fleet", "plural": "fleets", "shortNames": [], "singular": "fleet"},
            "versions": [{
                "additionalPrinterColumns": [], "name": version, "served": true, "storage": true,
                "selectableFields": [], "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "title": "Fleet", "required": ["spec"], "properties": {
                    "spec": {"type": "object", "description": "What it is to be.", "properties": {
                        "type": {"type": "string", "nullable": true, "default": null},
                        "ships": {"type": "integer", "format": "uint8", "minimum": 0.0, "maximum": 255.0},
                        "depth": {"type": "integer", "format": "uint32", "minimum": 0.0},
                        "share": {"type": "number", "format": "double", "minimum": 0.5},
                    }},
                }}},
            }],
        },
        "status": {"storedVersions": []},
    })
}

#[test]
fn a_definition_says_what_it_must_in_the_order_of_reading() {
    expect![[r#"
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata:
          name: fleets.sea.example.com
        spec:
          group: sea.example.com
          scope: Namespaced
          names:
            kind: Fleet
            listKind: FleetList
            plural: fleets
            singular: fleet
          versions:
          - name: v1
            served: true
            storage: true
            subresources:
              status: {}
            schema:
              openAPIV3Schema:
                type: object
                required:
                - spec
                properties:
                  spec:
                    description: What it is to be.
                    type: object
                    properties:
                      depth:
                        type: integer
                        format: int64
                        minimum: 0
                        maximum: 4294967295
                      share:
                        type: number
                        format: double
                        minimum: 0.5
                      ships:
                        type: integer
                        format: int32
                        minimum: 0
                        maximum: 255
                      type:
                        type: string
                        nullable: true
    "#]]
    .assert_eq(&definition(&fleet("v1")).unwrap());
}

#[test]
fn nulls_in_the_values_that_a_schema_quotes_are_kept() {
    let mut fleet = fleet("v1");
    let flag = json!({"type": "object", "nullable": true, "title": null, "default": {"color": null, "size": [{"x": null}]},
        "enum": [{"color": null}], "properties": {
            "default": {"type": "string", "nullable": true, "default": null, "description": null},
            "color": {"type": "string", "nullable": true}}});
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    fleet.pointer_mut(schema).unwrap()["flag"] = flag;
    let merged = merge(&[fleet], "v1").unwrap();
    assert_eq!(
        merged.pointer(&format!("{schema}/flag")).unwrap(),
        &json!({"type": "object", "nullable": true, "default": {"color": null, "size": [{"x": null}]},
            "enum": [{"color": null}], "properties": {
                "default": {"type": "string", "nullable": true},
                "color": {"type": "string", "nullable": true}}})
    );
}

#[test]
fn versions_become_one_definition_newest_first() {
    let merged = merge(&[fleet("v1beta1"), fleet("v1"), fleet("v2alpha1"), fleet("v2")], "v1").unwrap();
    let versions: Vec<(&str, bool)> = merged["spec"]["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| (version["name"].as_str().unwrap(), version["storage"].as_bool().unwrap()))
        .collect();
    assert_eq!(versions, [("v2", false), ("v1", true), ("v1beta1", false), ("v2alpha1", false)]);
}

#[test]
fn what_cannot_be_merged_is_refused_with_the_reason() {
    let refusal = |definitions: &[Value], storage: &str| merge(definitions, storage).unwrap_err().to_string();
    let mut other = fleet("v2");
    other["spec"]["names"]["kind"] = "Ship".into();
    other["metadata"]["name"] = "ships.sea.example.com".into();
    assert_eq!(
        refusal(&[fleet("v1"), other], "v1"),
        "cannot merge fleets.sea.example.com and ships.sea.example.com: versions of one definition have the same kind"
    );
    assert_eq!(
        refusal(&[fleet("v1"), fleet("v1")], "v1"),
        "cannot merge two definitions of fleets.sea.example.com with the same version v1"
    );
    assert_eq!(
        refusal(&[fleet("v1"), fleet("v2")], "v3"),
        "no definition has the version v3 that objects are to be stored in; there is v1, v2"
    );
    assert_eq!(
        definition(&json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err().to_string(),
        "a Pod of v1 is no CustomResourceDefinition of apiextensions.k8s.io/v1"
    );
}

fn tree() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[ -~]{0,8}", "[a-z ]{90,130}", "[ -~\n]{0,40}", "(yes|no|null|~|1|0x1|1e3|- a|a: b|#x)"];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let key = prop_oneof!["[a-z]{1,6}", "(type|name|properties|y|null|1|a b)"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_manifest_is_read_as_what_it_was_made_of(tree in tree()) {
        let text = object(&json!({ "data": tree })).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, json!({ "data": tree }), "{text}");
    }
}
