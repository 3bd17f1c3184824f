//! ReplicationController: the predecessor of ReplicaSet, which keeps a number of pods of a template running.

use crate::builtin::kind::{Column, Kind, RULES, Scale, ScaleSelector, SelectableField, Version};
use crate::builtin::pods::pod;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::workloads::replica_set;
use crate::builtin::workloads::workload;
use crate::strategy::{Propagation, Rules};
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, unless_set};

pub const KIND: Kind = Kind {
    kind: "ReplicationController",
    pod_spec: &["spec", "template", "spec"],
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.ReplicationController",
        has_status: true,
        scale: Some(&Scale {
            spec: ".spec.replicas",
            status: ".status.replicas",
            selector: ScaleSelector::Labels(".spec.selector"),
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
        fields: &[SelectableField::new("status.replicas", ".status.replicas").or("0")],
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    rules: Rules { propagation: Propagation::Orphan, validates_generate_name_on_update: false, ..RULES },
    warnings: |object, old| warnings::of_name(object, old, warnings::POD_NAMES),
    validate: &[
        Rule::new("spec.minReadySeconds", Check::NotNegative),
        Rule::new("spec.replicas", Check::NotNegative),
        Rule::required("spec.selector", ""),
        Rule::present("spec.template", ""),
        Rule::new("spec", Check::By(template)),
    ],
    validate_status: replica_set::STATUS,
    ..Kind::NAMESPACED
};

/// Selector and labels default to the labels of the template.
fn default(object: &mut Value) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).filter(|labels| is_filled(labels)).cloned();
    for path in [&["spec", "selector"][..], &["metadata", "labels"]] {
        if let (Some(labels), Some((last, way))) = (&labels, path.split_last())
            && !at(object, path).is_some_and(is_filled)
            && let Some(parent) = object_at(object, way)
        {
            parent.insert((*last).to_owned(), labels.clone());
        }
    }
    if let Some(spec) = object_at(object, &["spec"]) {
        unless_set(spec, "replicas", 1);
    }
    if at(object, &["spec", "template"]).is_some_and(|template| !template.is_null()) {
        pod::defaults::spec(object, &["spec", "template", "spec"]);
    }
}

fn is_filled(labels: &Value) -> bool {
    labels.as_object().is_some_and(|labels| !labels.is_empty())
}

fn template(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (selector, template) = (spec.field("selector"), spec.field("template"));
    if template.is_absent() {
        return;
    }
    let labels = template.at(&["metadata", "labels"]);
    let is_own = |(key, value): (&str, Field<'_>)| labels.key(key).value == value.value;
    if !selector.entries().all(is_own) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    workload::validate_running_template(&template, "ReplicationController", errors);
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
        Value::from(selector::labels_text(at(object, &["spec", "selector"]).unwrap_or(&Value::Null))),
    ]
}
