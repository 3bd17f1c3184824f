//! ReplicaSet: a number of pods from one template.

use crate::builtin::kind::{Column, Kind, RULES, Request, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::object_at;

pub const KIND: Kind = Kind {
    group: "apps",
    kind: "ReplicaSet",
    pod_spec: &["spec", "template", "spec"],
    plural: "replicasets",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.apps.v1.ReplicaSet",
        has_status: true,
        scale: Some(&Scale {
            spec: ".spec.replicas",
            status: ".status.replicas",
            selector: ScaleSelector::Object(".spec.selector"),
        }),
        columns: &[
            Column::NAME,
            Column::integer("Desired", "How many pods are wanted."),
            Column::integer("Current", "How many pods there are."),
            Column::integer("Ready", "How many pods are ready."),
            Column::AGE,
            Column::text("Containers", "The names of the template's containers.").wide(),
            Column::text("Images", "The images of the template's containers.").wide(),
            Column::text("Selector", "Which pods are its own.").wide(),
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    validate_status,
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    if let Some(spec) = object_at(object, &["spec"]) {
        unless_set(spec, "replicas", 1);
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = object.field("spec");
    rules::not_negative(&spec.field("replicas"), errors);
    rules::not_negative(&spec.field("minReadySeconds"), errors);
    workload::validate_selector(&spec, "deployment", errors);
    let selector = spec.field("selector");
    if selector::is_valid(&selector) {
        workload::validate_template(&spec, "ReplicaSet", errors);
    } else {
        errors.push(selector.invalid("invalid label selector"));
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (object, old) = (Field::root(request.new), Field::root(request.old));
    validate(&object, errors);
    rules::immutable(&object.at(&["spec", "selector"]), &old.at(&["spec", "selector"]), errors);
}

pub fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let status = Field::root(request.new).field("status");
    let number = |field: &str| status.field(field).number().unwrap_or(0);
    let counters = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    for field in counters {
        rules::not_negative(&status.field(field), errors);
    }
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if number(field) > number("replicas") {
            errors.push(status.field(field).invalid("cannot be greater than status.replicas"));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        errors.push(status.field("availableReplicas").invalid("cannot be greater than readyReplicas"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = workload::container_cells(object);
    vec![
        cells::name(object),
        Value::from(cells::number(object, &["spec", "replicas"])),
        Value::from(cells::number(object, &["status", "replicas"])),
        Value::from(cells::number(object, &["status", "readyReplicas"])),
        cells::age(object, now),
        names,
        images,
        workload::selector_cell(object),
    ]
}
