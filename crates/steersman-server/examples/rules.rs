//! Measures fifty rules of a definition on a write of five kilobytes, as the registry runs them.
//!
//! `cargo run --release -p steersman-server --example rules`

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Duration;
use steersman_machinery::field;
use steersman_server::catalog::Resource;
use steersman_server::crd;
use steersman_server::strategy::Effort;

/// The rules of the benchmark of `steersman-cel`.
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

fn object() -> Value {
    let env: Vec<Value> =
        (0..14).map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "some value of it"})).collect();
    let container = |name: &str| json!({"name": name, "image": "registry.example.com/team/image:1.2.3", "env": env});
    let names = ["main", "proxy", "logs", "metrics", "init", "debug"];
    json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": {
        "replicas": 3, "minReplicas": 1, "maxReplicas": 10, "paused": false, "strategy": "RollingUpdate",
        "image": "registry.example.com/team/image:1.2.3", "schedule": "*/5 0,12 1 * *",
        "labels": {"app": "shop", "team": "platform", "tier": "backend", "release": "stable"},
        "containers": names.map(container),
    }})
}

/// A kind with this many rules for its spec.
fn kind(n_rules: usize) -> std::sync::Arc<Resource> {
    let rules: Vec<Value> = RULES.iter().cycle().take(n_rules).map(|rule| json!({"rule": rule})).collect();
    let text = json!({"type": "string", "maxLength": 128});
    let row = json!({"type": "object", "properties": {"name": text, "value": text}});
    let container =
        json!({"type": "object", "properties": {"name": text, "image": text, "env": {"type": "array", "items": row}}});
    let spec = json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "replicas": {"type": "integer"}, "minReplicas": {"type": "integer"}, "maxReplicas": {"type": "integer"},
        "paused": {"type": "boolean"}, "strategy": text, "image": text, "schedule": text,
        "labels": {"type": "object", "maxProperties": 32, "additionalProperties": text},
        "containers": {"type": "array", "maxItems": 16, "items": container}}});
    let names = json!({"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"});
    let definition = json!({
        "metadata": {"name": "shops.example.com", "generation": 1},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]},
        "status": {"acceptedNames": names, "storedVersions": ["v1"]},
    });
    crd::custom_resources(&definition).expect("the definition holds together")
}

/// The best of many short batches: the time when nothing else uses the processor.
#[expect(clippy::disallowed_methods, reason = "to measure is to read the clock")]
fn time(n_runs: u32, mut run: impl FnMut()) -> Duration {
    let mut batch = || {
        let start = std::time::Instant::now();
        for _ in 0..n_runs {
            run();
        }
        start.elapsed() / n_runs
    };
    (0..300).map(|_| batch()).min().unwrap_or_default()
}

fn main() {
    let object = object();
    println!("object: {} bytes", object.to_string().len());
    for n_rules in [0, 50] {
        let resource = kind(n_rules);
        let version = resource.storage_version();
        let judge = |old: Option<&Value>| {
            let mut faults: Vec<field::Error> = Vec::new();
            let warnings = resource.strategy.judge(version, black_box(&object), old, &mut faults, Effort::Whole);
            assert!(faults.is_empty() && warnings.is_some_and(|warnings| warnings.is_empty()));
        };
        println!("{n_rules} rules, creation: {:?}", time(10, || judge(None)));
        println!("{n_rules} rules, update:   {:?}", time(10, || judge(Some(&object))));
    }
    let first = time(1, || {
        let resource = kind(50);
        resource.strategy.judge(resource.storage_version(), &object, None, &mut Vec::new(), Effort::Whole);
    });
    println!("50 rules, first object of a new definition: {first:?}");
}
