//! Definitions and objects of custom resources: pruned, defaulted and validated as recorded.

use super::values;
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::Budget;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_schema::{Schema, default, prune, structural, validate};

/// The definition in the recordings.
fn shirt() -> Arc<Schema> {
    let definition = json!({"type":"object","properties":{"spec":{"type":"object","required":["color"],"properties":{
        "color":{"type":"string","enum":["blue","red"]},"size":{"type":"string","default":"M","pattern":"^(S|M|L)$"},
        "count":{"type":"integer","minimum":0,"maximum":10},"port":{"x-kubernetes-int-or-string":true},
        "tags":{"type":"array","maxItems":3,"items":{"type":"string","maxLength":5},"x-kubernetes-list-type":"set"},
        "parts":{"type":"array","items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"n":{"type":"integer"}}},
            "x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"]},
        "extra":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"nick":{"type":"string","nullable":true},
        "when":{"type":"string","format":"date-time"}}},
        "status":{"type":"object","properties":{"count":{"type":"integer"},"selector":{"type":"string"}}}}});
    assert_eq!(structural::check(&definition, &Path::root()), []);
    structural::compile(&definition)
}

fn compiled(definition: &Value) -> Arc<Schema> {
    structural::compile(definition)
}

fn lines(errors: &[Error]) -> Vec<String> {
    let mut lines: Vec<String> = errors.iter().map(|error| format!("{} {error}", error.reason())).collect();
    lines.sort();
    lines
}

#[track_caller]
fn judged(schema: &Schema, value: &Value, want: &[&str]) {
    assert_eq!(lines(&validate::validate(schema, value, &Budget::unlimited())), want);
}

/// Checks the errors of a value of the field `f`, with this schema.
#[track_caller]
fn field(definition: Value, value: Value, want: &[&str]) {
    let schema = compiled(&json!({"type": "object", "properties": {"f": definition}}));
    judged(&schema, &json!({"f": value}), want);
}

#[test]
fn unknown_fields_are_pruned_and_told() {
    let mut object = json!({
        "apiVersion": "g/v1", "kind": "Shirt", "metadata": {"name": "a", "odd": 1}, "other": {"x": 1},
        "spec": {"color": "blue", "pocket": true, "extra": {"any": {"thing": 1}}, "port": "http", "parts": [{"name": "x", "m": 1}]},
    });
    assert_eq!(prune::prune(&shirt(), &mut object), ["other", "spec.parts[0].m", "spec.pocket"]);
    assert_eq!(
        object,
        json!({
            "apiVersion": "g/v1", "kind": "Shirt", "metadata": {"name": "a", "odd": 1},
            "spec": {"color": "blue", "extra": {"any": {"thing": 1}}, "port": "http", "parts": [{"name": "x"}]},
        })
    );
}

#[test]
fn preserved_fields_keep_what_is_unknown_but_not_inside_the_known() {
    let schema = compiled(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        "any": {"type": "object", "additionalProperties": true},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }}));
    let mut object = json!({
        "spec": {"x": {"y": 1}, "known": {"a": "1", "b": 2}},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {"x": 1}, "y": 2},
        "any": {"a": {"b": 1}, "c": 3},
        "map": {"k": {"a": "1", "b": 2}},
    });
    assert_eq!(
        prune::prune(&schema, &mut object),
        ["any.a.b", "map.k.b", "spec.known.b", "template.spec.x", "template.y"]
    );
    assert_eq!(object["spec"], json!({"x": {"y": 1}, "known": {"a": "1"}}));
    assert_eq!(object["template"], json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {}}));
}

#[test]
fn defaults_fill_what_is_absent_and_nulls_that_may_not_be() {
    let mut object = json!({"spec": {"color": "red", "size": null, "nick": null, "when": null, "parts": [null]}});
    default::apply(&shirt(), &mut object, &Budget::unlimited()).unwrap();
    assert_eq!(object, json!({"spec": {"color": "red", "size": "M", "nick": null, "parts": [null]}}));
    let schema =
        compiled(&json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "x"},
        "m": {"type": "object", "additionalProperties": {"type": "integer", "default": 1}},
        "l": {"type": "array", "items": {"type": "integer", "default": 2}}}}}}));
    let mut object = json!({});
    default::apply(&schema, &mut object, &Budget::unlimited()).unwrap();
    assert_eq!(object, json!({"spec": {"a": "x"}}));
    let mut object = json!({"spec": {"m": {"k": null}, "l": [null, 3]}});
    default::apply(&schema, &mut object, &Budget::unlimited()).unwrap();
    assert_eq!(object, json!({"spec": {"a": "x", "m": {"k": 1}, "l": [2, 3]}}));
}

#[test]
fn all_faults_at_once_each_with_its_path() {
    judged(
        &shirt(),
        &json!({"spec": {"color": "green", "size": "XXL", "count": 11, "tags": ["toolong", "a"]}}),
        &[
            r#"FieldValueInvalid spec.count: Invalid value: 11: spec.count in body should be less than or equal to 10"#,
            r#"FieldValueInvalid spec.size: Invalid value: "XXL": spec.size in body should match '^(S|M|L)$'"#,
            r#"FieldValueNotSupported spec.color: Unsupported value: "green": supported values: "blue", "red""#,
            r#"FieldValueTooLong spec.tags[0]: Too long: may not be more than 5 bytes"#,
        ],
    );
    judged(&shirt(), &json!({"spec": {"count": 1}}), &["FieldValueRequired spec.color: Required value"]);
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "count": "three", "tags": "a", "port": 1.5}}),
        &[
            r#"FieldValueTypeInvalid spec.count: Invalid value: "string": spec.count in body must be of type integer: "string""#,
            r#"FieldValueTypeInvalid spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number""#,
            r#"FieldValueTypeInvalid spec.tags: Invalid value: "string": spec.tags in body must be of type array: "string""#,
        ],
    );
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "when": "yesterday"}}),
        &[
            r#"FieldValueTypeInvalid spec.when: Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday""#,
        ],
    );
    // With a format, upstream does not ask whether a list is of the type.
    judged(&shirt(), &json!({"spec": {"color": "red", "when": []}}), &[]);
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "when": {}}}),
        &[r#"FieldValueTypeInvalid spec.when: Invalid value: "": spec.when in body must be of type date-time: """#],
    );
    let network = compiled(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"cidr": {"type": "string"}}}}}),
    );
    judged(
        &network,
        &json!({"spec": {"cidr": 16}}),
        &[
            r#"FieldValueTypeInvalid spec.cidr: Invalid value: "integer": spec.cidr in body must be of type string: "integer""#,
        ],
    );
}

#[test]
fn sets_and_maps_hold_nothing_twice() {
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "tags": ["a", "a", "a"]}}),
        &[r#"FieldValueDuplicate spec.tags[1]: Duplicate value: "a""#],
    );
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "parts": [{"name": "x"}, {"name": "y"}, {"name": "x", "n": 1}]}}),
        &[r#"FieldValueDuplicate spec.parts[2]: Duplicate value: {"name":"x"}"#],
    );
    judged(
        &shirt(),
        &json!({"spec": {"color": "red", "parts": ["x"]}}),
        &[
            r#"FieldValueInvalid spec.parts[0]: Invalid value: "x": must be an object for an array of list-type map"#,
            r#"FieldValueTypeInvalid spec.parts[0]: Invalid value: "string": spec.parts[0] in body must be of type object: "string""#,
        ],
    );
}

#[test]
fn numbers_are_held_to_bounds_and_formats() {
    field(json!({"type": "integer"}), json!(3.0), &[]);
    field(json!({"type": "number"}), json!(3), &[]);
    field(
        json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
        json!(0.5),
        &["FieldValueInvalid f: Invalid value: 0.5: f in body should be greater than 0.5"],
    );
    field(
        json!({"type": "integer", "maximum": 10.0, "exclusiveMaximum": true}),
        json!(10),
        &["FieldValueInvalid f: Invalid value: 10: f in body should be less than 10"],
    );
    field(
        json!({"type": "integer", "minimum": 1}),
        json!(0),
        &["FieldValueInvalid f: Invalid value: 0: f in body should be greater than or equal to 1"],
    );
    field(
        json!({"type": "integer", "multipleOf": 3}),
        json!(7),
        &["FieldValueInvalid f: Invalid value: 7: f in body should be a multiple of 3"],
    );
    field(json!({"type": "number", "multipleOf": 0.1}), json!(0.3), &[]);
    // Upstream cuts off the fraction of the factor for a whole number.
    field(json!({"type": "number", "multipleOf": 0.5}), json!(1.5), &[]);
    let cut = ["FieldValueInvalid f: Invalid value: 2: f in body should be a multiple of 0.5"];
    field(json!({"type": "number", "multipleOf": 0.5}), json!(2), &cut);
    field(json!({"type": "number", "multipleOf": 2.5}), json!(4), &[]);
    field(
        json!({"type": "integer", "format": "int32"}),
        json!(3_000_000_000_u64),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": Checked value must be of type integer with format int32 in f"#,
        ],
    );
    // A bound that no value of the type can have is a fault of each value.
    for (name, bound, what) in
        [("maximum", 0.5, "Maximum boundary"), ("minimum", -0.5, "Minimum boundary"), ("multipleOf", 0.5, "MultipleOf")]
    {
        let want = format!(
            r#"FieldValueInvalid <nil>: Invalid value: "": {what} value must be of type integer (default format) in f"#
        );
        field(json!({"type": "integer", name: bound}), json!(0), &[&want]);
    }
    field(
        json!({"type": "integer"}),
        json!(1.5),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#,
            r#"FieldValueTypeInvalid f: Invalid value: "number": f in body must be of type integer: "number""#,
        ],
    );
}

#[test]
fn sizes_are_held_to_bounds() {
    field(
        json!({"type": "string", "minLength": 2}),
        json!("é"),
        &[r#"FieldValueInvalid f: Invalid value: "é": f in body should be at least 2 chars long"#],
    );
    field(json!({"type": "string", "maxLength": 2}), json!("éé"), &[]);
    field(
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
        json!([]),
        &["FieldValueInvalid f: Invalid value: 0: f in body should have at least 1 items"],
    );
    field(
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}),
        json!([1, 2]),
        &["FieldValueTooMany f: Too many: 2: must have at most 1 item"],
    );
    field(
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2, "maxProperties": 3}),
        json!({"a": "x"}),
        &[
            "FieldValueInvalid f: Invalid value: 1: f in body should have at least 2 properties",
            r#"FieldValueTypeInvalid f.a: Invalid value: "string": f.a in body must be of type integer: "string""#,
        ],
    );
    field(
        json!({"type": "object", "maxProperties": 0}),
        json!({"a": 1}),
        &["FieldValueTooMany f: Too many: 1: must have at most 0 items"],
    );
}

#[test]
fn null_is_refused_unless_allowed() {
    field(
        json!({"type": "string"}),
        Value::Null,
        &[r#"FieldValueTypeInvalid f: Invalid value: "null": f in body must be of type string: "null""#],
    );
    field(json!({"type": "string", "nullable": true}), Value::Null, &[]);
    field(json!({"x-kubernetes-preserve-unknown-fields": true}), Value::Null, &[]);
}

#[test]
fn alternatives_are_counted() {
    let one_of = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    field(one_of.clone(), json!({"a": 1}), &[]);
    field(
        one_of.clone(),
        json!({"a": 1, "b": 1}),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    field(
        one_of,
        json!({}),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid"#,
            "FieldValueRequired f.a: Required value",
        ],
    );
    field(json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}), json!("::1"), &[]);
    field(
        json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}),
        json!("x"),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": "f" must validate at least one schema (anyOf)"#,
            r#"FieldValueTypeInvalid f: Invalid value: "x": f in body must be of type ipv4: "x""#,
        ],
    );
    field(
        json!({"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 5}]}),
        json!(1),
        &[
            r#"FieldValueInvalid <nil>: Invalid value: "": "f" must validate all the schemas (allOf)"#,
            "FieldValueInvalid f: Invalid value: 1: f in body should be greater than or equal to 2",
        ],
    );
    field(
        json!({"type": "string", "not": {"enum": ["x"]}}),
        json!("x"),
        &[r#"FieldValueInvalid <nil>: Invalid value: "": "f" must not validate the schema (not)"#],
    );
}

#[test]
fn embedded_resources_have_a_type_and_sound_metadata() {
    let definition =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    field(
        definition.clone(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}}),
        &[],
    );
    field(
        definition.clone(),
        json!({"apiVersion": "", "metadata": {"name": "a/b"}}),
        &[
            r#"FieldValueInvalid f.apiVersion: Invalid value: "": must not be empty"#,
            r#"FieldValueInvalid f.metadata.name: Invalid value: "a/b": may not contain '/'"#,
            "FieldValueRequired f.kind: Required value",
        ],
    );
    let metadata = json!({"managedFields": [{"operation": "a", "fieldsType": "b"}], "ownerReferences": [{"kind": "a", "name": "b", "uid": "c"}]});
    field(
        definition.clone(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}),
        &[
            r#"FieldValueInvalid f.metadata.managedFields[0].fieldsType: Invalid value: "b": must be `FieldsV1`"#,
            r#"FieldValueInvalid f.metadata.managedFields[0].operation: Invalid value: "a": must be `Apply` or `Update`"#,
            r#"FieldValueInvalid f.metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty"#,
        ],
    );
    let metadata =
        json!({"generation": -1, "ownerReferences": [{"apiVersion": "a/b/c", "kind": "a", "name": "b", "uid": "c"}]});
    field(
        definition.clone(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}),
        &[
            "FieldValueInvalid f.metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            r#"FieldValueInvalid f.metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
        ],
    );
    field(
        definition.clone(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": [""]}}),
        &[
            r#"FieldValueInvalid f.metadata.finalizers: Invalid value: "": name part must be non-empty"#,
            concat!(
                r#"FieldValueInvalid f.metadata.finalizers: Invalid value: "": name part must consist of alphanumeric characters, "#,
                r#"'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "#,
                r#"'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
            ),
        ],
    );
    field(
        definition,
        json!({"apiVersion": "a/b/c", "kind": "Pod", "metadata": {"labels": []}}),
        &[
            r#"FieldValueInvalid f.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            r#"FieldValueInvalid f.metadata: Invalid value: {"labels":[]}: labels must be an object, not a list"#,
        ],
    );
}

#[test]
fn an_update_is_not_held_to_what_it_did_not_change() {
    let schema = shirt();
    let old =
        json!({"spec": {"color": "green", "size": "XXL", "tags": ["a", "a"], "parts": [{"name": "x", "n": "one"}]}});
    let mut new = old.clone();
    new["spec"]["count"] = json!(3);
    new["spec"]["parts"] = json!([{"name": "y"}, {"name": "x", "n": "one"}]);
    assert_eq!(validate::validate_update(&schema, &new, &old, &Budget::unlimited()), []);
    new["spec"]["size"] = json!("XL");
    new["spec"]["parts"][1]["n"] = json!("two");
    assert_eq!(
        lines(&validate::validate_update(&schema, &new, &old, &Budget::unlimited())),
        [
            r#"FieldValueInvalid spec.size: Invalid value: "XL": spec.size in body should match '^(S|M|L)$'"#,
            r#"FieldValueTypeInvalid spec.parts[1].n: Invalid value: "string": spec.parts[1].n in body must be of type integer: "string""#,
        ]
    );
    let sound = json!({"spec": {"color": "red"}});
    let twice = json!({"spec": {"color": "red", "tags": ["a", "a"]}});
    assert_eq!(validate::validate_update(&schema, &twice, &sound, &Budget::unlimited()).len(), 1);
}

// === definitions ===

#[track_caller]
fn refused(definition: Value, want: &[&str]) {
    let errors = structural::check(&definition, &Path::new("spec.validation.openAPIV3Schema"));
    let said: Vec<String> =
        errors.iter().map(|error| error.to_string().replace("spec.validation.openAPIV3Schema", "S")).collect();
    assert_eq!(said, want);
}

#[test]
fn the_structure_of_a_definition_with_an_unsupported_keyword_is_not_looked_at() {
    let unreadable = r#"S: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#;
    let below = |schema: Value| json!({"type": "object", "properties": {"a": {"type": "array"}, "b": schema}});
    refused(below(json!({"id": "x"})), &["S.properties[b].id: Forbidden: id is not supported"]);
    refused(below(json!({"$schema": "x", "default": 1})), &[unreadable]);
    refused(below(json!({"allOf": [{"properties": {"c": {"$schema": "x"}}}]})), &[unreadable]);
    refused(
        json!({"type": "object", "nullable": true, "$schema": "x"}),
        &["S.nullable: Forbidden: nullable cannot be true at the root"],
    );
    refused(json!({"additionalItems": false}), &["S.additionalItems: Forbidden: additionalItems is not supported"]);
    refused(
        json!({"type": "object", "dependencies": {}, "properties": {"a": {"type": "array"}}}),
        &[
            "S.properties[a].items: Required value: must be specified",
            "S.dependencies: Forbidden: dependencies is not supported",
        ],
    );
}

#[test]
fn definitions_that_are_not_structural_are_refused_as_recorded() {
    refused(
        json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}, "b": {"type": "array"}}}),
        &[
            "S.properties[b].items: Required value: must be specified",
            "S.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
    refused(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}}}),
        &[
            r#"S.properties[spec].properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#,
        ],
    );
    refused(json!({}), &["S.type: Required value: must not be empty at the root"]);
    refused(json!({"type": "string"}), &[r#"S.type: Invalid value: "string": must be object at the root"#]);
    refused(
        json!({"type": "object", "nullable": true, "additionalProperties": true, "properties": {"metadata": {"type": "object", "description": "x"}}}),
        &[
            "S.nullable: Forbidden: nullable cannot be true at the root",
            "S.additionalProperties: Forbidden: must not be used at the root",
            "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    refused(
        json!({"type": "object", "properties": {"a": {"type": "integer", "anyOf": [{"type": "string", "default": 1}], "allOf": [{"properties": {"x": {}}}]}}}),
        &[
            "S.properties[a].anyOf[0].default: Forbidden: must be undefined to be structural",
            "S.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    refused(
        json!({"type": "object", "allOf": [{"properties": {"x": {"minimum": 1}}}]}),
        &["S.properties[x]: Required value: because it is defined in S.allOf[0].properties[x]"],
    );
    refused(
        json!({"type": "object", "properties": {"p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
        &[],
    );
    refused(
        json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "("}}}),
        &[
            r#"S.properties[p].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"#,
        ],
    );
}

#[test]
fn keywords_that_kubernetes_does_not_take_are_refused() {
    refused(
        json!({"type": "object", "properties": {"a": {"type": "text"}, "b": {"type": "array", "uniqueItems": true, "items": {"type": "string"}},
            "c": {"type": "object", "$ref": "#/x", "id": "i", "dependencies": {}, "patternProperties": {"x": {}}},
            "d": {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": false},
            "e": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}}}),
        &[
            r#"S.properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            "S.properties[b].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            "S.properties[c].id: Forbidden: id is not supported",
            "S.properties[c].patternProperties: Forbidden: patternProperties is not supported",
            "S.properties[c].dependencies: Forbidden: dependencies is not supported",
            "S.properties[c].$ref: Forbidden: $ref is not supported",
            "S.properties[d].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            "S.properties[e].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ],
    );
}

#[test]
fn lists_that_merge_say_how() {
    let list = |more: Value| {
        let mut list = json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}, "o": {"type": "object"}}}});
        for (key, value) in more.as_object().unwrap() {
            list[key] = value.clone();
        }
        json!({"type": "object", "properties": {"l": list}})
    };
    refused(
        list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "a", "z", "o"]})),
        &[
            r#"S.properties[l].x-kubernetes-list-map-keys: Invalid value: ["a","a","z","o"]: must not contain duplicate entries"#,
            r#"S.properties[l].x-kubernetes-list-map-keys: Invalid value: ["a","a","z","o"]: entries must all be names of item properties"#,
            r#"S.properties[l].items.properties[o].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
            "S.properties[l].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            "S.properties[l].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            "S.properties[l].items.properties[o].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
    refused(
        list(json!({"x-kubernetes-list-type": "map"})),
        &[
            "S.properties[l].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ],
    );
    refused(
        list(json!({"x-kubernetes-list-map-keys": ["a"]})),
        &[
            "S.properties[l].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ],
    );
    refused(
        list(json!({"x-kubernetes-list-type": "set"})),
        &[
            "S.properties[l].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ],
    );
    refused(
        json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-list-type": "set", "x-kubernetes-map-type": "odd"}}}),
        &[
            r#"S.properties[a].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified"#,
            r#"S.properties[a].x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular""#,
            r#"S.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
        ],
    );
}

#[test]
fn defaults_have_no_unknown_fields_and_make_no_bad_metadata() {
    refused(
        json!({"type": "object", "properties": {"a": {"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}}}}),
        &[r#"S.properties[a].default: Invalid value: {"x":1}: must not have unknown fields"#],
    );
    refused(
        json!({"type": "object", "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "a/b"}}}}}}}),
        &[
            r#"S.properties[t].properties[metadata].properties[name].default: Invalid value: "a/b": must result in valid metadata: metadata.name: Invalid value: "a/b": may not contain '/'"#,
        ],
    );
    refused(
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}}),
        &["S.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"],
    );
}

#[test]
fn rules_are_sound_before_they_are_read() {
    let rule = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]});
    refused(rule(json!({"rule": "self.a == 'x'", "fieldPath": ".a", "reason": "FieldValueInvalid"})), &[]);
    refused(rule(json!({"rule": " "})), &["S.x-kubernetes-validations[0].rule: Required value: rule is not specified"]);
    refused(
        rule(json!({"rule": "a\nb", "reason": "Odd", "fieldPath": ".b"})),
        &[
            "S.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
            r#"S.x-kubernetes-validations[0].reason: Unsupported value: "Odd": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            r#"S.x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path"#,
        ],
    );
}

#[test]
fn a_status_subresource_restricts_the_root() {
    let path = Path::new("S");
    let fine =
        json!({"type": "object", "description": "d", "properties": {}, "required": [], "additionalProperties": null});
    assert_eq!(structural::check_root_with_status(&fine, &path), []);
    for odd in [
        json!({"type": "object", "oneOf": [{"required": ["a"]}]}),
        json!({"type": "object", "oneOf": []}),
        json!({"type": "object", "x-kubernetes-list-type": ""}),
    ] {
        let said = structural::check_root_with_status(&odd, &path)[0].to_string();
        assert!(said.starts_with("S: Invalid value: ") && said.contains("only [Description Type Format"), "{said}");
    }
}

#[test]
fn formats_that_are_not_checked_are_told() {
    let definition = json!({"type": "object", "properties": {"a": {"type": "string", "format": "odd"}, "b": {"type": "integer", "format": "uint8"},
        "c": {"type": "string", "format": "ipv4"}}});
    let odd = steersman_schema::format::unrecognized(&definition);
    assert_eq!(odd.into_iter().collect::<Vec<_>>(), ["odd", "uint8"]);
}

proptest! {
    #[test]
    fn any_object_is_judged_pruned_and_defaulted(object in values::value(), old in values::value()) {
        let schema = shirt();
        validate::validate(&schema, &object, &Budget::unlimited());
        validate::validate_update(&schema, &object, &old, &Budget::unlimited());
        prop_assert_eq!(validate::validate_update(&schema, &object, &object, &Budget::unlimited()).into_iter().filter(|error| error.reason() != "FieldValueDuplicate").count(), 0);
        let mut once = object.clone();
        prune::prune(&schema, &mut once);
        let mut twice = once.clone();
        prop_assert!(prune::prune(&schema, &mut twice).is_empty());
        prop_assert_eq!(&twice, &once);
        default::apply(&schema, &mut once, &Budget::unlimited()).unwrap();
        let mut again = once.clone();
        default::apply(&schema, &mut again, &Budget::unlimited()).unwrap();
        prop_assert_eq!(again, once);
    }

    #[test]
    fn any_definition_is_checked_and_compiled(definition in values::value(), object in values::value()) {
        structural::check(&definition, &Path::root());
        let schema = structural::compile(&definition);
        validate::validate(&schema, &object, &Budget::unlimited());
        let mut object = object;
        prune::prune(&schema, &mut object);
        default::apply(&schema, &mut object, &Budget::unlimited()).unwrap();
    }
}

#[test]
fn patterns_are_measured_for_the_whole_definition() {
    let definition = |pattern: &dyn Fn(usize) -> String, count: usize| {
        let properties: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("p{n}"), json!({"type": "string", "pattern": pattern(n)}))).collect();
        json!({"type": "object", "properties": properties})
    };
    // Ten thousand different patterns of an ordinary kind.
    let many = definition(&|n| format!("^[a-z0-9]([-a-z0-9]{{0,9}}[a-z0-9])?-{n}$"), 10_000);
    assert_eq!(structural::check(&many, &Path::root()), []);

    let heavy = |n: usize| format!("{}{n}", "[a-z]{1,1000}".repeat(30));
    let errors = structural::check(&definition(&heavy, 300), &Path::root());
    assert_eq!(errors.len(), 1);
    let said = errors[0].to_string();
    assert!(
        said.starts_with("properties[p1") && said.contains("is one pattern too many: compiled, those of one"),
        "{said}"
    );

    // A repeated pattern is compiled once.
    let same = definition(&|_| "[a-z]{1,1000}".repeat(30), 300);
    assert_eq!(structural::check(&same, &Path::root()), []);

    let beyond = definition(&|_| r"[\p{L}\p{N}]{1,200}[a-z]{1,100}".to_owned(), 300);
    let errors = structural::check(&beyond, &Path::root());
    assert!(
        errors[0].to_string().contains("must be a valid regular expression, but isn't: compiled it would have about")
    );
}
