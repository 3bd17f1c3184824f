//! The kind `Stage`, as defined on the server and read from there.

use crate::kubelet::stage::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The simulated behavior of the Pods or Nodes that are selected.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "simulate.steersman.dev",
    version = "v1alpha1",
    kind = "Stage",
    plural = "stages",
    doc = "Stage says what Pods on simulated nodes do, or which of these nodes are away.",
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules_of_spec()))]
pub(crate) struct StageSpec {
    /// Where several Stages select a Pod or a Node, each field is taken from the Stage with the greatest weight among
    /// those that set it. Among Stages with the same weight, the one whose name comes first wins.
    pub(crate) weight: i32,
    /// Selects Pods by their labels. Without it, all Pods are selected.
    #[schemars(with = "LabelSelector")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_selector: Option<LabelSelector>,
    /// Selects Pods by their namespaces. Without it and a namespaceSelector, Pods of all namespaces are selected.
    #[schemars(schema_with = "schema::namespaces")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces: Option<Vec<String>>,
    /// Selects Pods by the labels of their namespaces, in place of the namespaces' names.
    #[schemars(with = "LabelSelector")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace_selector: Option<LabelSelector>,
    /// Selects the Nodes that Pods are on, or that go away, by their labels. Without it, all Nodes are selected.
    #[schemars(with = "LabelSelector")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_selector: Option<LabelSelector>,
    /// The Nodes that the nodeSelector selects go silent: they renew no Leases and post no status, and nothing happens
    /// to their Pods.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goes_away: Option<bool>,
    /// The behavior of all containers.
    #[serde(flatten)]
    pub(crate) behavior: Behavior,
    /// The behavior of single containers. Fields that are not set are as for all containers of the Pod.
    #[schemars(schema_with = "schema::containers")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers: Vec<Container>,
}

/// The behavior of containers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Behavior {
    /// How long pulling an image takes: a duration such as 1m30s, or a range such as 1s..3s from which each container
    /// gets its own.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pull_delay: Option<String>,
    /// How long a container takes to be ready, beyond what its probes say.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_delay: Option<String>,
    /// No container becomes ready; its readiness probe fails.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) never_ready: Option<bool>,
    /// The containers end with exit code 0 after running for this time.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) succeed_after: Option<String>,
    /// The containers end with the exitCode, or 1, after running for this time.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fail_after: Option<String>,
    /// The containers end with the exitCode, or 1, as soon as they have begun.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crash_loop: Option<bool>,
    /// The exit code of containers that fail: 0 to 255.
    #[schemars(schema_with = "schema::exit_code")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    /// The liveness probe of a container, if it has one, fails after the container has run for this time.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) liveness_fails_after: Option<String>,
    /// How long a container takes to end when it is asked to; no longer than the grace period.
    #[schemars(schema_with = "schema::duration")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_delay: Option<String>,
    /// No image can be pulled.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image_missing: Option<bool>,
    /// The resource usage of each running container.
    #[schemars(with = "Usage")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
}

/// The resource usage of a running container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Usage {
    /// CPUs, such as 250m. The default is 1m.
    #[schemars(schema_with = "schema::quantity")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<Quantity>,
    /// Memory in bytes, such as 64Mi. The default is 10Mi.
    #[schemars(schema_with = "schema::quantity")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Quantity>,
}

/// The behavior of one container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = schema::rules_of_behavior()))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    /// The name of the container.
    #[schemars(schema_with = "schema::name")]
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) behavior: Behavior,
}

/// Selects objects by their labels. An empty selector selects everything.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    /// Labels with exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) match_labels: BTreeMap<String, String>,
    /// Further requirements, all of which must hold.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = schema::rules_of_requirement()))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requirement {
    /// The key of the label.
    pub(crate) key: String,
    /// In, NotIn, Exists or DoesNotExist.
    #[schemars(schema_with = "schema::operator")]
    pub(crate) operator: String,
    /// The values for In and NotIn.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<String>,
}

/// A quantity as it was written: a number, or a text with a unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Quantity {
    Number(i64),
    Text(String),
}

// === impl Quantity ===

impl Quantity {
    pub(crate) fn text(&self) -> String {
        match self {
            Quantity::Number(number) => number.to_string(),
            Quantity::Text(text) => text.clone(),
        }
    }
}
