//! Values made of schemas: mostly valid ones, some at a boundary, some wrong.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use crate::requests::schema::Schema;

/// Objects deeper than this stay empty.
const DEPTH_MAX: usize = 4;

const STRINGS: [&str; 30] = [
    "",
    "a",
    "b",
    "web",
    "a-b",
    "a.b",
    "A",
    "A_b",
    "-a",
    "a-",
    "a b",
    "a/b",
    "a.b/c",
    "example.com/x",
    "kubernetes.io/x",
    "*",
    "0",
    "1",
    "-1",
    "01",
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "fd00::1",
    "1.2.3.256",
    "https://example.com/x",
    "ä",
    "true",
    "x.example.com",
    "$(A)",
];
const NAMES: [&str; 8] = ["a", "web", "a-b", "a.b", "A", "a_b", "", "1"];
const QUANTITIES: [&str; 14] =
    ["1", "0", "100m", "1Gi", "-1", "1.5", "0.0001", "1e3", "12E", "x", "", "1Ki", "9223372036854775808", "1.0"];
const TIMES: [&str; 5] =
    ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456Z", "2024-01-01T01:00:00+01:00", "yesterday", ""];
const INTEGERS: [i64; 16] =
    [0, 1, -1, 2, 5, 10, 80, 100, 101, 420, 512, 65_535, 65_536, 2_147_483_647, 2_147_483_648, -2_147_483_648];

/// A value of a field. The name of the field says what its text is like.
pub(crate) fn value(rng: &mut StdRng, schema: Schema<'_>, name: &str, depth: usize) -> Value {
    if rng.random_bool(0.03) {
        return wrong(rng);
    }
    match schema.name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => return json!(pick(rng, &QUANTITIES)),
        "IntOrString" => return int_or_string(rng),
        "Time" | "MicroTime" => return json!(pick(rng, &TIMES)),
        "FieldsV1" | "RawExtension" | "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" => {
            return json!({"a": 1});
        }
        _ => {}
    }
    if schema.node["format"] == "int-or-string" || schema.node["x-kubernetes-int-or-string"] == true {
        return int_or_string(rng);
    }
    match schema.kind() {
        "string" => string(rng, schema, name),
        "integer" => json!(INTEGERS.choose(rng).copied().unwrap_or_default()),
        "number" => [json!(0), json!(1.5), json!(-1), json!(2)].choose(rng).cloned().unwrap_or_default(),
        "boolean" => json!(rng.random_bool(0.5)),
        "array" => list(rng, schema, name, depth),
        _ if schema.node.get("properties").is_some() => object(rng, schema, depth),
        _ if schema.node["additionalProperties"].is_object() => map(rng, schema, depth),
        _ => json!({}),
    }
}

/// A value that has hardly ever the type that is wanted.
pub(crate) fn wrong(rng: &mut StdRng) -> Value {
    let values = [
        json!(null),
        json!("x"),
        json!(1),
        json!(-1.5),
        json!(true),
        json!([]),
        json!({}),
        json!([null]),
        json!({"x": null}),
    ];
    values.choose(rng).cloned().unwrap_or_default()
}

/// The key of an entry of a map.
pub(crate) fn key(rng: &mut StdRng) -> String {
    let keys = [
        "a",
        "app",
        "key",
        "example.com/a",
        "A_b.c",
        "-x",
        "",
        "cpu",
        "memory",
        "a b",
        "nvidia.com/gpu",
        "hugepages-2Mi",
        "storage",
    ];
    (*pick(rng, &keys)).to_owned()
}

fn string(rng: &mut StdRng, schema: Schema<'_>, name: &str) -> Value {
    if let Some(words) = schema.node["enum"].as_array().filter(|_| rng.random_bool(0.9)) {
        return words.choose(rng).cloned().unwrap_or_default();
    }
    match schema.node["format"].as_str() {
        Some("byte") => return json!(pick(rng, &["YQ==", "", "a", "YQ=", "!"])),
        Some("date-time") => return json!(pick(rng, &TIMES)),
        _ => {}
    }
    let long = [63, 64, 253, 254, 1_025].choose(rng).copied().unwrap_or(64);
    match name {
        _ if rng.random_bool(0.04) => json!("a".repeat(long)),
        "name" | "namespace" | "claimName" | "secretName" | "serviceName" | "key" => json!(pick(rng, &NAMES)),
        "kind" => json!(pick(rng, &["Pod", "Deployment", "ConfigMap", "User", "x", ""])),
        "apiVersion" => json!(pick(rng, &["v1", "apps/v1", "a/b/c", "", "example.com/v1"])),
        "protocol" => json!(pick(rng, &["TCP", "UDP", "SCTP", "tcp", ""])),
        "operator" => json!(pick(rng, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Equal", "x"])),
        "path" | "mountPath" | "subPath" => json!(pick(rng, &["/a", "a", "../a", "", "/", "a/../b", "/a:b"])),
        "image" => json!(pick(
            rng,
            &["nginx", "nginx:1", "nginx:latest", "a@sha256:0", "", " x", "A B", "registry:5000/a/b:c"]
        )),
        "expression" | "rule" | "valueExpression" | "messageExpression" => {
            json!(pick(rng, &["true", "object.metadata.name == 'a'", "1", "'a'", "x", "", "object.x", "self.a"]))
        }
        _ => json!(pick(rng, &STRINGS)),
    }
}

fn int_or_string(rng: &mut StdRng) -> Value {
    let values = [
        json!(1),
        json!(0),
        json!(80),
        json!(70_000),
        json!(-1),
        json!("http"),
        json!("50%"),
        json!("101%"),
        json!("x%"),
        json!(""),
        json!("1"),
    ];
    values.choose(rng).cloned().unwrap_or_default()
}

fn list(rng: &mut StdRng, schema: Schema<'_>, name: &str, depth: usize) -> Value {
    let Some(items) = schema.items() else { return json!([]) };
    let n_items = [0, 1, 1, 1, 2].choose(rng).copied().unwrap_or(1);
    (0..n_items).map(|_| value(rng, items, name, depth + 1)).collect()
}

fn object(rng: &mut StdRng, schema: Schema<'_>, depth: usize) -> Value {
    let required = schema.node["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut object = Map::new();
    for (name, property) in schema.properties() {
        let chance = if required.iter().any(|required| required == name) { 0.97 } else { 0.25 };
        if depth < DEPTH_MAX && rng.random_bool(chance) {
            object.insert(name.to_owned(), value(rng, property, name, depth + 1));
        }
    }
    Value::Object(object)
}

fn map(rng: &mut StdRng, schema: Schema<'_>, depth: usize) -> Value {
    let n_entries = [0, 1, 1, 2].choose(rng).copied().unwrap_or(1);
    let mut map = Map::new();
    for _ in 0..n_entries {
        let key = key(rng);
        if let Some(values) = schema.field(&key) {
            map.insert(key, value(rng, values, "value", depth + 1));
        }
    }
    Value::Object(map)
}

fn pick<'a, T>(rng: &mut StdRng, values: &'a [T]) -> &'a T {
    &values[rng.random_range(0..values.len())]
}
