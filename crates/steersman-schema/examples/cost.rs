//! The cost of a write in this crate: decoding a body, and updating its managed fields.
//!
//! `cargo run --release -p steersman-schema --example cost` prints microseconds per call, the best of many rounds.
#![expect(clippy::unwrap_used, reason = "a measurement stops where it cannot go on")]

use serde_json::json;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Duration;
use steersman_machinery::Budget;
use steersman_machinery::{GroupVersionKind, Value};
use steersman_schema::decode::{Body, Unknown};
use steersman_schema::fields::FieldSet;
use steersman_schema::managed::{self, Kind, OnConflict, OneVersion, Origin, Writer};
use steersman_schema::{Definitions, Schema, decode, default, structural, validate};

const POD: &str = "io.k8s.api.core.v1.Pod";
static NOTHING: FieldSet = FieldSet::EMPTY;
static UNLIMITED: LazyLock<Budget> = LazyLock::new(Budget::unlimited);
/// Many short rounds, so that some are undisturbed on a busy machine.
const ROUNDS: usize = 400;
const CALLS: u32 = 20;

fn main() {
    let shirt = structural::compile(&definition());
    let pod = Definitions::builtin().schema(POD).unwrap();
    let shirt_bytes = resource(1).to_string().into_bytes();
    let pod_bytes = pod_of(10).to_string().into_bytes();
    println!("custom resource of {} bytes, Pod of {} bytes", shirt_bytes.len(), pod_bytes.len());

    say("parse without a schema, custom resource", || decode::document(&shirt_bytes, &Budget::unlimited()).unwrap());
    say("parse without a schema, Pod", || decode::document(&pod_bytes, &Budget::unlimited()).unwrap());
    say("decode, Pod", || decode::built_in(pod, Body::Json(&pod_bytes), &Budget::unlimited()).unwrap());
    let tree = decode::built_in(pod, Body::Json(&pod_bytes), &Budget::unlimited()).unwrap().value;
    say("decode a tree, Pod", || decode::from_value(pod, &tree, &Budget::unlimited()).unwrap());
    say("clone, Pod", || tree.clone());
    decode_custom(&shirt, &shirt_bytes);

    let shirt_kind = GroupVersionKind::new("example.com", "v1", "Shirt");
    let pod_kind = GroupVersionKind::new("", "v1", "Pod");
    let shirts = kind(&shirt_kind, &shirt, Origin::Custom);
    let pods = kind(&pod_kind, pod, Origin::BuiltIn);
    records("custom resource", &shirts, &resource(1), &resource(2), &wish());
    records(
        "Pod",
        &pods,
        &pod_of(10),
        &pod_of(11),
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}),
    );

    let large = large_definition(10_000);
    let text = large.to_string();
    println!("definition of 10,000 properties, {} bytes", text.len());
    once("compile it", || structural::compile(&large));
    once("check it", || structural::check(&large, &steersman_machinery::field::Path::root()));
    let middle = large_definition(120);
    println!("definition of {} bytes", middle.to_string().len());
    once("compile it", || structural::compile(&middle));
    once("check it", || structural::check(&middle, &steersman_machinery::field::Path::root()));
}

fn decode_custom(schema: &Schema, bytes: &[u8]) {
    say("decode, custom resource", || {
        decode::custom_resource(schema, Unknown::Prune, Body::Json(bytes), &Budget::unlimited()).unwrap()
    });
    let value = resource(1);
    say("default, custom resource", || {
        let mut value = value.clone();
        default::apply(schema, &mut value, &Budget::unlimited()).unwrap();
        value
    });
    say("validate, custom resource", || validate::validate(schema, &value, &Budget::unlimited()));
}

fn kind<'a>(gvk: &'a GroupVersionKind, schema: &'a Schema, origin: Origin) -> Kind<'a> {
    Kind { gvk, schema, origin, reset: &NOTHING, versions: &OneVersion, budget: &UNLIMITED }
}

fn records(what: &str, kind: &Kind<'_>, first: &Value, second: &Value, applied: &Value) {
    let writer = |manager| Writer { manager, subresource: "", time: "2026-01-01T00:00:00Z" };
    let mut live = first.clone();
    managed::on_update(kind, &writer("kubectl-create"), None, &mut live).unwrap();
    let mut status = second.clone();
    status["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    managed::on_update(kind, &writer("controller"), Some(&live), &mut status).unwrap();
    let live = status;

    say(&format!("managedFields of a creation, {what}"), || {
        let mut new = first.clone();
        managed::on_update(kind, &writer("kubectl-create"), None, &mut new).unwrap();
        new
    });
    let mut new = first.clone();
    new["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    say(&format!("clone of what is updated, {what}"), || new.clone());
    say(&format!("managedFields of an update, {what}"), || {
        let mut new = new.clone();
        managed::on_update(kind, &writer("controller"), Some(&live), &mut new).unwrap();
        new
    });
    let applied_once = managed::on_apply(kind, &writer("applier"), Some(&live), applied, OnConflict::Force).unwrap();
    say(&format!("apply anew, {what}"), || {
        managed::on_apply(kind, &writer("applier"), Some(&live), applied, OnConflict::Force).unwrap()
    });
    say(&format!("apply the same again, {what}"), || {
        managed::on_apply(kind, &writer("applier"), Some(&applied_once), applied, OnConflict::Force).unwrap()
    });
    say(&format!("compare times, {what}"), || {
        let mut new = applied_once.clone();
        managed::keep_times(&live, &mut new);
        new
    });
}

fn say<T>(what: &str, mut run: impl FnMut() -> T) {
    // An argument selects the cases whose name contains it, for profiling.
    if std::env::args().nth(1).is_some_and(|word| !what.contains(&word)) {
        return;
    }
    let best = (0..ROUNDS).map(|_| time(CALLS, &mut run)).min().unwrap_or_default();
    println!("{:>9.2} us  {what}", best.as_secs_f64() * 1e6 / f64::from(CALLS));
}

fn once<T>(what: &str, mut run: impl FnMut() -> T) {
    let best = (0..3).map(|_| time(1, &mut run)).min().unwrap_or_default();
    println!("{:>9.2} ms  {what}", best.as_secs_f64() * 1e3);
}

#[expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]
fn time<T>(calls: u32, run: &mut impl FnMut() -> T) -> Duration {
    let start = std::time::Instant::now();
    for _ in 0..calls {
        black_box(run());
    }
    start.elapsed()
}

// === inputs ===

fn definition() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "color": {"type": "string"}, "size": {"type": "string", "default": "M"}, "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "text": {"type": "string"}}}},
            "extra": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

fn resource(count: i64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Shirt",
        "metadata": {
            "name": "shirt-000001", "namespace": "default", "uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "123456",
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "labels": {"app": "bench", "tier": "front"},
        },
        "spec": {
            "color": "blue", "size": "M", "count": count, "tags": ["a", "b", "c"],
            "parts": [
                {"name": "collar", "n": 1, "text": "a text of some forty letters and then some"},
                {"name": "sleeve", "n": 2, "text": "another text of some forty letters and more"},
            ],
            "extra": {"one": "first value", "two": "second value", "three": "third value"},
        },
        "status": {"phase": "Ready", "count": 1},
    })
}

fn wish() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Shirt", "metadata": {"name": "shirt-000001", "namespace": "default", "labels": {"app": "bench"}},
        "spec": {"color": "red", "count": 3, "parts": [{"name": "collar", "n": 1}], "extra": {"one": "first value"}},
    })
}

fn pod_of(port: i64) -> Value {
    let container = |name: &str| {
        let env: Vec<Value> = (0..8)
            .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("the value of variable {n}")}))
            .collect();
        json!({
            "name": name, "image": "registry.example.com/team/image:1.2.3", "imagePullPolicy": "IfNotPresent", "env": env,
            "command": ["/bin/program"], "args": ["--listen=0.0.0.0:8080", "--verbose"],
            "ports": [{"containerPort": 8000 + port, "name": "http", "protocol": "TCP"}, {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3, "successThreshold": 1, "timeoutSeconds": 1},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}, {"name": "data", "mountPath": "/data"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "default", "uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "123456",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "bench", "pod-template-hash": "abcdef"},
            "annotations": {"example.com/one": "a text of some forty letters and then some", "example.com/two": "more"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [container("one"), container("two"), container("three")],
            "volumes": [{"name": "config", "configMap": {"name": "c", "defaultMode": 420}}, {"name": "data", "emptyDir": {}}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": true, "priority": 0, "nodeName": "node-1",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "qosClass": "Burstable",
            "conditions": (["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|name| json!({"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}))),
        },
    })
}

fn large_definition(count: usize) -> Value {
    let properties: serde_json::Map<String, Value> = (0..count)
        .map(|n| {
            let property = json!({"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "description": "What this property is for, in a sentence."});
            (format!("property{n}"), property)
        })
        .collect();
    let spec = json!({"type": "object", "properties": properties});
    json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
}
