//! Fifty rules on an object of five kilobytes, as a definition may have them: evaluated, and compiled.
//!
//! `cargo bench -p steersman-cel`

use serde_json::{Value as Json, json};
use std::hint::black_box;
use std::time::Duration;
use steersman_cel::{Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, Program, Value};
use steersman_schema::structural;

const RULES: [&str; 10] = [
    "self.replicas >= self.minReplicas && self.replicas <= self.maxReplicas",
    "!has(self.paused) || !self.paused",
    "self.image.startsWith('registry.example.com/')",
    "self.labels.all(k, k.size() < 64)",
    "self.containers.all(c, c.name != '' && c.image != '')",
    "self.containers.exists(c, c.name == 'main')",
    "self.schedule.matches('^[0-9*/, ]+$')",
    "'team' in self.labels && self.labels['team'] in ['a', 'b', 'platform']",
    "self.strategy == 'Recreate' ? self.replicas <= 1 : true",
    "self.containers.map(c, c.name).size() == 6",
];

fn object() -> Json {
    let env: Vec<Json> =
        (0..14).map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "some value of it"})).collect();
    let container = |name: &str| json!({"name": name, "image": "registry.example.com/team/image:1.2.3", "env": env});
    let names = ["main", "proxy", "logs", "metrics", "init", "debug"];
    json!({
        "replicas": 3, "minReplicas": 1, "maxReplicas": 10, "paused": false, "strategy": "RollingUpdate",
        "image": "registry.example.com/team/image:1.2.3", "schedule": "*/5 0,12 1 * *",
        "labels": {"app": "shop", "team": "platform", "tier": "backend", "release": "stable"},
        "containers": names.map(container),
    })
}

fn decl() -> DeclType {
    let text = json!({"type": "string", "maxLength": 128});
    let row = json!({"type": "object", "properties": {"name": text, "value": text}});
    let container =
        json!({"type": "object", "properties": {"name": text, "image": text, "env": {"type": "array", "items": row}}});
    let schema = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "minReplicas": {"type": "integer"}, "maxReplicas": {"type": "integer"},
        "paused": {"type": "boolean"}, "strategy": text, "image": text, "schedule": text,
        "labels": {"type": "object", "maxProperties": 32, "additionalProperties": text},
        "containers": {"type": "array", "maxItems": 16, "items": container}}});
    DeclType::from_schema(&structural::compile(&schema), false).expect("an object is seen")
}

/// The best of many short batches: what it takes when nothing else has the processor.
#[expect(clippy::disallowed_methods, reason = "to measure is to read the clock")]
fn time(mut run: impl FnMut()) -> Duration {
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

fn main() {
    let object = object();
    let decl = decl();
    let environment = Environment::new().declare("self", decl.clone());
    let compile = || -> Vec<Program> {
        RULES.iter().cycle().take(50).map(|rule| environment.compile(rule).expect("the rule is right")).collect()
    };
    let programs = compile();
    let evaluate = |program: &Program| {
        let value = Value::declared(black_box(&object), &decl).expect("as declared");
        let mut activation = Activation::new().with("self", value);
        let held =
            program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT)).expect("it has a value").as_bool();
        assert_eq!(held, Some(true));
    };
    println!("object: {} bytes", object.to_string().len());
    println!("50 rules evaluated: {:?}", time(|| programs.iter().for_each(evaluate)));
    for (rule, program) in RULES.iter().zip(&programs) {
        println!("  {:?} {rule}", time(|| evaluate(program)));
    }
    println!("50 rules compiled: {:?}", time(|| drop(black_box(compile()))));
}
