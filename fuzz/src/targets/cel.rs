//! CEL: an expression, and an object in a second document. Evaluations are repeatable and stay within their budget.

use crate::input::{self, Draw};
use serde_json::{Value as Json, json};
use std::sync::LazyLock;
use steersman_cel::{Activation, DeclType, Environment, Meter, Program, Value};
use steersman_schema::{Schema, structural};

const BUDGET: u64 = 100_000;

static SCHEMA: LazyLock<std::sync::Arc<Schema>> = LazyLock::new(|| {
    let text = |max: usize| json!({"type": "string", "maxLength": max});
    structural::compile(&json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"}, "s": text(12), "n": text(8),
        "t": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"},
        "y": {"type": "string", "format": "byte"}, "x": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "u": {"type": "array", "maxItems": 5, "items": text(9), "x-kubernetes-list-type": "set"},
        "m": {"type": "object", "maxProperties": 4, "additionalProperties": text(12)},
        "o": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": text(12), "v": {"type": "integer"}}}}}}))
});

static ENVIRONMENT: LazyLock<(Environment, DeclType)> = LazyLock::new(|| {
    let decl = DeclType::from_schema(&SCHEMA).expect("an object is seen");
    (Environment::new().declare("self", decl.clone()).declare("object", DeclType::dynamic()), decl)
});

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(text) = parts.first().and_then(|text| std::str::from_utf8(text).ok()) else { return };
    let (environment, decl) = &*ENVIRONMENT;
    let program = match environment.compile(text) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{text:?}");
            return;
        }
    };
    let object = match parts.get(1) {
        Some(bytes) => match Draw::of(bytes) {
            Some(mut draw) => draw.fitting(&SCHEMA, 0),
            None => input::tree(bytes).unwrap_or(Json::Null),
        },
        None => json!({"i": 3, "s": "ab\u{fc}", "l": [1, 2], "m": {"a": "b"}, "o": [{"n": "a", "v": 1}], "t": "2020-02-29T01:02:03Z",
            "d": "90m", "u": ["a"], "b": true, "f": 1.5, "x": "5%"}),
    };
    let first = evaluate(&program, decl, &object);
    let second = evaluate(&program, decl, &object);
    assert_eq!(first, second, "{text:?}: an evaluation can be repeated");
    let (outcome, spent) = first;
    // Only the last charge may exceed the budget.
    if outcome.is_ok() {
        assert!(spent <= BUDGET, "{text:?} spent {spent}");
    }
    assert!(program.cost().min <= program.cost().max, "{text:?}");
}

fn evaluate(program: &Program, decl: &DeclType, object: &Json) -> (Result<String, String>, u64) {
    let mut meter = Meter::new(BUDGET);
    let declared = Value::declared(object, decl).unwrap_or_else(|_| Value::json(object));
    let mut activation = Activation::new().with("self", declared).with("object", Value::json(object));
    let outcome = program.evaluate(&mut activation, &mut meter).map_err(|error| error.to_string());
    let outcome = outcome.and_then(|value| {
        value.to_json(&mut meter).map(|json| json.to_string()).map_err(|error| format!("no JSON: {error}"))
    });
    (outcome, meter.spent())
}
