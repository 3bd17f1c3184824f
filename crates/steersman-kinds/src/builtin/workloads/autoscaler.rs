//! HorizontalPodAutoscaler: scales a workload by its load. Stored as v2; v1 only has the CPU metric.

use crate::builtin::kind::{Column, Conversion, Kind, RULES, Version};
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{object_at, unless_set};

mod cells;
mod convert;
mod older;
pub(in crate::builtin) mod validate;

pub const KIND: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    versions: &[
        Version {
            name: "v2",
            definition: "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
            has_status: true,
            columns: COLUMNS,
            cells: cells::of_v2,
            default: default_v2,
            ..Version::V1
        },
        Version {
            definition: "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
            has_status: true,
            columns: COLUMNS,
            cells: |scaler, now| cells::of_v2(&convert::to_v2(scaler.clone()), now),
            annotations: convert::ANNOTATIONS,
            default: default_v1,
            conversion: Some(&Conversion {
                to_internal: convert::to_v2,
                from_internal: convert::from_v2,
                internal_api_version: "autoscaling/v2",
            }),
            ..Version::V1
        },
    ],
    validate: validate::AUTOSCALER,
    validate_status: &[
        Rule::new("status.currentReplicas", Check::NotNegative),
        Rule::new("status.desiredReplicas", Check::NotNegative),
    ],
    ..Kind::NAMESPACED
};

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Reference", "What it scales."),
    Column::text("Targets", "How much there is to do, and how much is wanted."),
    Column::text("MinPods", "The least number of pods."),
    Column::text("MaxPods", "The greatest number of pods."),
    Column::text("Replicas", "How many pods there are."),
    Column::AGE,
];

/// The default CPU utilization, as a percentage of the request.
const UTILIZATION: i64 = 80;

fn default_v2(scaler: &mut Value) {
    let Some(spec) = object_at(scaler, &["spec"]) else { return };
    unless_set(spec, "minReplicas", 1);
    unless_set(spec, "metrics", json!([convert::processor(UTILIZATION)]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    // A behavior that configures one direction gets the defaults of the other too.
    for direction in ["scaleUp", "scaleDown"] {
        unless_set(behavior, direction, json!({}));
        let Some(rules) = behavior.get_mut(direction).and_then(Value::as_object_mut) else { continue };
        unless_set(rules, "selectPolicy", "Max");
        let policies = if direction == "scaleUp" {
            unless_set(rules, "stabilizationWindowSeconds", 0);
            json!([
                {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15},
            ])
        } else {
            json!([{"type": "Percent", "value": 100, "periodSeconds": 15}])
        };
        unless_set(rules, "policies", policies);
    }
}

fn default_v1(scaler: &mut Value) {
    let has_other_metrics = convert::has_other_metrics(scaler);
    let Some(spec) = object_at(scaler, &["spec"]) else { return };
    unless_set(spec, "minReplicas", 1);
    if !has_other_metrics {
        unless_set(spec, "targetCPUUtilizationPercentage", UTILIZATION);
    }
}
