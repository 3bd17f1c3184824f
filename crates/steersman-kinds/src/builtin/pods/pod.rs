//! Pod: containers that run together on one node. Its spec is also part of every kind that creates pods.

use crate::builtin::built_in::remove_unless_kept;
use crate::builtin::kind::{Column, Kind, RULES, SelectableField, Subresource, Version};
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::catalog::{Handling, Verb};
use crate::strategy::{Grace, Rules};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::pod::qos;
use steersman_machinery::value::{at, set_at, str_at};

pub mod container;
pub mod defaults;
pub mod scheduling;
pub mod spec;

mod cells;
mod claims;
mod ephemeral;
mod resize;
pub(in crate::builtin) mod security;
mod status;
mod update;
mod volume;
pub(in crate::builtin) mod volume_source;
pub(in crate::builtin) mod warnings;
mod windows;

/// The verbs of endpoints that upgrade to a bidirectional stream.
const UPGRADES: &[Verb] = &[Verb::Create, Verb::Get];

const fn stream(name: &'static str, kind: &'static str, verbs: &'static [Verb]) -> Subresource {
    Subresource { name, group: "", version: "v1", kind, verbs, handling: Handling::Stream }
}

const fn part(name: &'static str) -> Subresource {
    let verbs = &[Verb::Get, Verb::Patch, Verb::Update];
    Subresource { name, group: "", version: "v1", kind: "Pod", verbs, handling: Handling::Stored }
}

pub const KIND: Kind = Kind {
    kind: "Pod",
    pod_spec: &["spec"],
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Pod",
        has_status: true,
        subresources: &[
            stream("attach", "PodAttachOptions", UPGRADES),
            Subresource {
                name: "binding",
                group: "",
                version: "v1",
                kind: "Binding",
                verbs: &[Verb::Create],
                handling: Handling::Connect,
            },
            part("ephemeralcontainers"),
            Subresource {
                name: "eviction",
                group: "policy",
                version: "v1",
                kind: "Eviction",
                verbs: &[Verb::Create],
                handling: Handling::Connect,
            },
            stream("exec", "PodExecOptions", UPGRADES),
            stream("log", "Pod", &[Verb::Get]),
            stream("portforward", "PodPortForwardOptions", UPGRADES),
            Subresource::proxy("PodProxyOptions"),
            part("resize"),
        ],
        columns: &[
            Column::NAME,
            Column::text("Ready", "How many of its containers are ready."),
            Column::text("Status", "What it is doing, or why it does not."),
            Column::text("Restarts", "How often its containers were restarted, and the time since the last."),
            Column::AGE,
            Column::text("IP", "Its address.").wide(),
            Column::text("Node", "Where it runs.").wide(),
            Column::text("Nominated Node", "Where room is being made for it.").wide(),
            Column::text("Readiness Gates", "How many of its further conditions for being ready hold.").wide(),
        ],
        cells: cells::of_pod,
        cells_read: cells::READ,
        row_conditions,
        fields: &[
            SelectableField::new("spec.nodeName", ".spec.nodeName"),
            SelectableField::new("spec.restartPolicy", ".spec.restartPolicy"),
            SelectableField::new("spec.schedulerName", ".spec.schedulerName"),
            SelectableField::new("spec.serviceAccountName", ".spec.serviceAccountName"),
            SelectableField::new("spec.hostNetwork", ".spec.hostNetwork").or("false"),
            SelectableField::new("status.phase", ".status.phase"),
            SelectableField::new("status.podIP", ".status.podIP"),
            SelectableField::new("status.podIPs", ".status.podIP"),
            SelectableField::new("status.nominatedNodeName", ".status.nominatedNodeName"),
        ],
        default: defaults::pod,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    status_leaves: &[&["spec"], &["metadata", "ownerReferences"]],
    other_leaves: &[
        &["metadata", "annotations"],
        &["metadata", "labels"],
        &["spec", "activeDeadlineSeconds"],
        &["spec", "containers"],
        &["spec", "initContainers"],
        &["spec", "schedulingGates"],
        &["spec", "terminationGracePeriodSeconds"],
        &["spec", "tolerations"],
        &["status"],
    ],
    rules: Rules { grace: Grace::Node, returns_deleted: true, warns_on_update: false, ..RULES },
    prepare_create,
    prepare_status,
    prepare_other: ephemeral::prepare,
    prepare_resize: resize::prepare,
    validate: &[
        Rule::new("spec", Check::Rules(spec::SPEC)),
        Rule::new("spec", Check::Rules(container::IMAGES)).on_create(),
        Rule::new("spec", Check::By(token_of_nobody)).on_create(),
        Rule::new("spec.ephemeralContainers", Check::Forbidden("cannot be set on create")).unless_empty().on_create(),
        Rule::new("spec", Check::By(scheduling::gated_node)).on_create(),
        Rule::new("spec", Check::Change(update::validate)).on_update(),
    ],
    validate_status: status::STATUS,
    validate_resize: &[Rule::new("", Check::Change(resize::validate))],
    validate_other: Some(&[Rule::new("", Check::Change(ephemeral::validate))]),
    warnings: warnings::of_pod,
    ..Kind::NAMESPACED
};

/// Whether the `Ready` condition of a pod is true.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = at(pod, &["status", "conditions"]).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn prepare_create(pod: &mut Value) {
    set_at(pod, &["status", "phase"], Value::from("Pending"));
    let class = qos::class(pod);
    set_at(pod, &["status", "qosClass"], Value::from(class));
    tell_gated(pod);
    scheduling::merge_label_keys(pod);
}

/// Sets the condition of a pod with scheduling gates, which is not scheduled.
fn tell_gated(pod: &mut Value) {
    let has_gates =
        at(pod, &["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty());
    if !has_gates {
        return;
    }
    let created = at(pod, &["metadata", "creationTimestamp"]).cloned();
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null, "lastTransitionTime": created,
    });
    set_at(pod, &["status", "conditions"], json!([condition]));
}

/// Refuses tokens in the volumes of a pod without a service account.
fn token_of_nobody(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if !spec.field("serviceAccountName").is_empty() {
        return;
    }
    for source in spec.field("volumes").items().map(|volume| volume.at(&["projected", "sources"])) {
        let tokens = source.items().map(|source| source.field("serviceAccountToken"));
        errors.extend(
            tokens
                .filter(Field::is_present)
                .map(|token| token.forbidden("must not be specified when serviceAccountName is not set")),
        );
    }
}

/// The condition of the row of a pod that has ended.
fn row_conditions(pod: &Value) -> Vec<Value> {
    let (phase, why) = match str_at(pod, &["status", "phase"]) {
        Some("Failed") => ("Failed", "The pod failed."),
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": why})]
}

fn prepare_status(new: &mut Value, old: &Value) {
    // A field without its feature.
    remove_unless_kept(new, old, &["status", "nodeAllocatableResourceClaimStatuses"]);
    if at(new, &["status", "qosClass"]).is_none()
        && let Some(class) = at(old, &["status", "qosClass"])
    {
        set_at(new, &["status", "qosClass"], class.clone());
    }
}
