//! Deployment: a number of pods from a template, replaced step by step when the template changes.

use crate::builtin::kind::{Column, Kind, RULES, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::workloads::replica_set;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{object_at, unless_set};

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
    warnings: |object, old| warnings::of_name(object, old, warnings::POD_NAMES),
    validate: &[
        Rule::new("spec.replicas", Check::NotNegative),
        Rule::new("spec.minReadySeconds", Check::NotNegative),
        Rule::new("spec.revisionHistoryLimit", Check::NotNegative),
        Rule::new("spec.progressDeadlineSeconds", Check::NotNegative),
        Rule::new("spec", Check::By(deadline)),
        Rule::new("spec.strategy", Check::By(strategy)),
        Rule::new("spec", Check::By(replica_set::selector_and_template)),
        Rule::new("spec.selector", Check::Immutable),
    ],
    validate_status: &[
        Rule::new("status.observedGeneration", Check::NotNegative),
        Rule::new("status.replicas", Check::NotNegative),
        Rule::new("status.updatedReplicas", Check::NotNegative),
        Rule::new("status.readyReplicas", Check::NotNegative),
        Rule::new("status.availableReplicas", Check::NotNegative),
        Rule::new("status.unavailableReplicas", Check::NotNegative),
        Rule::new("status.terminatingReplicas", Check::NotNegative),
        Rule::new("status.collisionCount", Check::NotNegative),
        Rule::new(
            "status",
            Check::By(|status, errors| {
                let counters = ["updatedReplicas", "readyReplicas", "availableReplicas"];
                workload::no_more_than_replicas(status, &counters, errors);
            }),
        ),
        Rule::new("status.collisionCount", Check::Change(collisions)),
    ],
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

fn deadline(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (deadline, ready) = (spec.field("progressDeadlineSeconds"), spec.field("minReadySeconds"));
    if deadline.number().is_some_and(|seconds| seconds <= ready.number().unwrap_or(0)) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
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

fn collisions(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    if old.number().is_some_and(|before| new.number().is_none_or(|now| now < before)) {
        let value = Value::from(new.number().unwrap_or(0));
        errors.push(Error::invalid(&new.path, value, "cannot be decremented"));
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
