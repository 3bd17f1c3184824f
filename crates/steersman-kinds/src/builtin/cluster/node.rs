//! Node: a machine that runs pods, as its kubelet reports it.

use crate::builtin::built_in::remove_unless_kept;
use crate::builtin::kind::{Column, Kind, NewStatus, SelectableField, Subresource, Version};
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::quantity::round_up;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::value::{at, object_at, str_at, unless_set};

pub(in crate::builtin) mod validate;

pub const KIND: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Node",
        has_status: true,
        subresources: &[Subresource::proxy("NodeProxyOptions")],
        columns: &[
            Column::NAME,
            Column::text("Status", "Whether it is ready, and takes new pods."),
            Column::text("Roles", "What it is for."),
            Column::AGE,
            Column::text("Version", "The version of its agent."),
            Column::text("Internal-IP", "Its address inside.").wide(),
            Column::text("External-IP", "Its address outside.").wide(),
            Column::text("OS-Image", "Its operating system.").wide(),
            Column::text("Kernel-Version", "Its kernel.").wide(),
            Column::text("Container-Runtime", "What runs its containers.").wide(),
        ],
        cells,
        default: |node| {
            if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
                if let Some(capacity) = status.get("capacity").filter(|capacity| !capacity.is_null()).cloned() {
                    unless_set(status, "allocatable", capacity);
                }
                round_up(status, &["capacity"]);
                round_up(status, &["allocatable"]);
            }
            // The first pod CIDR is in two fields. Where they differ, `podCIDR` wins, because older clients write it.
            let Some(spec) = object_at(node, &["spec"]) else { return };
            let first =
                spec.get("podCIDR").filter(|range| range.as_str().is_some_and(|text| !text.is_empty())).cloned();
            let listed = spec.get("podCIDRs").and_then(Value::as_array).and_then(|ranges| ranges.first()).cloned();
            match (first, listed) {
                (Some(first), listed) if listed.as_ref() != Some(&first) => {
                    spec.insert("podCIDRs".to_owned(), json!([first]));
                }
                (None, Some(listed)) => {
                    spec.insert("podCIDR".to_owned(), listed);
                }
                _ => {}
            }
        },
        fields: &[SelectableField::new("spec.unschedulable", ".spec.unschedulable").or("false")],
        ..Version::V1
    }],
    prepare_create: |node| remove_unless_kept(node, &Value::Null, CONFIG_SOURCE),
    prepare_update: |new, old| remove_unless_kept(new, old, CONFIG_SOURCE),
    prepare_status: |new, old| remove_unless_kept(new, old, &["status", "config"]),
    // A kubelet creates its node together with the status.
    new_status: NewStatus::Given,
    validate: validate::NODE,
    warnings: |node, _| {
        let is_set = |field: &str| at(node, &["spec", field]).is_some();
        let texts = [
            ("configSource", "spec.configSource: the feature is removed"),
            ("externalID", "spec.externalID: this field is deprecated, and is unused by Kubernetes"),
        ];
        texts.into_iter().filter(|(field, _)| is_set(field)).map(|(_, text)| text.to_owned()).collect()
    },
    validate_status: validate::STATUS,
    ..Kind::CLUSTER
};

/// The source of a kubelet's configuration, which kubelets no longer read.
const CONFIG_SOURCE: &[&str] = &["spec", "configSource"];

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |field: &str| {
        let text = str_at(node, &["status", "nodeInfo", field]).filter(|text| !text.is_empty());
        Value::from(text.unwrap_or("<unknown>"))
    };
    let address = |kind: &str| {
        let addresses = at(node, &["status", "addresses"]).and_then(Value::as_array).into_iter().flatten();
        let mut found = addresses.into_iter().filter(|one| str_at(one, &["type"]) == Some(kind));
        Value::from(found.next().and_then(|one| str_at(one, &["address"])).unwrap_or(NONE))
    };
    vec![
        cells::name(node),
        Value::from(status(node)),
        Value::from(roles(node)),
        cells::age(node, now),
        cells::text(node, &["status", "nodeInfo", "kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn status(node: &Value) -> String {
    let conditions = at(node, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let ready = conditions.into_iter().find(|one| str_at(one, &["type"]) == Some("Ready"));
    let mut status = match ready.map(|ready| str_at(ready, &["status"])) {
        None => "Unknown",
        Some(Some("True")) => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten();
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()).filter(|role| !role.is_empty()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned).filter(|role| !role.is_empty()),
        None => None,
    };
    let roles: BTreeSet<String> = labels.filter_map(role).collect();
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<String>>().join(",") }
}
