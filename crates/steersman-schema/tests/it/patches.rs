//! JSON patches and merge patches: results as recorded, and laws that hold for any values.

use super::values;
use proptest::prelude::*;
use serde_json::json;
use steersman_machinery::Budget;
use steersman_machinery::Value;
use steersman_schema::json_patch::{self, Error, Patch};
use steersman_schema::merge_patch;

fn object() -> Value {
    json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "list": [{"name": "c1"}, {"name": "c2"}], "n": null})
}

#[track_caller]
fn patched(patch: Value) -> Value {
    Patch::parse(patch.to_string().as_bytes(), &Budget::unlimited())
        .unwrap()
        .apply(&object(), &Budget::unlimited())
        .unwrap()
}

#[track_caller]
fn names(patch: Value) -> Vec<String> {
    let patched = patched(patch);
    patched["list"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap_or("?").to_owned()).collect()
}

#[track_caller]
fn fails(patch: Value, want: &str) {
    let error = Patch::parse(patch.to_string().as_bytes(), &Budget::unlimited())
        .unwrap()
        .apply(&object(), &Budget::unlimited())
        .unwrap_err();
    assert!(matches!(error, Error::Operation { .. } | Error::Unreadable { .. }));
    assert_eq!(error.to_string(), want);
}

#[test]
fn every_operation_does_its_work() {
    let patched = patched(json!([
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels/c", "value": "3"},
        {"op": "replace", "path": "/metadata/labels/a", "value": "one"},
        {"op": "remove", "path": "/metadata/labels/b"},
        {"op": "copy", "from": "/metadata/labels/c", "path": "/metadata/labels/d"},
        {"op": "move", "from": "/metadata/labels/d", "path": "/metadata/labels/e~1f"},
    ]));
    assert_eq!(patched["metadata"]["labels"], json!({"a": "one", "c": "3", "e/f": "3"}));
}

#[test]
fn places_in_lists_count_from_both_ends() {
    let add = |index: &str| names(json!([{"op": "add", "path": format!("/list/{index}"), "value": {"name": "new"}}]));
    assert_eq!(add("-"), ["c1", "c2", "new"]);
    assert_eq!(add("0"), ["new", "c1", "c2"]);
    assert_eq!(add("2"), ["c1", "c2", "new"]);
    assert_eq!(add("-1"), ["c1", "c2", "new"]);
    assert_eq!(add("-2"), ["c1", "new", "c2"]);
    assert_eq!(names(json!([{"op": "remove", "path": "/list/-1"}])), ["c1"]);
    assert_eq!(names(json!([{"op": "replace", "path": "/list/-2/name", "value": "x"}])), ["x", "c2"]);
    fails(
        json!([{"op": "add", "path": "/list/3", "value": 1}]),
        r#"operation 0 (add "/list/3"): "3" is no index of a list of 2"#,
    );
    fails(
        json!([{"op": "remove", "path": "/list/-"}]),
        r#"operation 0 (remove "/list/-"): "-" is no index of a list of 2"#,
    );
    fails(
        json!([{"op": "remove", "path": "/list/-3"}]),
        r#"operation 0 (remove "/list/-3"): "-3" is no index of a list of 2"#,
    );
}

#[test]
fn what_is_not_there_cannot_be_removed_but_may_be_replaced_and_tested_for_null() {
    fails(
        json!([{"op": "remove", "path": "/metadata/labels/zzz"}]),
        r#"operation 0 (remove "/metadata/labels/zzz"): there is nothing at "/metadata/labels/zzz""#,
    );
    fails(
        json!([{"op": "add", "path": "/spec/a/b", "value": 1}]),
        r#"operation 0 (add "/spec/a/b"): there is nothing at "/spec/a/b""#,
    );
    fails(
        json!([{"op": "add", "path": "/n/a", "value": 1}]),
        r#"operation 0 (add "/n/a"): there is nothing at "/n/a""#,
    );
    assert_eq!(
        patched(json!([{"op": "replace", "path": "/metadata/labels/zzz", "value": "new"}]))["metadata"]["labels"]["zzz"],
        "new"
    );
    patched(
        json!([{"op": "test", "path": "/metadata/zzz", "value": null}, {"op": "test", "path": "/n", "value": null}]),
    );
}

#[test]
fn a_failing_test_refuses_all() {
    fails(
        json!([{"op": "replace", "path": "/metadata/labels/a", "value": "two"}, {"op": "test", "path": "/metadata/labels/b", "value": "4"}]),
        r#"operation 1 (test "/metadata/labels/b"): the value there is another"#,
    );
    patched(json!([{"op": "add", "path": "/x", "value": 1.0}, {"op": "test", "path": "/x", "value": 1}]));
    patched(json!([{"op": "test", "path": "", "value": object()}]));
}

#[test]
fn operations_that_are_none_are_refused_when_their_turn_comes() {
    fails(
        json!([{"op": "explode", "path": "/a"}]),
        r#"operation 0: there is no operation "explode": want add, copy, move, remove, replace or test"#,
    );
    fails(json!([{"path": "/a"}]), r#"operation 0: it has no op"#);
    fails(json!([{"op": "add"}]), r#"operation 0: it has no path"#);
    fails(json!([{"op": "move", "path": "/a"}]), r#"operation 0: it has no from"#);
    fails(json!([{"op": "add", "path": "a"}]), r#"operation 0: the path "a" does not start with /"#);
}

#[test]
fn patches_that_are_no_lists_of_operations_are_malformed() {
    for (text, want) in [
        (r#"{"metadata":{}}"#, "error decoding patch: a JSON patch is a list of operations"),
        ("[", "error decoding patch: unexpected end of JSON input"),
        ("[1]", "error decoding patch: operation 0 is not an object"),
        (r#"[{"op":1}]"#, "error decoding patch: op of operation 0 is not a string"),
    ] {
        let error = Patch::parse(text.as_bytes(), &Budget::unlimited()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }));
        assert_eq!(error.to_string(), want);
    }
    let many = Value::from(vec![json!({"op": "remove", "path": "/a"}); json_patch::OPERATIONS_MAX + 1]).to_string();
    assert_eq!(
        Patch::parse(many.as_bytes(), &Budget::unlimited()).unwrap_err().to_string(),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn strict_readers_hear_of_unknown_fields() {
    let patch = Patch::parse(br#"[{"op":"add","path":"/a","vlaue":1,"op":"add"}]"#, &Budget::unlimited()).unwrap();
    let said: Vec<String> = patch.faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, [r#"duplicate field "[0].op""#, r#"unknown field "[0].vlaue""#]);
}

#[test]
fn copies_are_bounded() {
    let mut operations = vec![json!({"op": "add", "path": "/big", "value": "x".repeat(1 << 20)})];
    operations.extend((0..4).map(|n| json!({"op": "copy", "from": "/big", "path": format!("/copy{n}")})));
    fails(Value::from(operations), r#"operation 3 (copy "/copy2"): more than 3145728 bytes are copied"#);
}

#[test]
fn a_patch_cannot_nest_an_object_into_itself_without_end() {
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": {"a": {}}})];
    operations.extend((1..20).map(|n| json!({"op": "copy", "from": "/a", "path": "/a".repeat(1 << n) + "/a"})));
    let error = Patch::parse(Value::from(operations).to_string().as_bytes(), &Budget::unlimited())
        .unwrap()
        .apply(&json!({}), &Budget::unlimited())
        .unwrap_err();
    assert!(error.to_string().ends_with("the object would be nested deeper than 100 levels"), "{error}");
}

#[test]
fn the_whole_object_may_be_replaced_but_not_removed() {
    assert_eq!(patched(json!([{"op": "replace", "path": "", "value": {"a": 1}}])), json!({"a": 1}));
    fails(json!([{"op": "replace", "path": "", "value": 1}]), r#"operation 0 (replace ""): there is nothing at """#);
    fails(json!([{"op": "remove", "path": ""}]), r#"operation 0 (remove ""): there is nothing at """#);
}

// === merge patches ===

#[track_caller]
fn merged(object: Value, patch: Value, want: Value) {
    let mut object = object;
    merge_patch::apply(&mut object, &patch);
    assert_eq!(object, want);
}

#[test]
fn null_takes_away_and_lists_are_replaced_whole() {
    merged(
        json!({"labels": {"a": "one", "c": "3"}, "list": [1, 2], "gone": 1}),
        json!({"labels": {"c": null, "d": "4"}, "list": [3], "gone": null, "absent": null}),
        json!({"labels": {"a": "one", "d": "4"}, "list": [3]}),
    );
    merged(json!({"a": null}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}}));
    merged(json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}}));
    merged(json!({"a": "text"}), json!({"a": {"b": 1, "c": null}}), json!({"a": {"b": 1}}));
    merged(json!({"a": []}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]}));
}

#[test]
fn a_merge_patch_is_an_object() {
    for (text, want) in [
        ("[1]", "error decoding patch: a merge patch is a JSON object"),
        ("{", "error decoding patch: unexpected end of JSON input"),
    ] {
        assert_eq!(merge_patch::parse(text.as_bytes(), &Budget::unlimited()).unwrap_err().to_string(), want);
    }
    assert_eq!(merge_patch::parse(br#"{"a":1,"a":2}"#, &Budget::unlimited()).unwrap().faults.len(), 1);
}

#[test]
fn three_way_patches_leave_alone_what_others_wrote() {
    let original = json!({"spec": {"a": 1, "b": 2, "list": [1]}, "labels": {"mine": "x"}});
    let modified = json!({"spec": {"a": 3, "list": [2]}, "labels": {}});
    let current = json!({"spec": {"a": 1, "b": 2, "list": [1, 9], "theirs": true}, "labels": {"mine": "x", "other": "y"}, "status": {}});
    let patch = merge_patch::create_three_way(&original, &modified, &current);
    assert_eq!(patch, json!({"spec": {"a": 3, "b": null, "list": [2]}, "labels": {"mine": null}}));
    merged(
        current,
        patch,
        json!({"spec": {"a": 3, "list": [2], "theirs": true}, "labels": {"other": "y"}, "status": {}}),
    );
}

#[test]
fn a_patch_takes_away_a_null_that_is_gone_and_leaves_one_that_stays() {
    let (from, to) = (json!({"a": null, "b": {"c": null, "d": 1}, "e": null}), json!({"b": {}, "e": null}));
    let patch = merge_patch::create(&from, &to);
    assert_eq!(patch, json!({"a": null, "b": {"c": null, "d": null}}));
    merged(from, patch, to);
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, field)| !field.is_null())
                .map(|(name, field)| (name.clone(), without_nulls(field)))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn a_created_patch_makes_the_one_of_the_other(from in values::value(), to in values::value()) {
        let (from, to) = (without_nulls(&json!({"a": from, "b": 1})), without_nulls(&json!({"a": to, "c": 2})));
        let mut made = from.clone();
        merge_patch::apply(&mut made, &merge_patch::create(&from, &to));
        prop_assert_eq!(&made, &to);
        prop_assert_eq!(merge_patch::create(&to, &to), json!({}));
        let mut three = from.clone();
        merge_patch::apply(&mut three, &merge_patch::create_three_way(&from, &to, &from));
        prop_assert_eq!(three, to);
    }

    #[test]
    fn merging_twice_is_merging_once(object in values::value(), patch in values::value()) {
        let mut once = object;
        merge_patch::apply(&mut once, &patch);
        let mut twice = once.clone();
        merge_patch::apply(&mut twice, &patch);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn any_json_patch_is_applied_or_refused(
        object in values::value(),
        operations in prop::collection::vec(
            ("add|remove|replace|move|copy|test|odd", "(/(a|b|c|-|0|1|-1|metadata|x~1y~0z|))*", "(/(a|b|0|spec))*", values::value()), 0..5),
    ) {
        let operations: Vec<Value> = operations.into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value})).collect();
        let patch = Patch::parse(Value::from(operations).to_string().as_bytes(), &Budget::unlimited()).unwrap();
        let _ = patch.apply(&object, &Budget::unlimited());
    }
}
