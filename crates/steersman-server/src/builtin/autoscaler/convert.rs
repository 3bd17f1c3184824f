//! The two versions of an autoscaler. What v1 has no field for it carries in annotations, so that nothing is lost when a
//! client reads and writes v1; their content is that of v2.

use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{Map, at, object_at, remove_at, set_at, str_at};

/// The fields of the spec and the status that only v2 has, and the annotations that stand for them in v1.
const CARRIED: [(&[&str], &str); 4] = [
    (&["spec", "metrics"], "autoscaling.alpha.kubernetes.io/metrics"),
    (&["spec", "behavior"], "autoscaling.alpha.kubernetes.io/behavior"),
    (&["status", "currentMetrics"], "autoscaling.alpha.kubernetes.io/current-metrics"),
    (&["status", "conditions"], "autoscaling.alpha.kubernetes.io/conditions"),
];

/// The metric of v1: so many percent of what is asked for of the processor.
pub(crate) fn processor(utilization: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}},
    })
}

/// Whether an autoscaler in the form of v1 has metrics beside the processor.
pub(crate) fn has_other_metrics(scaler: &Value) -> bool {
    at(scaler, &["metadata", "annotations", CARRIED[0].1]).is_some()
}

/// The field of a metric that belongs to its type.
pub(crate) fn source_of(kind: &str) -> &'static str {
    match kind {
        "ContainerResource" => "containerResource",
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        _ => "resource",
    }
}

/// From v1 to v2.
pub(crate) fn to_v2(mut scaler: Value) -> Value {
    for (path, annotation) in CARRIED {
        let text = remove_at(&mut scaler, &["metadata", "annotations", annotation]);
        if let Some(carried) = text.as_ref().and_then(|text| serde_json::from_str::<Value>(text.as_str()?).ok()) {
            set_at(&mut scaler, path, carried);
        }
    }
    drop_empty(&mut scaler, &["metadata"], "annotations");
    if let Some(target) = remove_at(&mut scaler, &["spec", "targetCPUUtilizationPercentage"]) {
        let mut metrics = vec![processor(target.as_i64().unwrap_or_default())];
        metrics.extend(list(&scaler, &["spec", "metrics"]));
        set_at(&mut scaler, &["spec", "metrics"], Value::Array(metrics));
    }
    if let Some(current) = remove_at(&mut scaler, &["status", "currentCPUUtilizationPercentage"]) {
        let metric = json!({
            "type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}},
        });
        let mut metrics = vec![metric];
        metrics.extend(list(&scaler, &["status", "currentMetrics"]));
        set_at(&mut scaler, &["status", "currentMetrics"], Value::Array(metrics));
    }
    scaler
}

/// From v2 to v1.
pub(crate) fn from_v2(mut scaler: Value) -> Value {
    let (target, metrics) = split(list(&scaler, &["spec", "metrics"]), &["resource", "target", "averageUtilization"]);
    let (current, current_metrics) =
        split(list(&scaler, &["status", "currentMetrics"]), &["resource", "current", "averageUtilization"]);
    for (path, rest) in [(CARRIED[0].0, metrics), (CARRIED[2].0, current_metrics)] {
        remove_at(&mut scaler, path);
        if !rest.is_empty() {
            set_at(&mut scaler, path, Value::Array(rest));
        }
    }
    for (path, annotation) in CARRIED {
        if let Some(carried) = remove_at(&mut scaler, path)
            && let Some(annotations) = object_at(&mut scaler, &["metadata", "annotations"])
        {
            annotations.insert(annotation.to_owned(), Value::from(carried.to_string()));
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

/// The first metric of the processor's utilization, as its number, and the others.
fn split(metrics: Vec<Value>, path: &[&str]) -> (Option<Value>, Vec<Value>) {
    let mut found = None;
    let mut others = Vec::new();
    for metric in metrics {
        let is_processor = str_at(&metric, &["resource", "name"]) == Some("cpu");
        match at(&metric, path).filter(|_| is_processor && found.is_none()) {
            Some(number) => found = Some(number.clone()),
            None => others.push(metric),
        }
    }
    (found, others)
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
    fn nothing_is_lost_in_the_older_version() {
        let scaler = json!({
            "metadata": {"name": "h"},
            "spec": {
                "metrics": [
                    processor(50),
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
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
}
