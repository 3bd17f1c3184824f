//! Patches that make much work of few bytes, on the objects of the stage.

use std::fmt::Write as _;

use rand::Rng as _;
use serde_json::json;

use crate::client::Request;
use crate::requests::Material;
use crate::stage::{KEYS, NUMBERS, VARIABLES};

const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The most operations that a JSON patch may have.
const OPERATIONS: usize = 10_000;

fn patch(path: String, query: &str, content_type: &'static str, body: impl Into<bytes::Bytes>) -> Request {
    Request::new("", "PATCH", format!("{path}?dryRun=All{query}"), content_type, body)
}

/// Operations on the list of numbers.
fn numbers(material: &Material<'_>, mut operation: impl FnMut(usize) -> String) -> Request {
    let operations: Vec<String> = (0..OPERATIONS).map(&mut operation).collect();
    let path = format!("{}/numbers", material.targets());
    patch(path, "", JSON_PATCH, format!("[{}]", operations.join(",")))
}

pub(crate) fn json_at_front(material: &mut Material<'_>) -> Request {
    let moves: bool = material.rng.random();
    let last = NUMBERS - 1;
    numbers(material, |_| match moves {
        true => format!(r#"{{"op":"move","from":"/spec/numbers/{last}","path":"/spec/numbers/0"}}"#),
        false => r#"{"op":"add","path":"/spec/numbers/0","value":0}"#.to_owned(),
    })
}

pub(crate) fn json_copies(material: &mut Material<'_>) -> Request {
    numbers(material, |index| {
        let target = if index % 2 == 0 { "numbers2" } else { "numbers" };
        format!(r#"{{"op":"copy","from":"/spec","path":"/spec/{target}"}}"#)
    })
}

pub(crate) fn json_tests(material: &mut Material<'_>) -> Request {
    // The first operation keeps a copy, so that each test compares the whole list.
    numbers(material, |index| match index {
        0 => r#"{"op":"copy","from":"/spec/numbers","path":"/spec/again"}"#.to_owned(),
        1 => r#"{"op":"copy","from":"/spec/numbers","path":"/spec/numbers/0"}"#.to_owned(),
        _ => r#"{"op":"remove","path":"/spec/numbers/0"}"#.to_owned(),
    })
}

pub(crate) fn merge(material: &mut Material<'_>) -> Request {
    let data: serde_json::Map<_, _> = (0..2 * KEYS).map(|n| (format!("k{n}"), json!(null))).collect();
    patch(format!("{}/keys", material.core("configmaps")), "", MERGE, json!({"data": data}).to_string())
}

pub(crate) fn retain_keys(material: &mut Material<'_>) -> Request {
    let keys: Vec<String> = (0..KEYS).rev().map(|n| format!("k{n}")).collect();
    let body = json!({"data": {"$retainKeys": keys}});
    patch(format!("{}/keys", material.core("configmaps")), "", STRATEGIC, body.to_string())
}

/// A patch of the container of the Deployment, whose variables are merged by name.
fn container(material: &Material<'_>, fields: &str) -> Request {
    let body = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"c",{fields}}}]}}}}}}}}"#);
    patch(format!("{}/variables", material.deployments()), "", STRATEGIC, body)
}

/// The variables in the opposite order, and some more.
fn variables(n: usize, value: &str) -> String {
    let mut items = String::new();
    for index in (0..n).rev() {
        let _ = write!(items, "{{\"name\":\"V{index}\"{value}}}{}", if index == 0 { "" } else { "," });
    }
    items
}

pub(crate) fn element_order(material: &mut Material<'_>) -> Request {
    let order = variables(2 * VARIABLES, "");
    container(material, &format!(r#""$setElementOrder/env":[{order}],"env":[{{"name":"V0","value":"a"}}]"#))
}

pub(crate) fn strategic(material: &mut Material<'_>) -> Request {
    let value = if material.rng.random() { ",\"value\":\"a\"" } else { ",\"$patch\":\"delete\"" };
    let items = variables(3 * VARIABLES, value);
    container(material, &format!("\"env\":[{items}]"))
}

pub(crate) fn delete_from_list(material: &mut Material<'_>) -> Request {
    let names: Vec<String> = (0..60_000).map(|n| format!("example.com/f{n}")).collect();
    let body = json!({"metadata": {"finalizers": names, "$deleteFromPrimitiveList/finalizers": names}});
    patch(format!("{}/keys", material.core("configmaps")), "", STRATEGIC, body.to_string())
}

pub(crate) fn apply(material: &mut Material<'_>) -> Request {
    let manager = material.rng.random_range(0..1_000);
    let data: serde_json::Map<_, _> = (0..3_000).map(|n| (format!("k{}", n * 7 + manager), json!("a"))).collect();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data});
    // Not a dry run: each manager adds its entry.
    let path = format!("{}/applied?force=true&fieldManager=m{manager}", material.core("configmaps"));
    Request::new("", "PATCH", path, APPLY, body.to_string())
}

pub(crate) fn apply_keyed(material: &mut Material<'_>) -> Request {
    let n = material.rng.random_range(20_000..100_000);
    let mut items = String::new();
    for index in 0..n {
        let _ = write!(items, "{{\"name\":\"{index:x}\"}}{}", if index + 1 == n { "" } else { "," });
    }
    let body = format!(
        r#"{{"apiVersion":"hostile.example.com/v1","kind":"Target","metadata":{{"name":"keyed"}},"spec":{{"keyed":[{items}]}}}}"#
    );
    patch(format!("{}/keyed", material.targets()), "&force=true&fieldManager=m", APPLY, body)
}
