//! Expressions and values that would take much time or memory without bounds.

use serde_json::{Value as Json, json};
use steersman_cel::{Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, Value};

fn run(text: &str, object: &Json) -> Result<Json, String> {
    let environment = Environment::new().declare("object", DeclType::dynamic());
    let program = environment.compile(text).map_err(|error| error.to_string())?;
    let mut activation = Activation::new().with("object", Value::json(object));
    let value =
        program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).map_err(|error| error.to_string())?;
    value.to_json(&mut Meter::new(0)).map_err(|error| error.to_string())
}

const BUDGET: &str = "operation cancelled: actual cost limit exceeded";

#[track_caller]
fn stopped(text: &str, object: &Json) {
    assert_eq!(run(text, object), Err(BUDGET.to_owned()), "{text}");
}

#[test]
fn loops_are_stopped_by_the_budget() {
    let object = json!((0..1000).collect::<Vec<_>>());
    stopped("object.all(x, object.all(y, x + y >= 0))", &object);
    stopped("object.map(x, object.map(y, object.map(z, 1)))", &object);
    stopped("object.all(x, object.sortBy(y, -y).size() > 0)", &object);
    stopped("lists.range(9999999).size() > 0", &json!(null));
}

#[test]
fn what_is_cheap_by_its_figures_is_stopped_by_its_work() {
    let long = "a".repeat(100_000);
    let big = json!({"text": long, "tree": (0..50_000).collect::<Vec<_>>(), "small": (0..5_000).collect::<Vec<_>>()});
    // A string in which each character is replaced by the whole string.
    stopped("object.text.replace('', object.text).size() > 0", &big);
    stopped("object.text.replace('a', object.text).size() > 0", &big);
    // Large trees that are compared for a cost of one.
    stopped("object.small.all(x, object == object)", &big);
    // Lists whose size doubles repeatedly.
    let doubled = "object.small".to_owned() + &".map(x, [x, x]).flatten()".repeat(13);
    stopped(&format!("{doubled}.size() > 0"), &big);
    stopped("object.small.all(x, [object.tree, object.tree].flatten().size() > 0)", &big);
}

#[test]
fn long_texts_that_are_gone_through_again_and_again_are_work() {
    let text = "ü".repeat(50_000);
    let object = json!({
        "text": text, "url": format!("http://h/?{}", "a&".repeat(25_000)), "times": (0..20_000).collect::<Vec<_>>(),
    });
    for repeated in [
        "object.text.size() > 0",
        "object.text.charAt(49999) != ''",
        "object.text.substring(49999) != ''",
        "object.text.indexOf('x') < 0",
        "object.text.lastIndexOf('x') < 0",
    ] {
        stopped(&format!("object.times.all(x, {repeated})"), &object);
    }
    stopped("[url(object.url)].all(u, object.times.all(x, u.getQuery().size() > 0))", &object);
    assert_eq!(run("object.text.size() == 50000", &object), Ok(json!(true)));
}

#[test]
fn values_whose_parts_are_shared_are_gone_through_within_the_bound() {
    let lists = (0..22).fold("[[1]]".to_owned(), |inner, at| format!("{inner}.map(x{at}, [x{at}, x{at}])"));
    let maps =
        (0..22).fold("[{'a': 1}]".to_owned(), |inner, at| format!("{inner}.map(x{at}, {{'a': x{at}, 'b': x{at}}})"));
    for made in [&lists, &maps] {
        stopped(&format!("{made} == {made}"), &json!(null));
        stopped(&format!("{made}[0] in {made}"), &json!(null));
        stopped(&format!("'%s'.format([{made}]) == ''"), &json!(null));
    }
}

#[test]
fn the_form_in_json_of_values_whose_parts_are_shared_is_bounded() {
    let environment = Environment::new().with_object_types();
    let made = |text: &str| {
        let program = environment.compile(text).map_err(|error| error.to_string()).expect(text);
        let value = program.evaluate(&mut Activation::new(), &mut Meter::new(PER_CALL_LIMIT)).expect(text);
        (value.to_json(&mut Meter::new(0)).map(drop), value.check_names(&mut Meter::new(0)))
    };
    let shared = |item: &str, doubled: &str| {
        (0..30).fold(item.to_owned(), |inner, at| {
            let name = format!("x{at}");
            format!("[{inner}].map({name}, {})[0]", doubled.replace('x', &name))
        })
    };
    for (value, names_are_checked) in [
        (shared("1", "[x, x]"), true),
        (shared("1", "{'a': x, 'b': x}"), true),
        (format!("Object{{spec: Object.spec{{list: {}}}}}", shared("1", "[x, x]")), false),
        (format!("[{}]", shared(&format!("'{}'", "a".repeat(1000)), "[x, x]")), true),
    ] {
        let (json, names) = made(&value);
        assert!(json.unwrap_err().is_budget(), "{value}");
        assert!(names_are_checked || names.unwrap_err().is_budget(), "{value}");
    }
    let small = made("Object{spec: Object.spec{list: [[1, 2], [1, 2]]}}");
    assert_eq!(small, (Ok(()), Ok(())));
}

#[test]
fn patterns_are_bounded() {
    let object = json!({"text": "a".repeat(30_000), "pattern": "(a{1,1000}){1,1000}", "many": (0..300).map(|at| format!("a{{1,{}}}", at + 500)).collect::<Vec<_>>()});
    let error = run("object.text.matches('(x{1,1000}){1,1000}')", &object).unwrap_err();
    assert!(error.contains("invalid matches argument"), "{error}");
    let error = run("object.text.matches(object.pattern)", &object).unwrap_err();
    assert!(error.contains("error parsing regexp"), "{error}");
    // A pattern that backtracks exponentially in other engines.
    assert_eq!(run("object.text.matches('^(a+)+$')", &object), Ok(json!(true)));
    stopped("object.many.all(p, object.many.all(q, 'aaa'.matches(p + q)))", &object);
}

/// Runs in a thread with two megabytes of stack, like the threads of a runtime.
fn in_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread starts");
    thread.join().expect("the thread ends");
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn deep_expressions_are_read_and_evaluated_within_the_stack() {
    in_a_small_stack(|| {
        let lists = nested("[", "]", 240);
        assert!(run(&format!("{lists} == {lists}"), &json!(null)).is_ok());
        assert!(run(&nested("(", ")", 240), &json!(null)).is_ok());
        assert_eq!(run(&nested("(1 + ", ")", 120), &json!(null)), Ok(json!(121)));
        assert!(run(&nested("[1].map(x, ", ")", 240), &json!(null)).is_ok());
        assert!(run(&nested("{1: ", "}", 240), &json!(null)).is_err());
    });
}

#[test]
fn too_deep_expressions_are_refused_within_the_stack() {
    in_a_small_stack(|| {
        for text in
            ["-".repeat(99_999), nested("(", ")", 49_000), nested("[", "]", 49_000), nested("[1].map(x, ", ")", 8_000)]
        {
            assert!(run(&text, &json!(null)).is_err());
        }
    });
}

#[test]
fn deep_values_are_compared_and_printed_within_the_stack() {
    in_a_small_stack(|| {
        assert!(run(&format!("'%s'.format([{}])", nested("[", "]", 240)), &json!(null)).is_ok());
        let mut deep = json!(1);
        for _ in 0..120 {
            deep = json!([deep]);
        }
        assert_eq!(run("object == object && '%s'.format([object]).size() == 241", &deep), Ok(json!(true)));
        assert_eq!(run("object.flatten(1000)", &deep), Ok(json!([1])));
    });
}

#[test]
fn types_that_would_contain_themselves_or_double_are_checked_at_once() {
    in_a_small_stack(|| {
        let _ = run("{}.map(c, [c, type(c)])", &json!(null));
        for (step, times) in [(".map(x, {'a': x, 'b': [x]})", 40), (".map(x, {x: x})", 40), (".map(x, [x, x])", 200)] {
            // The result does not matter, only that compilation ends.
            let _ = Environment::new().compile(&format!("[1]{}", step.repeat(times)));
        }
        let doubled =
            (0..60).fold("[]".to_owned(), |inner, at| format!("[{inner}].map(x{at}, {{1: x{at}, 2: x{at}}})"));
        let _ = Environment::new().compile(&doubled);
    });
}

#[test]
fn chains_of_composed_expressions_are_not_followed_without_end() {
    use std::sync::Arc;
    let mut environment = Environment::new();
    let mut composed: Vec<(Arc<str>, _)> = Vec::new();
    let mut types = Vec::new();
    for at in 0..400 {
        let text = if at == 0 { "1".to_owned() } else { format!("variables.v{} + 0", at - 1) };
        let program = environment.compile(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        types.push((format!("v{at}"), program.output().clone()));
        composed.push((format!("v{at}").into(), program));
        environment = Environment::new().with_composed(types.iter().map(|(name, of)| (&**name, of)));
    }
    let program = environment.compile("variables.v399").expect("it is right");
    let mut activation = Activation::new().with_composed(&composed);
    let error = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
    let program = environment.compile("variables.v9").expect("it is right");
    let mut activation = Activation::new().with_composed(&composed);
    assert!(program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).is_ok());
}
