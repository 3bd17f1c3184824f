//! Compares with recordings of a kube-apiserver: definitions whose rules show the value of an expression in their
//! message, and definitions whose rules do not compile.

use serde_json::Value as Json;
use std::collections::BTreeSet;
use steersman_cel::{
    Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, RULE_COST_LIMIT, SCHEMA_COST_LIMIT, Value, factor_over,
};
use steersman_schema::structural;

struct Step {
    title: String,
    body: Option<Json>,
    answer: Option<Json>,
}

fn steps(file: &str) -> Vec<Step> {
    let path = format!("{}/../../tests/walks/policies/{file}.walk", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let json = |text: &str| serde_json::from_str(text.trim()).ok();
    text.split("\n=== ")
        .skip(1)
        .map(|step| {
            let (request, answer) = step.split_once("\n>>> ").expect("each step has an answer");
            let body = request.find("\n\n").and_then(|at| json(&request[at..]));
            let answer = answer.split_once('\n').and_then(|(_, answer)| json(answer));
            Step { title: request.lines().next().unwrap_or_default().to_owned(), body, answer }
        })
        .collect()
}

fn properties(definition: &Json) -> Option<&serde_json::Map<String, Json>> {
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties")?.as_object()
}

/// Replaces the variable parts of a text as the recordings do: times, and unique ids.
fn normal(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let digits = |from: usize, pattern: &str| {
        pattern.chars().enumerate().all(|(at, wanted)| match (wanted, chars.get(from + at)) {
            ('d', Some(char)) => char.is_ascii_digit(),
            ('x', Some(char)) => char.is_ascii_hexdigit(),
            (wanted, found) => Some(&wanted) == found,
        })
    };
    let mut out = String::new();
    let mut at = 0;
    while at < chars.len() {
        if digits(at, "dddd-dd-ddTdd:dd:dd") {
            let mut end = at + 19;
            while chars.get(end).is_some_and(|char| char.is_ascii_digit() || *char == '.') {
                end += 1;
            }
            if chars.get(end) == Some(&'Z') {
                out.push_str("<time>");
                at = end + 1;
                continue;
            }
        }
        if digits(at, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
            out.push_str("<uid-2>");
            at += 36;
            continue;
        }
        out.push(chars[at]);
        at += 1;
    }
    out
}

/// The messages of all rules of a field, for a value.
fn messages(schema: &Json, value: &Json) -> BTreeSet<String> {
    let compiled = structural::compile(schema);
    let decl = DeclType::from_schema(&compiled).expect("the field has a type");
    let environment = Environment::new().declare("self", decl.clone());
    let rules = schema["x-kubernetes-validations"].as_array().expect("the field has rules");
    rules
        .iter()
        .map(|rule| {
            let text = rule["messageExpression"].as_str().expect("each rule has a message");
            let program = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut activation =
                Activation::new().with("self", Value::declared(value, &decl).expect("the value is as declared"));
            let mut meter = Meter::new(PER_CALL_LIMIT);
            let found = program.evaluate(&mut activation, &mut meter);
            let message = match found {
                Ok(value) => value.as_str().expect("a message is a text").trim().to_owned(),
                Err(error) => format!("failed rule: {} ({error})", rule["rule"]),
            };
            normal(&message)
        })
        .collect()
}

fn replay(file: &str) {
    let steps = steps(file);
    let definition = steps[0].body.clone().expect("the first step is a definition");
    let fields = properties(&definition).expect("it has fields");
    let mut seen = 0;
    for step in &steps[1..] {
        let (Some(body), Some(answer)) = (&step.body, &step.answer) else { continue };
        let Some(wanted) = answer.get("details.causes[*].message").and_then(Json::as_array) else { continue };
        let wanted: BTreeSet<String> = wanted
            .iter()
            .filter_map(Json::as_str)
            .map(|message| {
                // The message follows the value.
                let behind = message.strip_prefix("Invalid value: \"").and_then(|rest| rest.split_once("\": "));
                behind.map_or(message, |(_, message)| message).to_owned()
            })
            .collect();
        // The schema refused the object, so no rule was evaluated.
        if wanted.iter().any(|message| message.contains("were not checked")) {
            continue;
        }
        let mut found = BTreeSet::new();
        for (name, schema) in fields {
            if let Some(value) = body.get(name) {
                found.extend(messages(schema, value));
            }
        }
        assert_eq!(found, wanted, "{file}: {}", step.title);
        seen += found.len();
    }
    assert!(seen > 20, "{file}: only {seen} messages were compared");
}

#[test]
fn functions_of_texts_give_what_was_recorded() {
    replay("functions-of-texts");
}

#[test]
fn functions_of_addresses_and_quantities_give_what_was_recorded() {
    replay("functions-of-addresses-and-quantities");
}

#[test]
fn functions_of_times_give_what_was_recorded() {
    replay("functions-of-times");
}

/// The errors of all rules within a schema.
fn faults(schema: &Json, is_root: bool, out: &mut BTreeSet<String>) {
    let declare = if is_root { DeclType::from_resource_schema } else { DeclType::from_schema };
    if let Some(rules) = schema["x-kubernetes-validations"].as_array()
        && let Some(decl) = declare(&structural::compile(schema))
    {
        for rule in rules {
            let old = if rule.get("optionalOldSelf").is_some_and(|optional| *optional == true) {
                decl.clone().optional()
            } else {
                decl.clone()
            };
            let environment = Environment::new().declare("self", decl.clone()).declare("oldSelf", old);
            for field in ["rule", "messageExpression"] {
                let text = rule[field].as_str().filter(|text| !text.trim().is_empty());
                if let Some(Err(error)) = text.map(|text| environment.compile(text)) {
                    out.insert(error.to_string());
                }
            }
        }
    }
    for (_, property) in schema["properties"].as_object().into_iter().flatten() {
        faults(property, false, out);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            faults(&schema[key], false, out);
        }
    }
}

#[test]
fn rules_that_do_not_compile_are_refused_in_the_words_that_were_recorded() {
    let mut seen = 0;
    for step in steps("crd-rules-refused") {
        let (Some(body), Some(answer)) = (&step.body, &step.answer) else { continue };
        let Some(schema) = body.pointer("/spec/versions/0/schema/openAPIV3Schema") else { continue };
        let Some(causes) = answer.get("details.causes").or_else(|| answer.pointer("/details/causes")) else { continue };
        let wanted: BTreeSet<String> = causes
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|cause| cause["message"].as_str()?.split_once("compilation failed: "))
            .map(|(_, error)| error.to_owned())
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let mut found = BTreeSet::new();
        faults(schema, true, &mut found);
        assert_eq!(found, wanted, "{}", step.title);
        seen += found.len();
    }
    assert!(seen >= 12, "only {seen} faults were compared");
}

#[test]
fn functions_of_later_libraries_are_not_there() {
    let steps = steps("functions-of-texts");
    let step = steps.iter().find(|step| step.title.contains("later libraries")).expect("it was recorded");
    let body = step.body.as_ref().expect("it has a definition");
    let rules = body.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/a/x-kubernetes-validations");
    let environment = Environment::new().declare("self", DeclType::string());
    let rules = rules.and_then(Json::as_array).expect("it has rules");
    for rule in rules {
        let text = rule["rule"].as_str().expect("a rule is a text");
        assert!(environment.compile(text).is_err(), "{text}");
    }
    assert_eq!(rules.len(), 9);
}

#[test]
fn estimates_are_those_that_were_recorded() {
    let estimate = |items: u64| {
        let schema = serde_json::json!({"type": "array", "items": {"type": "integer"}, "maxItems": items});
        let decl = DeclType::from_schema(&structural::compile(&schema)).expect("a list is seen");
        let environment = Environment::new().declare("self", decl);
        environment.compile("self.all(x, self.all(y, x != y || x == y))").expect("the rule is right").cost().max
    };
    // "exceeds budget by factor of 2.8x" of ten million.
    assert_eq!(factor_over(estimate(2000), RULE_COST_LIMIT).as_deref(), Some("2.8x"));
    assert_eq!(factor_over(estimate(100), RULE_COST_LIMIT), None);
    assert_eq!(factor_over(estimate(1_000_000), RULE_COST_LIMIT).as_deref(), Some("more than 100x"));
    // "by factor of 1.054965x" of a hundred million, for sixteen lists.
    let sum: u64 = (0..16).map(|step| estimate(940 + 4 * step)).sum();
    assert_eq!(factor_over(sum, SCHEMA_COST_LIMIT).as_deref(), Some("1.054965x"));
}

#[test]
fn texts_of_unknown_length_make_costs_too_large_unless_formatted() {
    let cost = |schema: Json, text: &str| {
        let decl = DeclType::from_schema(&structural::compile(&schema)).expect("it is seen");
        let environment = Environment::new().declare("self", decl);
        let cost = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}")).cost().max;
        factor_over(cost, RULE_COST_LIMIT)
    };
    let over = Some("more than 100x".to_owned());
    let integer = serde_json::json!({"type": "integer"});
    assert_eq!(cost(integer.clone(), "'it is ' + string(self)"), over);
    assert_eq!(cost(integer.clone(), "['a', 'b'].join()"), over);
    assert_eq!(cost(integer, "'it is %d'.format([self])"), None);
    let texts = serde_json::json!({"type": "array", "items": {"type": "string"}});
    assert_eq!(cost(texts, "self.all(x, x.contains('abc'))"), over);
    let bounded = serde_json::json!({"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 100}});
    assert_eq!(cost(bounded, "self.all(x, x.contains('abc'))"), None);
    let words =
        serde_json::json!({"type": "array", "maxItems": 1000, "items": {"type": "string", "enum": ["a", "bb"]}});
    assert_eq!(cost(words, "self.all(x, x.contains('a'))"), None);
    let text = serde_json::json!({"type": "string"});
    assert_eq!(cost(text, "self.matches('^a*b$')"), None);
}

#[test]
fn what_a_server_took_is_not_too_dear() {
    let mut dear = Vec::new();
    for file in ["functions-of-texts", "functions-of-addresses-and-quantities", "functions-of-times"] {
        let definition = steps(file).remove(0).body.expect("the first step is a definition");
        for (name, schema) in properties(&definition).expect("it has fields") {
            let decl = DeclType::from_schema(&structural::compile(schema)).expect("the field has a type");
            let environment = Environment::new().declare("self", decl);
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                for text in ["rule", "messageExpression"].into_iter().filter_map(|key| rule[key].as_str()) {
                    let program = environment.compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                    dear.extend(
                        factor_over(program.cost().max, RULE_COST_LIMIT).map(|by| format!("{name}: {text}: {by}")),
                    );
                }
            }
        }
    }
    assert_eq!(dear, Vec::<String>::new());
}
