//! Random definitions: the generated code compiles, and every value that a schema allows passes through its type
//! unchanged.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use steersman_codegen::crd;
use steersman_codegen::types::{self, Options};

use crate::project::Project;
use crate::{corpus, samples};

/// Difficult names for identifiers: keywords, names of the prelude, names that become equal.
const NAMES: &[&str] = &[
    "",
    "$ref",
    "3scale",
    "Default",
    "FooBar",
    "None",
    "Ok",
    "Self",
    "_",
    "__",
    "a.b/c",
    "apiVersion",
    "box",
    "crate",
    "fooBar",
    "foo-bar",
    "foo_bar",
    "gen",
    "iPv4s",
    "items",
    "kind",
    "metadata",
    "name",
    "names",
    "option",
    "options",
    "other",
    "otherFields",
    "other_fields",
    "podCIDRs",
    "quantity",
    "result",
    "self",
    "some",
    "spec",
    "status",
    "string",
    "type",
    "type_",
    "value",
    "values",
    "vec",
    "x-kubernetes",
    "ünï",
    "名前",
];

const VALUES: &[&str] =
    &["", "*", "+", "1.2", "A", "Other", "Self", "TLSv1.2", "a", "always", "if-not-present", "none", "ä"];

/// The greatest depth of schemas.
const DEPTH_MAX: usize = 4;

#[test]
fn values_of_random_definitions_come_through() {
    let is_long = std::env::var_os("STEERSMAN_LONG").is_some();
    let (n_definitions, n_values) = if is_long { (200, 200) } else { (20, 100) };
    let seed: u64 = if is_long { rand::random() } else { 17 };
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut definitions = Vec::new();
    let mut objects = Vec::new();
    for index in 0..n_definitions {
        let schema = root(&mut rng);
        let kind = format!("Kind{index}");
        let object = json!({"kind": "CustomResourceDefinition", "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("kind{index}s")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        definitions.extend(crd::from_list("random", object).unwrap());
        for _ in 0..n_values {
            let mut object = value(&mut rng, &schema);
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": "a"});
            objects.push(object);
        }
    }
    let files = types::generate(&definitions, &Options::default()).unwrap();
    let project = Project::new("codegen-random", "k8s-openapi = \"0.29\"");
    let program = "codegen-of-random";
    files.write(&project.sources(program)).unwrap();
    project.write_main(program, &corpus::paths(&definitions));
    let (is_success, messages) = project.build(&[program]);
    assert!(is_success, "{messages}");
    let asked: Vec<&Value> = objects.iter().collect();
    for (object, answer) in objects.iter().zip(project.run(program, &asked)) {
        let difference = match answer.get("object") {
            Some(there) => samples::change(object, there),
            None => Some(format!(": {}", answer["error"])),
        };
        assert!(difference.is_none(), "seed {seed}, {object}\n{}", difference.unwrap_or_default());
    }
}

#[test]
fn all_generated_text_is_rust() {
    let mut rng = StdRng::seed_from_u64(23);
    for _ in 0..200 {
        let schema = root(&mut rng);
        let kind = *["Network", "option", "foo-bar", "HTTPRoute", "Value", "self"].choose(&mut rng).unwrap();
        let object = json!({"kind": "CustomResourceDefinition", "spec": {"group": "3.self.example.com", "scope": "Cluster",
            "names": {"kind": kind, "plural": "as"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        let definitions = crd::from_list("random", object).unwrap();
        for (path, text) in types::generate(&definitions, &Options::default()).unwrap().iter() {
            if let Err(error) = syn::parse_file(text) {
                panic!("{}: {error}\n{text}", path.display());
            }
        }
    }
}

fn root(rng: &mut StdRng) -> Value {
    let mut root = json!({"type": "object", "properties": {}});
    for name in ["spec", "status", "data", "type"] {
        if name == "spec" || rng.random_bool(0.5) {
            root["properties"][name] = schema(rng, 0);
        }
    }
    if rng.random_bool(0.2) {
        root["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    if rng.random_bool(0.5) {
        root["required"] = json!(["spec"]);
    }
    root
}

/// A structural schema.
fn schema(rng: &mut StdRng, depth: usize) -> Value {
    let n_kinds = if depth < DEPTH_MAX { 15 } else { 11 };
    let mut drawn = match rng.random_range(0..n_kinds) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "integer", "format": "int32"}),
        2 => json!({"type": "integer"}),
        3 => json!({"type": "number"}),
        4 => json!({"type": "string"}),
        5 => json!({"type": "string", "format": "date-time"}),
        6 => json!({"type": "string", "format": "byte"}),
        7 => json!({"x-kubernetes-int-or-string": true}),
        8 => json!({"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+([KMGTPE]i)?$"}),
        9 => json!({"type": "string", "enum": VALUES.choose_multiple(rng, 4).collect::<Vec<_>>()}),
        10 => json!({"x-kubernetes-preserve-unknown-fields": true}),
        11 => json!({"type": "array", "items": schema(rng, depth + 1)}),
        12 => json!({"type": "object", "additionalProperties": schema(rng, depth + 1)}),
        _ => object(rng, depth),
    };
    if rng.random_bool(0.2) {
        drawn["nullable"] = json!(true);
    }
    if rng.random_bool(0.5) {
        drawn["description"] =
            json!(*["One.", "<two> [three]\n\n    four", "`five", "- six\nseven"].choose(rng).unwrap());
    }
    drawn
}

fn object(rng: &mut StdRng, depth: usize) -> Value {
    let n_properties = rng.random_range(0..6);
    let names: Vec<&str> = NAMES.choose_multiple(rng, n_properties).copied().collect();
    let mut object = json!({"type": "object", "properties": {}});
    let mut required = Vec::new();
    for name in names {
        object["properties"][name] = schema(rng, depth + 1);
        if rng.random_bool(0.4) {
            required.push(name);
        }
    }
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if rng.random_bool(0.2) {
        object["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    object
}

/// A value that a schema allows.
fn value(rng: &mut StdRng, schema: &Value) -> Value {
    if schema["nullable"] == true && rng.random_bool(0.3) {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if rng.random_bool(0.5) { json!(rng.random::<i32>()) } else { json!("500m") };
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.choose(rng).unwrap().clone();
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("boolean"), _) => json!(rng.random::<bool>()),
        (Some("integer"), Some(_)) => json!(rng.random::<i32>()),
        (Some("integer"), None) => json!(rng.random::<i64>()),
        // A number that any parser reads exactly.
        (Some("number"), _) => json!(f64::from(rng.random::<i16>()) / 8.0),
        (Some("string"), Some("date-time")) => json!("2024-02-29T12:00:00Z"),
        (Some("string"), Some(_)) => json!("c3RlZXI="),
        (Some("string"), None) => json!(*["", "a", "\u{1f600} \"\\\n"].choose(rng).unwrap()),
        (Some("array"), _) => {
            let n = rng.random_range(0..3);
            (0..n).map(|_| value(rng, &schema["items"])).collect()
        }
        (Some("object"), _) => object_value(rng, schema),
        _ => json!({"anything": [1, "b", null]}),
    }
}

fn object_value(rng: &mut StdRng, schema: &Value) -> Value {
    let mut object = Map::new();
    if schema["additionalProperties"].is_object() {
        for name in ["a", "b"] {
            object.insert(name.to_owned(), value(rng, &schema["additionalProperties"]));
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_required =
            schema["required"].as_array().is_some_and(|required| required.iter().any(|other| other == name));
        if is_required || rng.random_bool(0.6) {
            object.insert(name.clone(), value(rng, property));
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        object.insert("unheardOf".to_owned(), json!({"a": [1]}));
    }
    Value::Object(object)
}
