//! HorizontalPodAutoscaler: how many pods, by how much they have to do. Stored as v2; v1 knows the processor only.

use crate::builtin::kind::{Column, Conversion, Kind, Request, Version};
use crate::builtin::place::Place;
use crate::builtin::pod::defaults::unless_set;
use crate::builtin::rules;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::object_at;

mod cells;
mod convert;

pub(crate) const KIND: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
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
            default: default_v1,
            conversion: Some(&Conversion {
                to_internal: convert::to_v2,
                from_internal: convert::from_v2,
                internal_api_version: "autoscaling/v2",
            }),
            ..Version::V1
        },
    ],
    validate_create: validate,
    validate_update: validate,
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

/// The share of what they ask for that pods are to use of the processor, in percent.
const UTILIZATION: i64 = 80;

fn default_v2(scaler: &mut Value) {
    let Some(spec) = object_at(scaler, &["spec"]) else { return };
    unless_set(spec, "minReplicas", 1);
    unless_set(spec, "metrics", json!([convert::processor(UTILIZATION)]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    // A behavior that says something of one direction has the defaults of the other too.
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

fn validate(request: &Request<'_>, faults: &mut Vec<Error>) {
    let spec = Place::root(request.new).field("spec");
    let (least, most) = (spec.field("minReplicas"), spec.field("maxReplicas"));
    if least.number().is_some_and(|number| number < 1) {
        faults.push(least.invalid("must be greater than or equal to 1"));
    }
    let number = most.number().unwrap_or(0);
    if number < 1 {
        faults.push(Error::invalid(&most.path, number, rules::POSITIVE));
    }
    if least.number().is_some_and(|least| number < least) {
        faults.push(Error::invalid(&most.path, number, "must be greater than or equal to `minReplicas`"));
    }
    let target = spec.field("scaleTargetRef");
    rules::required(&target.field("kind"), faults);
    rules::required(&target.field("name"), faults);
    spec.field("metrics").items().for_each(|metric| validate_metric(&metric, faults));
}

fn validate_metric(metric: &Place<'_>, faults: &mut Vec<Error>) {
    const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = metric.field("type");
    if kind.is_empty() {
        faults.push(kind.required("must specify a metric source type"));
        return;
    }
    rules::one_of(&kind, &KINDS, faults);
    let field = convert::source_of(kind.text());
    if KINDS.contains(&kind.text()) && metric.field(field).is_absent() {
        let why = format!("must populate information for the given metric source type: {field}");
        faults.push(metric.field(field).required(&why));
        return;
    }
    let others = KINDS.map(convert::source_of).into_iter().filter(|other| *other != field);
    for other in others.map(|other| metric.field(other)).filter(Place::is_present) {
        faults.push(other.forbidden("must populate the given metric source only"));
    }
    let target = metric.field(field).field("target");
    let amounts = ["averageUtilization", "averageValue", "value"].map(|field| target.field(field));
    if metric.field(field).is_present() && amounts.iter().all(Place::is_absent) {
        faults.push(target.required("must set either a raw value for metric or a target utilization"));
    }
    rules::positive(&target.field("averageUtilization"), faults);
}
