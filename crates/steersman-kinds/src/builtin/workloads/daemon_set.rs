//! DaemonSet: one pod on every node.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, str_at, unless_set};

/// The number of changes of the template, for very old controllers.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub const KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    pod_spec: &["spec", "template", "spec"],
    plural: "daemonsets",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.apps.v1.DaemonSet",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::integer("Desired", "How many nodes are to have a pod."),
            Column::integer("Current", "How many of these nodes have one."),
            Column::integer("Ready", "How many of these pods are ready."),
            Column::integer("Up-to-date", "How many of these pods are of the present template."),
            Column::integer("Available", "How many of these pods have been ready for long enough."),
            Column::text("Node Selector", "Which nodes are meant."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
            Column::text("Selector", "Which pods are its own.").wide(),
        ],
        cells,
        annotations: &[TEMPLATE_GENERATION],
        conversion_fault: |set| {
            let count = str_at(set, &["metadata", "annotations", TEMPLATE_GENERATION])?;
            let is_number = count.parse::<i64>().is_ok();
            let fault = || format!("the annotation {TEMPLATE_GENERATION} is {count:?}, want a whole number of 64 bits");
            (!is_number).then(fault)
        },
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    completed_for_owners: |set| {
        // Upstream's conversion adds the annotation where it is missing.
        let is_there = str_at(set, &["metadata", "annotations", TEMPLATE_GENERATION]).is_some();
        let mut completed = (!is_there).then(|| set.clone())?;
        set_template_generation(&mut completed, 0);
        Some(completed)
    },
    prepare_create: |object| set_template_generation(object, 1),
    prepare_update,
    // The internal form has the number in its spec, which such a write does not change.
    prepare_status: |new, old| set_template_generation(new, template_generation(old)),
    validate: &[
        Rule::new("spec.minReadySeconds", Check::NotNegative),
        Rule::new("spec.revisionHistoryLimit", Check::NotNegative),
        Rule::new("spec.updateStrategy.type", Check::OneOf(&["RollingUpdate", "OnDelete"])),
        Rule::new("spec.updateStrategy", Check::By(strategy)),
        Rule::new("spec", Check::By(selector)),
        Rule::new("spec", Check::By(|spec, errors| workload::validate_template(spec, "DaemonSet", errors))),
        Rule::new("spec.selector", Check::Immutable),
    ],
    validate_status: &[
        Rule::new("status.currentNumberScheduled", Check::NotNegative),
        Rule::new("status.numberMisscheduled", Check::NotNegative),
        Rule::new("status.desiredNumberScheduled", Check::NotNegative),
        Rule::new("status.numberReady", Check::NotNegative),
        Rule::new("status.observedGeneration", Check::NotNegative),
        Rule::new("status.updatedNumberScheduled", Check::NotNegative),
        Rule::new("status.numberAvailable", Check::NotNegative),
        Rule::new("status.numberUnavailable", Check::NotNegative),
        Rule::new("status.collisionCount", Check::NotNegative),
    ],
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    if let Some(spec) = object_at(object, &["spec"]) {
        unless_set(spec, "revisionHistoryLimit", 10);
        unless_set(spec, "updateStrategy", json!({}));
        if let Some(strategy) = spec.get_mut("updateStrategy").and_then(Value::as_object_mut) {
            unless_set(strategy, "type", "RollingUpdate");
            let is_rolling = strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate");
            if is_rolling {
                unless_set(strategy, "rollingUpdate", json!({}));
            }
            // The internal form always has both numbers, whether they are used or not.
            if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                unless_set(rolling, "maxUnavailable", i64::from(is_rolling));
                unless_set(rolling, "maxSurge", 0);
            }
        }
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = object_at(object, &["metadata", "annotations"]) {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), Value::from(generation.to_string()));
    }
}

fn template_generation(object: &Value) -> i64 {
    let count = str_at(object, &["metadata", "annotations", TEMPLATE_GENERATION]);
    count.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn prepare_update(new: &mut Value, old: &Value) {
    let is_changed = at(new, &["spec", "template"]) != at(old, &["spec", "template"]);
    set_template_generation(new, template_generation(old) + i64::from(is_changed));
}

fn strategy(strategy: &Field<'_>, errors: &mut Vec<Error>) {
    if strategy.field("type").text() != "RollingUpdate" {
        return;
    }
    let rolling = strategy.field("rollingUpdate");
    let (surge, unavailable) = (rolling.field("maxSurge"), rolling.field("maxUnavailable"));
    for amount in [&unavailable, &surge] {
        int_or_percent::validate(amount, errors);
        int_or_percent::at_most_all(amount, errors);
    }
    match (int_or_percent::is_zero(surge.value), int_or_percent::is_zero(unavailable.value)) {
        (true, true) => errors.push(unavailable.invalid("cannot be 0 when `maxSurge` is 0")),
        (false, false) => errors.push(surge.invalid("may not be set when maxUnavailable is non-zero")),
        _ => {}
    }
}

/// A selector that is not given matches no template, which is all that upstream says of it.
fn selector(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("selector").is_present() {
        workload::validate_selector(spec, "daemonset", errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = |field: &str| Value::from(cells::number(object, &["status", field]));
    let [names, images] = workload::container_cells(object);
    let nodes = at(object, &["spec", "template", "spec", "nodeSelector"]).unwrap_or(&Value::Null);
    vec![
        cells::name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        Value::from(selector::labels_text(nodes)),
        cells::age(object, now),
        names,
        images,
        workload::selector_cell(object),
    ]
}
