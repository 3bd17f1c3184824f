//! The work of computations, in steps of the budget, is linear in their input; bodies that multiply are refused.

use serde_json::{Map, Value, json};
use steersman_machinery::Budget;
use steersman_machinery::GroupVersionKind;
use steersman_machinery::budget::{Amount, Error, Interrupt, Limits};
use steersman_schema::decode::{self, Body, Unknown};
use steersman_schema::fields::FieldSet;
use steersman_schema::managed::{self, ApplyError, Kind, OnConflict, OneVersion, Origin, Writer};
use steersman_schema::{Definitions, Schema, strategic, validate};

const POD: &str = "io.k8s.api.core.v1.Pod";
const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
static NOTHING: FieldSet = FieldSet::EMPTY;

fn built_in(name: &str) -> &'static Schema {
    Definitions::builtin().schema(name).unwrap()
}

fn of_few_steps() -> Budget {
    Budget::new(Limits { steps_max: 1_000_000, ..Limits::default() }, Interrupt::default())
}

fn schema(spec: &Value) -> Schema {
    Schema::from_json(&json!({"type": "object", "properties": {"spec": spec}}))
}

/// Twice the input may cost twice as much, plus a tenth.
#[track_caller]
fn assert_linear(cost: impl Fn(usize) -> u64) {
    let (few, many) = (cost(1000), cost(2000));
    assert!(many <= 2 * few + few / 10, "{few} for a thousand, {many} for two thousand");
}

#[track_caller]
fn assert_exceeded<T: std::fmt::Debug>(outcome: Result<T, decode::Error>, wanted: Amount) {
    let refused = outcome.unwrap_err();
    let is_wanted = matches!(refused, decode::Error::Budget(Error::Exceeded { amount, .. }) if amount == wanted);
    assert!(is_wanted, "{refused:?}");
}

#[test]
fn bodies_that_become_large_trees_are_refused_while_they_are_read() {
    let budget = Budget::default();
    let containers = vec!["{}"; 700_000].join(",");
    let pod = format!(r#"{{"spec":{{"containers":[{containers}]}}}}"#);
    assert_exceeded(decode::built_in(built_in(POD), Body::Json(pod.as_bytes()), &budget), Amount::Bytes);
    assert!(budget.bytes() < Limits::default().bytes_max + 10_000, "{}", budget.bytes());
    let nulls = pod.replace("{}", "null");
    assert_exceeded(decode::built_in(built_in(POD), Body::Json(nulls.as_bytes()), &Budget::default()), Amount::Bytes);
    let numbers = format!("[{}]", vec!["1"; 1_200_000].join(","));
    assert!(decode::document(numbers.as_bytes(), &Budget::default()).is_err());
    let objects = format!("[{}]", vec![r#"{"a":1}"#; 300_000].join(","));
    assert_exceeded(decode::document(objects.as_bytes(), &Budget::default()), Amount::Bytes);
}

#[test]
fn paths_of_faults_are_charged_before_they_are_many() {
    // The path of each unknown field takes a megabyte.
    let long = "x".repeat(1 << 20);
    let unknown: String = (0..100_000).map(|n| format!(r#"{{"u{n}":1}},"#)).collect();
    let item = json!({"type": "object", "properties": {"known": {"type": "string"}}});
    let lists = json!({"type": "object", "additionalProperties": {"type": "array", "items": item}});
    let body = format!(r#"{{"spec":{{"{long}":[{unknown}{{}}]}}}}"#);
    let read =
        decode::custom_resource(&schema(&lists), Unknown::Prune, Body::Json(body.as_bytes()), &Budget::default());
    assert_exceeded(read, Amount::Bytes);
}

#[test]
fn decoding_is_charged_by_what_is_there() {
    assert_linear(|n| {
        let budget = Budget::default();
        let data: Map<String, Value> = (0..n).map(|n| (format!("{n:05}"), json!("v"))).collect();
        let body = json!({"data": data}).to_string();
        decode::built_in(built_in(CONFIG_MAP), Body::Json(body.as_bytes()), &budget).unwrap();
        budget.bytes()
    });
}

#[test]
fn interrupted_reading_ends() {
    let interrupt = Interrupt::default();
    let budget = Budget::new(Limits::default(), interrupt.clone());
    interrupt.set();
    let read = decode::document(br#"{"a":1}"#, &budget);
    assert_eq!(read.unwrap_err(), decode::Error::Budget(Error::Interrupted));
}

#[test]
fn validation_is_linear_in_lists_enums_and_alternatives() {
    let words: Vec<String> = (0..5000).map(|n| format!("w{n}")).collect();
    let spec = json!({"type": "array", "items": {"type": "string", "enum": words, "pattern": "^w[0-9]+$", "anyOf": [{"maxLength": 1}, {"maxLength": 9}]}});
    let schema = schema(&spec);
    assert_linear(|n| {
        let budget = Budget::default();
        let value = json!({"spec": vec!["w4999"; n]});
        assert_eq!(validate::validate(&schema, &value, &budget), []);
        budget.steps()
    });
}

#[test]
fn schemas_that_are_tried_again_and_again_exceed_the_budget() {
    let all = vec![json!({"maxLength": 9}); 500];
    let schema = schema(&json!({"type": "array", "items": {"type": "string", "allOf": all}}));
    let budget = of_few_steps();
    validate::validate(&schema, &json!({"spec": vec!["w"; 10_000]}), &budget);
    assert!(matches!(budget.check(), Err(Error::Exceeded { amount: Amount::Steps, .. })));
}

#[test]
fn faults_are_bounded_by_number_and_by_length() {
    let spec = json!({"type": "array", "items": {"type": "integer"}});
    let many = validate::validate(&schema(&spec), &json!({"spec": vec!["x"; 100_000]}), &Budget::default());
    assert_eq!(many.len(), validate::ERRORS_MAX);
    let words: Vec<String> = (0..50_000).map(|n| format!("w{n}")).collect();
    let spec = json!({"type": "array", "items": {"type": "string", "enum": words}});
    let long = validate::validate(&schema(&spec), &json!({"spec": vec!["x"; 100_000]}), &Budget::default());
    assert!((1..10).contains(&long.len()), "{}", long.len());
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let twice: Vec<String> = (0..200_000).map(|n| (n / 2).to_string()).collect();
    let duplicates = validate::validate(&schema(&set), &json!({"spec": twice}), &Budget::default());
    assert_eq!(duplicates.len(), validate::ERRORS_MAX);
}

#[test]
fn lists_beneath_a_long_key_cost_what_their_paths_cost() {
    let inner = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let spec = json!({"type": "object", "additionalProperties": {"type": "array", "items": inner}});
    let mut map = Map::new();
    map.insert("x".repeat(1 << 20), json!(vec![json!([]); 1000]));
    let budget = of_few_steps();
    validate::validate(&schema(&spec), &json!({"spec": map}), &budget);
    assert!(matches!(budget.check(), Err(Error::Exceeded { amount: Amount::Steps, .. })));
}

#[test]
fn strategic_merge_finds_items_and_retained_keys_without_searching() {
    let environment = |n: usize, value: &str| -> Vec<Value> {
        (0..n).map(|n| json!({"name": format!("V{n}"), "value": value})).collect()
    };
    let pod = |n, value| json!({"spec": {"containers": [{"name": "c", "env": environment(n, value)}]}});
    let merged = strategic::apply(built_in(POD), pod(30_000, "old"), pod(30_000, "new")).unwrap();
    assert_eq!(merged["spec"]["containers"][0]["env"][29_999]["value"], "new");
    let data: Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let keys: Vec<&String> = data.keys().collect();
    let patch = json!({"data": {"$retainKeys": keys}});
    let merged = strategic::apply(built_in(CONFIG_MAP), json!({"data": data}), patch).unwrap();
    assert_eq!(merged["data"].as_object().unwrap().len(), 100_000);
}

fn kind<'a>(gvk: &'a GroupVersionKind, schema: &'a Schema, budget: &'a Budget) -> Kind<'a> {
    Kind { gvk, schema, origin: Origin::Custom, reset: &NOTHING, versions: &OneVersion, budget }
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", time: "2026-01-01T00:00:00Z" }
}

#[test]
fn record_of_thousands_of_updates_is_folded_into_ten_entries() {
    let entry = |n: usize| {
        let fields = json!({"f:data": {(format!("f:k{n}")): {}}});
        json!({"manager": format!("m{n}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let data: Map<String, Value> = (0..20_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let entries: Vec<Value> = (0..20_000).map(entry).collect();
    let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
    let mut live =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": data});
    let mut new = live.clone();
    live["metadata"]["managedFields"] = json!([]);
    new["metadata"]["managedFields"] = json!(entries);
    let budget = Budget::default();
    managed::on_update(&kind(&gvk, built_in(CONFIG_MAP), &budget), &writer("m"), Some(&live), &mut new).unwrap();
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    let fields = |entry: &Value| entry["fieldsV1"]["f:data"].as_object().unwrap().len();
    assert_eq!((entries.len(), entries.iter().map(fields).sum::<usize>()), (10, 20_000));
}

#[test]
fn conflicts_beneath_a_long_key_are_counted_and_told_in_part() {
    let schema = Schema::from_json(
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}}}}}),
    );
    let object = |value: &str| {
        let fields: Map<String, Value> = (0..10_000).map(|n| (format!("k{n}"), json!(value))).collect();
        let mut spec = Map::new();
        spec.insert("x".repeat(1 << 18), json!(fields));
        json!({"apiVersion": "g.example/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
    };
    let gvk = GroupVersionKind::new("g.example", "v1", "Thing");
    let budget = Budget::default();
    let kind = kind(&gvk, &schema, &budget);
    let live = managed::on_apply(&kind, &writer("a"), None, &object("one"), OnConflict::Refuse).unwrap();
    let refused = managed::on_apply(&kind, &writer("b"), Some(&live), &object("two"), OnConflict::Refuse).unwrap_err();
    let ApplyError::Conflict { message, causes } = refused else { panic!("{refused:?}") };
    assert!(message.starts_with("Apply failed with 10000 conflicts: "), "{}", &message[..60]);
    assert!(message.ends_with(" more"), "{}", &message[message.len() - 60..]);
    assert!((1..10).contains(&causes.len()), "{}", causes.len());
}

#[test]
fn configuration_with_many_faults_beneath_a_long_key_is_refused_in_a_short_message() {
    let lists = json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}});
    let schema = schema(&lists);
    let mut spec = Map::new();
    spec.insert("x".repeat(1 << 20), json!(vec!["x"; 100_000]));
    let applied = json!({"apiVersion": "g.example/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
    let gvk = GroupVersionKind::new("g.example", "v1", "Thing");
    let budget = Budget::default();
    let refused =
        managed::on_apply(&kind(&gvk, &schema, &budget), &writer("a"), None, &applied, OnConflict::Refuse).unwrap_err();
    assert!(refused.to_string().len() < 4 << 20, "{}", refused.to_string().len());
}
