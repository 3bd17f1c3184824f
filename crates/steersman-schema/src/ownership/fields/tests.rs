//! Tests of field sets: the fields of a value, the differences of two values, and the laws of the algebra.

use crate::ownership::fields::compare;
use crate::ownership::fields::element::{Element, Literal, Path, same};
use crate::ownership::fields::typed::{self, Duplicates};
use crate::ownership::fields::{FieldSet, merge, reconcile, remove};
use crate::{Definitions, Schema};
use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use serde_json::json;
use steersman_machinery::Value;

fn builtin(name: &str) -> &'static Schema {
    Definitions::builtin().schema(name).unwrap()
}

fn pod() -> &'static Schema {
    builtin("io.k8s.api.core.v1.Pod")
}

/// A structural schema with every kind of list and map.
fn custom() -> Schema {
    Schema::from_json(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "whole": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {
                    "a": {"type": "string"}, "b": {"type": "integer", "default": 1}, "v": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "point": {"type": "object", "x-kubernetes-map-type": "atomic",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true}
        }}
    }}))
}

#[track_caller]
fn check_set(schema: &Schema, value: Value, want: Expect) {
    want.assert_eq(&FieldSet::of(schema, &value).to_value().to_string());
}

#[track_caller]
fn check_change(schema: &Schema, old: Value, new: Value, want: Expect) {
    let found = compare(schema, &old, &new);
    let (added, modified, removed) = (found.added.to_value(), found.modified.to_value(), found.removed.to_value());
    want.assert_eq(&format!("+ {added}\n~ {modified}\n- {removed}"));
}

#[track_caller]
fn check_fit(schema: &Schema, value: Value, want: Expect) {
    let outcome = typed::validate(schema, &value, Duplicates::Refuse);
    want.assert_eq(&outcome.map_or_else(|mismatch| mismatch.to_string(), |()| "fits".to_owned()));
}

#[track_caller]
fn check_merge(schema: &Schema, live: Value, applied: Value, want: Expect) {
    want.assert_eq(&merge::merge(schema, &live, &applied).to_string());
}

#[test]
fn maps_are_owned_key_by_key_and_wholes_as_wholes() {
    check_set(
        &custom(),
        json!({"spec": {"name": "n", "whole": ["x"], "map": {"k": "v"}, "point": {"x": 1}, "port": "http"}}),
        expect![[r#"{"f:spec":{"f:map":{"f:k":{}},"f:name":{},"f:point":{},"f:port":{},"f:whole":{}}}"#]],
    );
}

#[test]
fn items_of_sets_and_keyed_lists_are_owned_one_by_one() {
    check_set(
        &custom(),
        json!({"spec": {"set": ["b", "a"], "keyed": [{"a": "1", "v": "x"}, {"a": "1", "b": 2}]}}),
        expect![[
            r#"{"f:spec":{"f:keyed":{"k:{\"a\":\"1\",\"b\":1}":{".":{},"f:a":{},"f:v":{}},"k:{\"a\":\"1\",\"b\":2}":{".":{},"f:a":{},"f:b":{}}},"f:set":{"v:\"a\"":{},"v:\"b\"":{}}}}"#
        ]],
    );
}

#[test]
fn empty_and_null_fields_are_owned_themselves() {
    check_set(
        &custom(),
        json!({"spec": {"map": {}, "name": null, "set": []}}),
        expect![[r#"{"f:spec":{"f:map":{},"f:name":{}}}"#]],
    );
}

#[test]
fn a_value_without_a_schema_is_split_at_maps_only() {
    check_set(
        &Schema::default(),
        json!({"apiVersion": "g/v1", "spec": {"cidr": "10.0.0.0/8", "list": [{"a": 1}], "deep": {"a": {}}}}),
        expect![[r#"{"f:apiVersion":{},"f:spec":{".":{},"f:cidr":{},"f:deep":{".":{},"f:a":{}},"f:list":{}}}"#]],
    );
    check_set(
        &custom(),
        json!({"spec": {"any": {"a": {"b": [1]}}}}),
        expect![[r#"{"f:spec":{"f:any":{"f:a":{".":{},"f:b":{}}}}}"#]],
    );
}

#[test]
fn metadata_is_known_whatever_a_definition_says_of_it() {
    check_set(
        &custom(),
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "finalizers": ["x/y"]}}),
        expect![[r#"{"f:apiVersion":{},"f:kind":{},"f:metadata":{"f:finalizers":{"v:\"x/y\"":{}},"f:name":{}}}"#]],
    );
}

#[test]
fn changes_are_told_apart() {
    check_change(
        &custom(),
        json!({"spec": {"name": "a", "count": 1, "whole": [1], "set": ["a", "b"], "point": {"x": 1}}}),
        json!({"spec": {"name": "b", "count": 1.0, "whole": [2], "set": ["b", "c"], "map": {"k": "v"}}}),
        expect![[r#"
            + {"f:spec":{"f:map":{".":{},"f:k":{}},"f:set":{"v:\"c\"":{}}}}
            ~ {"f:spec":{"f:name":{},"f:whole":{}}}
            - {"f:spec":{"f:point":{},"f:set":{"v:\"a\"":{}}}}"#]],
    );
}

#[test]
fn the_order_of_a_set_is_no_change() {
    check_change(
        &custom(),
        json!({"spec": {"set": ["a", "b"]}}),
        json!({"spec": {"set": ["b", "a"]}}),
        expect![[r#"
            + {}
            ~ {}
            - {}"#]],
    );
}

#[test]
fn an_item_that_comes_to_be_there_twice_is_owned_as_a_whole() {
    let old = json!({"spec": {"keyed": [{"a": "1", "v": "x"}]}});
    let new = json!({"spec": {"keyed": [{"a": "1", "v": "x"}, {"a": "1", "v": "y"}]}});
    check_change(
        &custom(),
        old,
        new.clone(),
        expect![[r#"
            + {"f:spec":{"f:keyed":{"k:{\"a\":\"1\",\"b\":1}":{}}}}
            ~ {}
            - {"f:spec":{"f:keyed":{"k:{\"a\":\"1\",\"b\":1}":{".":{},"f:a":{},"f:v":{}}}}}"#]],
    );
    check_set(&custom(), new, expect![[r#"{"f:spec":{"f:keyed":{"k:{\"a\":\"1\",\"b\":1}":{}}}}"#]]);
}

#[test]
fn a_deduced_value_may_change_its_type() {
    check_change(
        &Schema::default(),
        json!({"a": {"b": 1}, "c": "x"}),
        json!({"a": "text", "c": {"d": 1}}),
        expect![[r#"
            + {"f:c":{"f:d":{}}}
            ~ {"f:a":{},"f:c":{}}
            - {"f:a":{"f:b":{}}}"#]],
    );
}

#[test]
fn misfits_are_told_in_the_words_of_kube_apiserver() {
    check_fit(&custom(), json!({"spec": {"nope": 1}}), expect![".spec.nope: field not declared in schema"]);
    check_fit(&custom(), json!({"spec": []}), expect![".spec: expected map, got a list"]);
    check_fit(
        &custom(),
        json!({"spec": {"name": true, "count": "x", "set": ["a", "a"], "whole": {}}}),
        expect![[
            r#".spec.count: expected number, got the string "x"; .spec.name: expected string, got true; .spec.set: duplicate entries for key [="a"]; .spec.whole: expected list, got an object"#
        ]],
    );
    check_fit(
        pod(),
        json!({"spec": {"imagePullSecrets": [{}, {}], "topologySpreadConstraints": [{}]}}),
        expect![[r#".spec.imagePullSecrets: duplicate entries for key [name=""]"#]],
    );
    check_fit(
        pod(),
        json!({"spec": {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": true}]}}),
        expect![[
            r#".spec.containers: duplicate entries for key [name="c"]; .spec.containers[name="c"].image: expected string, got true"#
        ]],
    );
}

#[test]
fn an_item_without_one_of_its_keys_is_known_by_the_others() {
    let value = || json!({"spec": {"keyed": [{"b": 2, "v": "x"}]}});
    check_fit(&custom(), value(), expect!["fits"]);
    check_set(&custom(), value(), expect![[r#"{"f:spec":{"f:keyed":{"k:{\"b\":2}":{".":{},"f:b":{},"f:v":{}}}}}"#]]);
}

#[test]
fn what_is_applied_comes_in_its_order_and_what_is_only_live_stays_in_place() {
    let set = |items: &[&str]| json!({"spec": {"set": items}});
    for (live, applied, want) in [
        (["a", "b", "c"].as_slice(), ["c", "a"].as_slice(), ["b", "c", "a"].as_slice()),
        (&["a", "b", "c"], &["b", "d"], &["a", "b", "c", "d"]),
        (&["b", "x", "a"], &["a", "b"], &["x", "a", "b"]),
        (&["x"], &["y"], &["x", "y"]),
        (&[], &["y", "x"], &["y", "x"]),
        (&["x", "y"], &[], &["x", "y"]),
    ] {
        let merged = merge::merge(&custom(), &set(live), &set(applied));
        assert_eq!(merged, set(want), "{live:?} and {applied:?}");
    }
}

#[test]
fn an_applied_item_merges_into_the_live_one_by_its_keys() {
    check_merge(
        pod(),
        json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}),
        json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "name": "http"}]}]}}),
        expect![[
            r#"{"spec":{"containers":[{"image":"i","name":"c","ports":[{"containerPort":80,"name":"http","protocol":"TCP"}]}]}}"#
        ]],
    );
}

#[test]
fn removing_all_of_a_map_removes_the_map() {
    let value = json!({"spec": {"map": {"a": "1"}, "set": ["x", "y"], "name": "n"}});
    let mut fields = FieldSet::of_names(&[&["spec", "map", "a"]]);
    let mut path = vec![Element::Field("spec".into()), Element::Field("set".into())];
    path.push(Element::Value(Literal(json!("x"))));
    fields.insert(&path);
    assert_eq!(remove::remove(&custom(), &value, &fields), json!({"spec": {"set": ["y"], "name": "n"}}));
}

#[test]
fn who_owned_a_part_owns_the_whole_it_became() {
    let mut parts = FieldSet::of_names(&[&["spec", "point", "x"], &["spec", "map", "a"]]);
    let want = FieldSet::of_names(&[&["spec", "point"], &["spec", "map", "a"]]);
    reconcile::reconcile(&custom(), &mut parts);
    assert_eq!(parts, want);
}

#[test]
fn paths_print_as_conflicts_name_them() {
    let set = FieldSet::from_value(&json!({
        "f:data": {"f:k": {}},
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        "f:spec": {"k:{\"name\":\"c\",\"n\":1}": {".": {}, "f:image": {}}, "v:\"x\"": {}, "v:1": {}, "i:3": {}},
        "f:z": {},
    }))
    .unwrap();
    let paths: Vec<String> = set.paths().iter().map(Path::to_string).collect();
    assert_eq!(
        paths,
        [
            ".z",
            ".data.k",
            ".metadata.labels",
            ".metadata.labels.l",
            r#".spec[n=1,name="c"]"#,
            ".spec[=1]",
            r#".spec[="x"]"#,
            ".spec[3]",
            r#".spec[n=1,name="c"].image"#,
        ]
    );
}

#[test]
fn fields_of_a_kind_not_known_are_passed_over_and_nonsense_is_refused() {
    let read = |value: Value| FieldSet::from_value(&value);
    assert_eq!(read(json!({"f:a": {}, "x:new": {"f:b": {}}})).unwrap(), FieldSet::of_names(&[&["a"]]));
    for (nonsense, want) in [
        (json!([]), "a field set must be an object, not []"),
        (json!({"f:a": 1}), "a field set must be an object, not 1"),
        (json!({"a": {}}), r#""a" is not a path element: it must begin with `f:`, `k:`, `v:` or `i:`"#),
        (
            json!({"k:[1]": {}}),
            r#""k:[1]" is not a path element: an object must follow `k:`, a value `v:`, a number `i:`"#,
        ),
    ] {
        assert_eq!(read(nonsense).unwrap_err().to_string(), want);
    }
}

#[test]
fn keys_are_escaped_as_go_escapes_them() {
    let mut set = FieldSet::new();
    set.insert(&[Element::Key(vec![("name".into(), Literal(json!("a<b&c")))])]);
    assert_eq!(set.to_value().to_string(), r#"{"k:{\"name\":\"a\\u003cb\\u0026c\"}":{}}"#);
}

// === properties ===

fn element() -> impl Strategy<Value = Element> {
    let literal = prop_oneof![
        any::<i8>().prop_map(|number| json!(number)),
        "[a-c<\"é]{0,3}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let key = ("[a-b]", literal.clone()).prop_map(|(name, value)| Element::Key(vec![(name, Literal(value))]));
    prop_oneof![
        4 => "[a-c.:/ ]{0,2}".prop_map(Element::Field),
        1 => key,
        1 => literal.prop_map(|value| Element::Value(Literal(value))),
        1 => (0..3_i64).prop_map(Element::Index),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    vec(vec(element(), 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(set in field_set()) {
        let written = set.to_value();
        let read = FieldSet::from_value(&written).unwrap();
        prop_assert_eq!(&read, &set);
        prop_assert_eq!(read.to_value().to_string(), written.to_string());
    }

    #[test]
    fn reading_never_panics(text in r#"\{("[fkvi.]:?[a\{\}"1:,]{0,4}":(\{\}|null|1),?){0,3}\}"#) {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = FieldSet::from_value(&value);
        }
    }

    #[test]
    fn sets_obey_the_laws_of_sets(a in field_set(), b in field_set(), c in field_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b), a.difference(&a.difference(&b)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert!(a.difference(&a).is_empty());
        prop_assert!(a.is_subset(&a.union(&b)));
        prop_assert_eq!(a.is_subset(&b), a.difference(&b).is_empty());
        prop_assert_eq!(a.union(&b).len(), a.len() + b.len() - a.intersection(&b).len());
    }

    #[test]
    fn membership_decides(a in field_set(), b in field_set()) {
        for path in a.union(&b).paths() {
            let (in_a, in_b) = (a.contains(&path.0), b.contains(&path.0));
            prop_assert!(in_a || in_b);
            prop_assert_eq!(a.difference(&b).contains(&path.0), in_a && !in_b);
            let is_covered = (1..=path.0.len()).any(|length| b.contains(&path.0[..length]));
            prop_assert_eq!(a.recursive_difference(&b).contains(&path.0), in_a && !is_covered);
            let has_beneath = a.paths().iter().any(|other| other != &path && other.0.starts_with(&path.0));
            prop_assert_eq!(a.leaves().contains(&path.0), in_a && !has_beneath);
        }
        prop_assert_eq!(a.filter(|path| b.contains(&path.0)), a.intersection(&b));
    }

    #[test]
    fn what_differs_is_what_compare_finds(old in any_object(), new in any_object()) {
        let schema = Schema::default();
        let found = compare(&schema, &old, &new);
        prop_assert_eq!(found.is_same(), same(&old, &new));
        let back = compare(&schema, &new, &old);
        prop_assert_eq!(&back.added, &found.removed);
        prop_assert_eq!(&back.modified, &found.modified);
    }

    #[test]
    fn what_is_applied_is_there_afterwards(live in any_object(), applied in any_object()) {
        let schema = Schema::default();
        let merged = merge::merge(&schema, &live, &applied);
        prop_assert_eq!(merge::merge(&schema, &merged, &applied), merged.clone());
        let lost = FieldSet::of(&schema, &applied).difference(&FieldSet::of(&schema, &merged));
        prop_assert!(lost.is_empty(), "{:?}", lost.paths());
    }
}

/// Maps of maps of scalars and lists.
fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..3).prop_map(|number| json!(number)),
        "[a-b]".prop_map(Value::from),
        vec(0..2, 0..3).prop_map(|items| json!(items)),
    ];
    let value = leaf.prop_recursive(3, 16, 3, |inner| {
        proptest::collection::btree_map("[a-c]", inner, 1..3).prop_map(|fields| json!(fields))
    });
    proptest::collection::btree_map("[a-c]", value, 1..4).prop_map(|fields| json!(fields))
}
