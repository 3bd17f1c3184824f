//! Converts between the two versions of an autoscaler. Fields that v1 does not have are stored in annotations, so that
//! nothing is lost when a client reads and writes v1.

use crate::builtin::workloads::autoscaler::older::{self, Amounts};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{Map, at, object_at, remove_at, set_at, str_at};

/// A field of the spec or the status that only v2 has, and its annotation in v1.
struct Carried {
    path: &'static [&'static str],
    annotation: &'static str,
    to_text: fn(&Value) -> Option<String>,
    from_text: fn(&str) -> Option<Value>,
}

const METRICS: Carried = Carried {
    path: &["spec", "metrics"],
    annotation: "autoscaling.alpha.kubernetes.io/metrics",
    to_text: |metrics| older::metrics_text(metrics, Amounts::Wanted),
    from_text: |text| older::metrics(text, Amounts::Wanted),
};
const CURRENT_METRICS: Carried = Carried {
    path: &["status", "currentMetrics"],
    annotation: "autoscaling.alpha.kubernetes.io/current-metrics",
    to_text: |metrics| older::metrics_text(metrics, Amounts::Current),
    from_text: |text| older::metrics(text, Amounts::Current),
};
const BEHAVIOR: Carried = Carried {
    path: &["spec", "behavior"],
    annotation: "autoscaling.alpha.kubernetes.io/behavior",
    to_text: older::behavior_text,
    from_text: older::behavior,
};
const CONDITIONS: Carried = Carried {
    path: &["status", "conditions"],
    annotation: "autoscaling.alpha.kubernetes.io/conditions",
    to_text: older::conditions_text,
    from_text: older::conditions,
};
const CARRIED: [Carried; 4] = [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS];
/// The annotations of v1.
pub(super) const ANNOTATIONS: &[&str] =
    &[METRICS.annotation, BEHAVIOR.annotation, CURRENT_METRICS.annotation, CONDITIONS.annotation];

/// The metric of v1: CPU utilization, as a percentage of the request.
pub(super) fn processor(utilization: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}},
    })
}

/// Whether an autoscaler in the form of v1 has metrics besides CPU utilization.
pub(super) fn has_other_metrics(scaler: &Value) -> bool {
    at(scaler, &["metadata", "annotations", METRICS.annotation]).is_some()
}

/// The field of a metric for its type.
pub(super) fn source_of(kind: &str) -> &'static str {
    match kind {
        "ContainerResource" => "containerResource",
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        _ => "resource",
    }
}

/// Converts from v1 to v2.
pub(super) fn to_v2(mut scaler: Value) -> Value {
    for carried in CARRIED {
        let text = remove_at(&mut scaler, &["metadata", "annotations", carried.annotation]);
        if let Some(value) = text.as_ref().and_then(|text| (carried.from_text)(text.as_str()?)) {
            set_at(&mut scaler, carried.path, value);
        }
    }
    drop_empty(&mut scaler, &["metadata"], "annotations");
    if let Some(target) = remove_at(&mut scaler, &["spec", "targetCPUUtilizationPercentage"]) {
        // Behind those of the annotation, as upstream puts it.
        let mut metrics = list(&scaler, &["spec", "metrics"]);
        metrics.push(processor(target.as_i64().unwrap_or_default()));
        set_at(&mut scaler, &["spec", "metrics"], Value::Array(metrics));
    }
    // The annotation has this metric too, and says more about it.
    let current = remove_at(&mut scaler, &["status", "currentCPUUtilizationPercentage"]);
    if let Some(current) = current.filter(|_| at(&scaler, CURRENT_METRICS.path).is_none()) {
        let metric = json!({
            "type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}},
        });
        set_at(&mut scaler, CURRENT_METRICS.path, json!([metric]));
    }
    scaler
}

/// Converts from v2 to v1.
pub(super) fn from_v2(mut scaler: Value) -> Value {
    let metrics = list(&scaler, METRICS.path);
    let target = metrics.iter().find_map(|metric| utilization(metric, "target"));
    let current = list(&scaler, CURRENT_METRICS.path).iter().find_map(|metric| utilization(metric, "current"));
    remove_at(&mut scaler, METRICS.path);
    let others: Vec<Value> = metrics.into_iter().filter(|metric| utilization(metric, "target").is_none()).collect();
    if !others.is_empty() {
        set_at(&mut scaler, METRICS.path, Value::Array(others));
    }
    for carried in CARRIED {
        if let Some(value) = remove_at(&mut scaler, carried.path)
            && let Some(text) = (carried.to_text)(&value)
            && let Some(annotations) = object_at(&mut scaler, &["metadata", "annotations"])
        {
            annotations.insert(carried.annotation.to_owned(), Value::from(text));
        }
    }
    if let Some(target) = target {
        set_at(&mut scaler, &["spec", "targetCPUUtilizationPercentage"], target);
    }
    if let Some(current) = current {
        set_at(&mut scaler, &["status", "currentCPUUtilizationPercentage"], current);
    }
    scaler
}

/// The utilization of the CPU that a metric is about, if it is.
fn utilization(metric: &Value, field: &str) -> Option<Value> {
    let is_processor = str_at(metric, &["resource", "name"]) == Some("cpu");
    at(metric, &["resource", field, "averageUtilization"]).filter(|_| is_processor).cloned()
}

fn list(object: &Value, path: &[&str]) -> Vec<Value> {
    at(object, path).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn drop_empty(object: &mut Value, path: &[&str], field: &str) {
    let full = [path, &[field]].concat();
    if at(object, &full).and_then(Value::as_object).is_some_and(Map::is_empty) {
        remove_at(object, &full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotations_are_written_as_upstream_writes_them() {
        let expression = json!({"key": "c", "operator": "Exists"});
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression]});
        let scaler = json!({"metadata": {}, "spec": {
            "metrics": [
                {"type": "Pods", "pods": {
                    "metric": {"name": "rps", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "10"},
                }},
                {"type": "Object", "object": {
                    "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"}, "metric": {"name": "q"},
                    "target": {"type": "Value", "value": "5k"},
                }},
            ],
            "behavior": {"scaleUp": {
                "stabilizationWindowSeconds": 10, "selectPolicy": "Min",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
            }},
        }});
        let old = from_v2(scaler.clone());
        let text = |name: &str| old["metadata"]["annotations"][name].as_str().unwrap().to_owned();
        assert_eq!(
            text(METRICS.annotation),
            r#"[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"10","selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Exists"}]}}},{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"q","targetValue":"5k"}}]"#
        );
        assert_eq!(
            text(BEHAVIOR.annotation),
            r#"{"ScaleUp":{"StabilizationWindowSeconds":10,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null},"ScaleDown":null}"#
        );
        assert_eq!(to_v2(old), scaler);
    }

    #[test]
    fn nothing_is_lost_in_the_older_version() {
        let scaler = json!({
            "metadata": {"name": "h"},
            "spec": {
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                    processor(50),
                ],
                "behavior": {"scaleDown": {"selectPolicy": "Max"}},
            },
            "status": {"conditions": [{"type": "ScalingActive", "status": "True"}]},
        });
        let old = from_v2(scaler.clone());
        assert_eq!(old["spec"], json!({"targetCPUUtilizationPercentage": 50}));
        assert!(has_other_metrics(&old));
        assert_eq!(to_v2(old), scaler);
    }

    #[test]
    fn the_annotation_of_the_current_metrics_has_the_processor_too() {
        let current = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]);
        let old = from_v2(json!({"metadata": {}, "spec": {}, "status": {"currentMetrics": current}}));
        assert_eq!(old["status"], json!({"currentCPUUtilizationPercentage": 7}));
        assert_eq!(
            old["metadata"]["annotations"][CURRENT_METRICS.annotation],
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,"currentAverageValue":"0"}}]"#
        );
        assert_eq!(to_v2(old)["status"]["currentMetrics"].as_array().map(Vec::len), Some(1));
    }
}
