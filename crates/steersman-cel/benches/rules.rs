//! Fifty rules on an object of five kilobytes, as a definition may have them: evaluated, and compiled.
//!
//! `cargo bench -p steersman-cel` prints each rule; `cargo xtask bench cel` compares the sums with those of Kubernetes'
//! own validator.

use serde_json::{Value as Json, json};
use std::hint::black_box;
use std::time::Duration;
use steersman_cel::{Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, Program, Value};
use steersman_schema::structural;

/// The schema, the object and the rules, which the other program reads too.
const WORK: &str = include_str!("rules.json");

/// The time of one run, in the best of many short batches: when nothing else uses the processor.
#[expect(clippy::disallowed_methods, reason = "to measure is to read the clock")]
fn fastest(mut run: impl FnMut()) -> Duration {
    const RUNS: u32 = 10;
    let mut batch = || {
        let start = std::time::Instant::now();
        for _ in 0..RUNS {
            run();
        }
        start.elapsed() / RUNS
    };
    (0..500).map(|_| batch()).min().unwrap_or_default()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let work: Json = serde_json::from_str(WORK).expect("it is JSON");
    let object = &work["object"];
    let rules: Vec<&str> =
        work["rules"].as_array().expect("a list").iter().map(|rule| rule.as_str().expect("a text")).collect();
    let count = usize::try_from(work["count"].as_u64().expect("a number")).expect("a small number");
    let decl = DeclType::from_schema(&structural::compile(&work["schema"])).expect("an object is seen");
    let environment = Environment::new().declare("self", decl.clone());
    let compile = || -> Vec<Program> {
        rules.iter().cycle().take(count).map(|rule| environment.compile(rule).expect("the rule is right")).collect()
    };
    let programs = compile();
    let evaluate = |program: &Program| {
        let value = Value::declared(black_box(object), &decl).expect("as declared");
        let mut activation = Activation::new().with("self", value);
        let held =
            program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).expect("it has a value").as_bool();
        assert_eq!(held, Some(true));
    };
    let evaluated = fastest(|| programs.iter().for_each(evaluate));
    let compiled = fastest(|| drop(black_box(compile())));
    if is_json {
        println!("{}", json!({"evaluate_us": microseconds(evaluated), "compile_us": microseconds(compiled)}));
        return;
    }
    println!("object: {} bytes", object.to_string().len());
    println!("{count} rules evaluated: {evaluated:?}");
    for (rule, program) in rules.iter().zip(&programs) {
        println!("  {:?} {rule}", fastest(|| evaluate(program)));
    }
    println!("{count} rules compiled: {compiled:?}");
}
