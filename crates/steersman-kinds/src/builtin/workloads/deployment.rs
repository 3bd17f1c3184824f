//! Deployment: a number of pods from a template, replaced step by step when the template changes.

use crate::builtin::kind::{Column, Kind, RULES, Request, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::selector;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::object_at;

pub const KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    pod_spec: &["spec", "template", "spec"],
    plural: "deployments",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.apps.v1.Deployment",
        has_status: true,
        scale: Some(&Scale {
            spec: ".spec.replicas",
            status: ".status.replicas",
            selector: ScaleSelector::Object(".spec.selector"),
        }),
        columns: &[
            Column::NAME,
            Column::text("Ready", "How many of the wanted pods are ready."),
            Column::text("Up-to-date", "How many pods are of the present template."),
            Column::text("Available", "How many pods have been ready for long enough."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
            Column::text("Selector", "Which pods are its own.").wide(),
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"], &["metadata", "annotations"]],
    status_leaves: &[&["spec"], &["metadata", "labels"]],
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    validate_status,
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    if let Some(spec) = object_at(object, &["spec"]) {
        unless_set(spec, "replicas", 1);
        unless_set(spec, "revisionHistoryLimit", 10);
        unless_set(spec, "progressDeadlineSeconds", 600);
    }
    if let Some(strategy) = object_at(object, &["spec", "strategy"]) {
        unless_set(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            unless_set(strategy, "rollingUpdate", json!({}));
            if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                unless_set(rolling, "maxUnavailable", "25%");
                unless_set(rolling, "maxSurge", "25%");
            }
        }
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = object.field("spec");
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        rules::not_negative(&spec.field(field), errors);
    }
    let (deadline, ready) = (spec.field("progressDeadlineSeconds"), spec.field("minReadySeconds"));
    if deadline.number().is_some_and(|seconds| seconds <= ready.number().unwrap_or(0)) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    strategy(&spec.field("strategy"), errors);
    workload::validate_selector(&spec, "deployment", errors);
    let selector = spec.field("selector");
    if selector::is_valid(&selector) {
        workload::validate_template(&spec, "ReplicaSet", errors);
    } else {
        errors.push(selector.invalid("invalid label selector"));
    }
}

fn strategy(strategy: &Field<'_>, errors: &mut Vec<Error>) {
    let rolling = strategy.field("rollingUpdate");
    match strategy.field("type").text() {
        "Recreate" if rolling.is_present() => {
            errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (surge, unavailable) = (rolling.field("maxSurge"), rolling.field("maxUnavailable"));
            int_or_percent::validate(&unavailable, errors);
            int_or_percent::validate(&surge, errors);
            if int_or_percent::is_zero(unavailable.value) && int_or_percent::is_zero(surge.value) {
                errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            int_or_percent::at_most_all(&unavailable, errors);
        }
        _ => errors.push(strategy.not_supported(&["Recreate", "RollingUpdate"])),
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (object, old) = (Field::root(request.new), Field::root(request.old));
    validate(&object, errors);
    let path = ["spec", "selector"];
    rules::immutable(&object.at(&path), &old.at(&path), errors);
}

fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (status, old) = (Field::root(request.new).field("status"), Field::root(request.old).field("status"));
    let number = |field: &str| status.field(field).number().unwrap_or(0);
    let counters = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    for field in counters {
        rules::not_negative(&status.field(field), errors);
    }
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if number(field) > number("replicas") {
            errors.push(status.field(field).invalid("cannot be greater than status.replicas"));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        errors.push(status.field("availableReplicas").invalid("cannot be greater than readyReplicas"));
    }
    let collisions = old.field("collisionCount").number();
    if collisions.is_some_and(|before| status.field("collisionCount").number().is_none_or(|now| now < before)) {
        let value = Value::from(number("collisionCount"));
        errors.push(Error::invalid(&status.field("collisionCount").path, value, "cannot be decremented"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = |field: &str| cells::number(object, &["status", field]);
    let [names, images] = workload::container_cells(object);
    vec![
        cells::name(object),
        Value::from(format!("{}/{}", status("readyReplicas"), cells::number(object, &["spec", "replicas"]))),
        Value::from(status("updatedReplicas")),
        Value::from(status("availableReplicas")),
        cells::age(object, now),
        names,
        images,
        workload::selector_cell(object),
    ]
}
