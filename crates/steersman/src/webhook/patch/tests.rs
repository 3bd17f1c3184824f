//! Patches are applied with the crate `json-patch`, to examples and to random trees.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[track_caller]
fn check(old: Value, new: Value, expected: Expect) {
    let changes = diff(&old, &new);
    assert_eq!(apply(&old, &changes), new);
    let lines: Vec<String> = changes.iter().map(|change| serde_json::to_string(change).unwrap()).collect();
    expected.assert_eq(&lines.join("\n"));
}

fn apply(old: &Value, changes: &[Change]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(changes).unwrap()).unwrap();
    let mut patched = old.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

#[test]
fn equal_objects_need_no_patch() {
    check(json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]}), expect![""]);
}

#[test]
fn keys_are_added_removed_and_replaced_with_their_slashes_escaped() {
    check(
        json!({"gone": 1, "kept": 2, "metadata": {"labels": {"a/b": "1"}}}),
        json!({"kept": 3, "metadata": {"labels": {"a/b": "2", "c~d": ""}}}),
        expect![[r#"
            {"op":"remove","path":"/gone"}
            {"op":"replace","path":"/kept","value":3}
            {"op":"replace","path":"/metadata/labels/a~1b","value":"2"}
            {"op":"add","path":"/metadata/labels/c~0d","value":""}"#]],
    );
}

#[test]
fn a_container_in_front_of_others_is_one_operation() {
    check(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "proxy"}, {"name": "a"}, {"name": "b", "image": "b:1"}]}),
        expect![[r#"
            {"op":"add","path":"/containers/0","value":{"name":"proxy"}}
            {"op":"add","path":"/containers/2/image","value":"b:1"}"#]],
    );
}

#[test]
fn what_follows_a_removed_element_stays() {
    check(
        json!([{"name": "a"}, {"name": "b", "x": 1}, {"name": "c"}]),
        json!([{"name": "b", "x": 2}, {"name": "c"}]),
        expect![[r#"
            {"op":"remove","path":"/0"}
            {"op":"replace","path":"/0/x","value":2}"#]],
    );
}

#[test]
fn fields_that_the_type_does_not_know_stay() {
    let sent =
        json!({"spec": {"known": 1, "newer": true, "list": [{"name": "a", "newer": 1}, {"name": "b", "newer": 2}]}});
    // The type's encoding of the object: one field is left out, another is added.
    let before = json!({"spec": {"known": 1, "made": [], "list": [{"name": "a"}, {"name": "b"}]}});
    let after = json!({"spec": {"known": 2, "made": [], "list": [{"name": "z"}, {"name": "b", "x": 1}]}});
    let expected =
        json!({"spec": {"known": 2, "newer": true, "list": [{"name": "z"}, {"name": "b", "newer": 2, "x": 1}]}});
    assert_eq!(carry(sent, &before, after), expected);
}

#[test]
fn lists_too_long_to_compare_are_still_patched() {
    let old: Vec<Value> = (0..200).map(|n| json!({"name": n.to_string()})).collect();
    let new: Vec<Value> = (0..200).rev().map(|n| json!({"name": n.to_string()})).collect();
    let (old, new) = (Value::from(old), Value::from(new));
    assert_eq!(apply(&old, &diff(&old, &new)), new);
}

/// Small trees with few keys and values, so that two of them have much in common.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i32).prop_map(Value::from),
        "[ab/~]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("a|b|/|~|name", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_patch_makes_the_new_of_the_old(old in tree(), new in tree()) {
        prop_assert_eq!(apply(&old, &diff(&old, &new)), new);
    }

    #[test]
    fn what_a_type_knows_completely_becomes_what_the_function_made(before in tree(), after in tree()) {
        prop_assert_eq!(carry(before.clone(), &before, after.clone()), after);
    }

    #[test]
    fn what_no_function_changed_stays_as_it_was_sent(sent in tree(), known in tree()) {
        prop_assert_eq!(carry(sent.clone(), &known, known.clone()), sent);
    }
}
