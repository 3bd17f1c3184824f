//! Tests of rules: errors, warnings, and ratcheting on updates.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use steersman_cel::{Activation, Environment, Meter, PER_CALL_LIMIT, Value as Cel};
use steersman_machinery::budget::{Budget, Interrupt, Limits};
use steersman_schema::structural::{self, DefaultOf};

fn rules(schema: &Value) -> Rules {
    Rules::new(structural::compile(schema))
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// The errors and warnings of an object.
fn judged(schema: &Value, new: &Value, old: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let mut errors = Vec::new();
    let warnings = rules(schema).judge(new, old, &mut errors, Effort::Whole).unwrap();
    (errors.iter().map(Error::to_string).collect(), warnings)
}

#[track_caller]
fn check_errors(schema: &Value, new: &Value, old: Option<&Value>, wanted: &[&str]) {
    assert_eq!(judged(schema, new, old), (wanted.iter().map(|text| (*text).to_owned()).collect(), Vec::new()));
}

fn rule(text: &str) -> Value {
    json!([{"rule": text}])
}

#[test]
fn without_a_rule_nothing_is_compiled() {
    let rules = rules(&object(&json!({"a": {"type": "array", "items": {"type": "string"}}})));
    assert_eq!(rules.judge(&json!({"a": ["x"]}), None, &mut Vec::new(), Effort::Whole), Some(Vec::new()));
    assert!(rules.compiled.get().unwrap().is_none());
}

#[test]
fn a_fault_of_the_shape_keeps_rules_from_being_tried_and_one_of_a_value_does_not() {
    let schema = object(&json!({"a": {"type": "integer", "x-kubernetes-validations": rule("self > 5")}}));
    let path = Path::new("b");
    let shape = Error::too_long(&path, 3);
    let value = Error::invalid(&path, "x", "should match");
    for (error, n_errors, last) in [(shape, 2, "<nil>"), (value, 2, "a")] {
        let mut errors = vec![error];
        rules(&schema).judge(&json!({"a": 1}), None, &mut errors, Effort::Whole);
        assert_eq!((errors.len(), errors[1].field.as_str()), (n_errors, last));
    }
}

#[test]
fn what_is_null_or_absent_is_not_tried() {
    let property = json!({"type": "string", "nullable": true, "x-kubernetes-validations": rule("self == 'x'")});
    let schema = object(&json!({"a": property}));
    check_errors(&schema, &json!({}), None, &[]);
    check_errors(&schema, &json!({"a": null}), None, &[]);
    check_errors(&schema, &json!({"a": "y"}), None, &[r#"a: Invalid value: "y": failed rule: self == 'x'"#]);
}

#[test]
fn rules_about_a_change_need_a_former_self() {
    let schema = object(&json!({
        "a": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self >= oldSelf", "message": "may not shrink"},
            {"rule": "oldSelf.hasValue() || self < 5", "optionalOldSelf": true, "message": "begins small"}]},
        "rows": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "n": {"type": "integer", "x-kubernetes-validations": rule("self == oldSelf")}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": rule("self == oldSelf")}},
    }));
    check_errors(&schema, &json!({"a": 9}), None, &["a: Invalid value: 9: begins small"]);
    check_errors(&schema, &json!({"a": 8}), Some(&json!({"a": 9})), &["a: Invalid value: 8: may not shrink"]);
    check_errors(&schema, &json!({"a": 9}), Some(&json!({"a": null})), &["a: Invalid value: 9: begins small"]);
    let rows = |rows: &[(&str, i64)]| {
        let rows: Vec<Value> = rows.iter().map(|(key, number)| json!({"k": key, "n": number})).collect();
        json!({"rows": rows})
    };
    let old = rows(&[("a", 1), ("b", 2)]);
    check_errors(&schema, &rows(&[("b", 2), ("c", 9), ("a", 1)]), Some(&old), &[]);
    let errors = ["rows[0].n: Invalid value: 3: failed rule: self == oldSelf"];
    check_errors(&schema, &rows(&[("b", 3), ("a", 1)]), Some(&old), &errors);
    let errors = ["map[x.y]: Invalid value: 2: failed rule: self == oldSelf"];
    check_errors(&schema, &json!({"map": {"x.y": 2, "z": 1}}), Some(&json!({"map": {"x.y": 1}})), &errors);
}

#[test]
fn escaped_names_embedded_resources_and_free_fields_are_reached() {
    let schema = object(&json!({
        "a-b": {"type": "integer", "x-kubernetes-validations": rule("self > 0")},
        "ä": {"type": "integer", "x-kubernetes-validations": rule("self > 1")},
        "port": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": rule("type(self) == int ? self > 0 : self != ''")},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": rule("self.kind == 'Pod' && self.metadata.name != ''")},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "integer"}},
            "x-kubernetes-validations": rule("self.known > 0")},
    }));
    let template = json!({"apiVersion": "v1", "kind": "Hat", "metadata": {"name": "x"}});
    let new = json!({"a-b": 0, "ä": 1, "port": "", "template": template, "free": {"known": 0, "other": [1]}});
    let (mut errors, _) = judged(&schema, &new, None);
    errors.sort();
    let wanted = [
        "a-b: Invalid value: 0: failed rule: self > 0",
        "free: Invalid value: failed rule: self.known > 0",
        "port: Invalid value: \"\": failed rule: type(self) == int ? self > 0 : self != ''",
        "template: Invalid value: failed rule: self.kind == 'Pod' && self.metadata.name != ''",
        "ä: Invalid value: 1: failed rule: self > 1",
    ];
    assert_eq!(errors, wanted);
}

#[test]
fn rules_of_the_object_see_its_name_and_say_where_by_their_path() {
    let mut schema = object(&json!({"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}));
    schema["x-kubernetes-validations"] = json!([
        {"rule": "self.metadata.name.startsWith('a')"},
        {"rule": "self.spec.n > 0", "fieldPath": ".spec.n", "reason": "FieldValueForbidden", "message": "too small"}]);
    let new = json!({"apiVersion": "g/v", "kind": "K", "metadata": {"name": "b"}, "spec": {"n": 0}});
    let wanted =
        ["<nil>: Invalid value: failed rule: self.metadata.name.startsWith('a')", "spec.n: Forbidden: too small"];
    check_errors(&schema, &new, None, &wanted);
}

#[test]
fn faults_of_evaluation_name_the_type_and_go_on_with_the_next_rule() {
    let schema = object(&json!({"a": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self[3] > 0"}, {"rule": "self[0] / (self[0] - 1) > 0", "message": "shown instead of the rule"}, {"rule": "self[0] > 1"}]}}));
    let wanted = [
        "a: Invalid value: \"array\": index out of bounds: 3 evaluating rule: self[3] > 0",
        "a: Invalid value: \"array\": division by zero evaluating rule: shown instead of the rule",
        "a: Invalid value: failed rule: self[0] > 1",
    ];
    check_errors(&schema, &json!({"a": [1]}), None, &wanted);
}

#[test]
fn a_message_of_more_than_five_kilobytes_is_not_shown() {
    let schema = object(&json!({"a": {"type": "string", "x-kubernetes-validations": [
        {"rule": "false", "messageExpression": "self", "message": "instead"}]}}));
    for (length, wanted) in [(5120, false), (5121, true)] {
        let text = "x".repeat(length);
        let (errors, _) = judged(&schema, &json!({"a": text}), None);
        assert_eq!(errors[0].ends_with("instead"), wanted, "{length}");
    }
}

#[test]
fn the_work_of_all_rules_of_an_object_is_bounded() {
    // Each comparison costs little by upstream's figures, although the strings differ only at the end.
    let large = vec!["x".repeat(1000); 3000];
    let many: Vec<Value> = (0..400).map(|n| json!({"rule": format!("self.all(a, a == self[0]) || {n} < 0")})).collect();
    let schema =
        object(&json!({"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": many}}));
    let (errors, _) = judged(&schema, &json!({"a": large}), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("no further validation rules will be run"), "{errors:?}");
}

/// A schema of every shape, with a rule at each position that is hardly ever true.
fn strict() -> Value {
    let text = json!({"type": "string", "x-kubernetes-validations": rule("self == 'good'")});
    let number = json!({"type": "integer", "x-kubernetes-validations": rule("self == 7")});
    let row = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": number, "t": text},
        "x-kubernetes-validations": rule("has(self.v) && self.v > 3")});
    object(&json!({
        "text": text, "number": number,
        "list": {"type": "array", "items": text, "x-kubernetes-validations": rule("self.size() == 1")},
        "rows": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": row},
        "map": {"type": "object", "additionalProperties": number, "x-kubernetes-validations": rule("'good' in self")},
        "deep": {"type": "object", "properties": {"deeper": {"type": "object", "properties": {"text": text}}},
            "x-kubernetes-validations": rule("has(self.deeper)")},
    }))
}

fn any_object() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just("good"), Just("bad"), Just("worse")];
    let number = 5..9i64;
    let row = (prop::option::of(number.clone()), prop::option::of(text.clone()));
    let rows = prop::collection::btree_map("[abc]", row, 0..4);
    let map = prop::collection::btree_map(prop_oneof![Just("good".to_owned()), "[xy]"], number.clone(), 0..3);
    let list = prop::collection::vec(text.clone(), 0..3);
    let fields = (prop::option::of(text.clone()), prop::option::of(number), list, rows, map, prop::option::of(text));
    fields.prop_map(|(text, number, list, rows, map, deep)| {
        let rows: Vec<Value> = rows
            .into_iter()
            .map(|(key, (number, text))| {
                let mut row = json!({"k": key});
                number.into_iter().for_each(|number| row["v"] = number.into());
                text.into_iter().for_each(|text| row["t"] = text.into());
                row
            })
            .collect();
        let mut object = json!({"list": list, "rows": rows, "map": map, "deep": {}});
        text.into_iter().for_each(|text| object["text"] = text.into());
        number.into_iter().for_each(|number| object["number"] = number.into());
        deep.into_iter().for_each(|text| object["deep"] = json!({"deeper": {"text": text}}));
        object
    })
}

/// The positions at which rules do not hold, found by walking schema and value together and compiling at each position.
fn naive(schema: &Value, value: &Value, path: &Path, found: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let compiled = structural::compile(schema);
    let declare = if path.as_str().is_empty() { DeclType::from_resource_schema } else { DeclType::from_schema };
    if let Some(decl) = declare(&compiled) {
        let environment = Environment::new().declare("self", decl.clone());
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let program = environment.compile(rule["rule"].as_str().unwrap()).unwrap();
            let mut activation = Activation::new().with("self", Cel::declared(value, &decl).unwrap());
            let holds = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).unwrap();
            if holds.as_bool() != Some(true) {
                found.push(path.as_str().to_owned());
            }
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(property) => naive(property, inner, &path.child(name), found),
            None if schema["additionalProperties"].is_object() => {
                naive(&schema["additionalProperties"], inner, &path.key(name), found);
            }
            None => {}
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        naive(&schema["items"], item, &path.index(index), found);
    }
}

proptest! {
    #[test]
    fn an_update_that_changes_nothing_is_never_refused(object in any_object()) {
        let (errors, warnings) = judged(&strict(), &object, Some(&object));
        prop_assert_eq!(errors, Vec::<String>::new());
        let (refused, _) = judged(&strict(), &object, None);
        prop_assert_eq!(warnings, refused, "what would be refused of a new object is warned of");
    }

    #[test]
    fn what_an_update_may_not_have_a_new_object_may_not_have_either(new in any_object(), old in any_object()) {
        let (errors, warnings) = judged(&strict(), &new, Some(&old));
        let (mut all, _) = judged(&strict(), &new, None);
        let mut said: Vec<String> = errors.into_iter().chain(warnings).collect();
        all.sort();
        said.sort();
        prop_assert_eq!(said, all);
    }

    #[test]
    fn rules_are_tried_where_a_naive_walk_finds_them(object in any_object()) {
        let mut errors = Vec::new();
        rules(&strict()).judge(&object, None, &mut errors, Effort::Whole);
        let mut found: Vec<String> = errors.into_iter().map(|error| error.field).collect();
        let mut wanted = Vec::new();
        naive(&strict(), &object, &Path::root(), &mut wanted);
        found.sort();
        wanted.sort();
        prop_assert_eq!(found, wanted);
    }
}

fn found(schema: &Value, is_unchanged: bool) -> Vec<String> {
    let path = Path::new("s");
    let place = SchemaContext { path: &path, keywords: &[], is_unchanged, budget: &Budget::unlimited() };
    errors(&structural::compile(schema), &place).iter().map(Error::to_string).collect()
}

#[test]
fn what_single_rules_cost_is_judged_when_they_are_new_and_what_all_cost_always() {
    let list = |items_max: u64| {
        let rule = rule("self.all(x, self.all(y, x != y || x == y))");
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": items_max, "x-kubernetes-validations": rule})
    };
    let dear = object(&json!({"a": list(2000)}));
    let new = found(&dear, false);
    assert!(new.len() == 1 && new[0].contains("estimated rule cost exceeds budget by factor of 2.8x"), "{new:?}");
    assert_eq!(found(&dear, true), Vec::<String>::new());
    let all = found(&object(&json!({"a": list(1_000_000)})), true);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].starts_with("s: Forbidden: x-kubernetes-validations estimated rule cost total"), "{all:?}");
}

#[test]
fn rules_are_not_compiled_where_a_keyword_is_wrong_at_or_below_them() {
    let schema = object(&json!({
        "a": {"type": "string", "x-kubernetes-validations": rule("nonsense")},
        "ab": {"type": "string", "x-kubernetes-validations": rule("nonsense")}}));
    let path = Path::new("s");
    let keywords = [Error::forbidden(&Path::new("s.properties[a].uniqueItems"), "")];
    let place = SchemaContext { path: &path, keywords: &keywords, is_unchanged: false, budget: &Budget::unlimited() };
    let found = errors(&structural::compile(&schema), &place);
    let fields: Vec<&str> = found.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["s.properties[ab].x-kubernetes-validations[0].rule"]);
}

#[test]
fn a_value_of_no_type_has_no_rules() {
    let schema =
        object(&json!({"a": {"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": rule("true")}}));
    let wanted = "s.properties[a].x-kubernetes-validations: Internal error: internal error: failed to retrieve type information for x-kubernetes-validations";
    assert_eq!(found(&schema, false), [wanted]);
}

#[test]
fn all_defaults_of_a_schema_share_a_budget() {
    let schema = structural::compile(&json!({"type": "integer", "x-kubernetes-validations": rule("self > 5")}));
    let mut budget = Some(OBJECT_BUDGET);
    let path = Path::new("d");
    let errors = judge_default(&schema, &json!(3), &path, DefaultOf::Field, &mut budget, &Budget::unlimited());
    assert_eq!(errors[0].to_string(), "d: Invalid value: 3: failed rule: self > 5");
    assert!(budget.is_some_and(|left| left < OBJECT_BUDGET));
    budget = Some(0);
    let errors = judge_default(&schema, &json!(7), &path, DefaultOf::Field, &mut budget, &Budget::unlimited());
    assert!(errors[0].to_string().contains("running out of cost budget"), "{errors:?}");
    assert_eq!(
        (judge_default(&schema, &json!(3), &path, DefaultOf::Field, &mut budget, &Budget::unlimited()), budget),
        (Vec::new(), None)
    );
}

#[test]
fn costly_rules_are_given_up_in_a_brief_try_and_leave_no_fault() {
    let list = json!({"type": "array", "maxItems": 100, "items": {"type": "integer"},
        "x-kubernetes-validations": rule("self.all(a, self.all(b, a + b < 198))")});
    let rules = rules(&object(&json!({"a": list})));
    let judge = |n: usize, effort| {
        let mut errors = Vec::new();
        let warnings = rules.judge(&json!({"a": vec![99; n]}), None, &mut errors, effort);
        (warnings.is_some(), errors.len())
    };
    assert_eq!(judge(1, Effort::Brief), (true, 1));
    // Only the last of all pairs breaks the rule.
    let object = json!({"a": (0..100).map(|n| if n < 99 { 1 } else { 99 }).collect::<Vec<_>>()});
    let (mut brief, mut whole) = (Vec::new(), Vec::new());
    assert_eq!(rules.judge(&object, None, &mut brief, Effort::Brief), None);
    assert_eq!(brief, []);
    assert_eq!(rules.judge(&object, None, &mut whole, Effort::Whole), Some(Vec::new()));
    assert_eq!(whole.len(), 1);
}

#[test]
fn compiling_the_rules_of_a_definition_is_charged() {
    let rules: Vec<Value> = (0..20_000).map(|n| json!({"rule": format!("self.size() > {n}")})).collect();
    let schema = structural::compile(&json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": rules}));
    let limits = Limits { steps_max: 10_000_000, ..Limits::default() };
    let (path, budget) = (Path::new("s"), Budget::new(limits, Interrupt::default()));
    let place = SchemaContext { path: &path, keywords: &[], is_unchanged: false, budget: &budget };
    errors(&schema, &place);
    // Not all of them: the budget is exceeded before.
    assert!(budget.is_exceeded());
}
