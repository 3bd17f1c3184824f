//! ReplicaSet: a number of pods from one template.

use crate::builtin::kind::{Column, Kind, RULES, Scale, ScaleSelector, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::workloads::workload;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{object_at, unless_set};

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
    warnings: |object, old| warnings::of_name(object, old, warnings::POD_NAMES),
    validate: &[
        Rule::new("spec.replicas", Check::NotNegative),
        Rule::new("spec.minReadySeconds", Check::NotNegative),
        Rule::new("spec", Check::By(selector_and_template)),
        Rule::new("spec.selector", Check::Immutable),
    ],
    validate_status: &[
        Rule::new("", Check::Rules(STATUS)),
        Rule::new("status.terminatingReplicas", Check::NotNegative),
    ],
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    if let Some(spec) = object_at(object, &["spec"]) {
        unless_set(spec, "replicas", 1);
    }
    pod::defaults::spec(object, &["spec", "template", "spec"]);
}

/// The rules of the status of ReplicaSets and ReplicationControllers.
pub const STATUS: &[Rule] = &[
    Rule::new("status.replicas", Check::NotNegative),
    Rule::new("status.fullyLabeledReplicas", Check::NotNegative),
    Rule::new("status.readyReplicas", Check::NotNegative),
    Rule::new("status.availableReplicas", Check::NotNegative),
    Rule::new("status.observedGeneration", Check::NotNegative),
    Rule::new(
        "status",
        Check::By(|status, errors| {
            let counters = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            workload::no_more_than_replicas(status, &counters, errors);
        }),
    ),
];

/// Validates the selector and, if it selects anything, the template.
pub fn selector_and_template(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let selector = spec.field("selector");
    workload::validate_selector(spec, "deployment", errors);
    if selector::is_valid(&selector) {
        workload::validate_template(spec, "ReplicaSet", errors);
    } else {
        errors.push(selector.invalid("invalid label selector"));
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
