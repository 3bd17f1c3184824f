//! The annotations of autoscaling/v1: metrics in the form of that version, and the behavior in the form in which
//! kube-apiserver writes it, with its own field names. Names and their order are upstream's, since clients compare the
//! texts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use steersman_machinery::Value;

/// A metric of the spec.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metric {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pods: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container_resource: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external: Option<Source>,
}

/// The measured value, and its target or current amount. Each type of metric has some of the fields.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Described>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_name: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_utilization: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_utilization: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Value>,
}

/// The selector of a metric.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    match_labels: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    match_expressions: Option<Value>,
}

/// The measured object.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    name: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_version: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Behavior {
    #[serde(alias = "scaleUp", default)]
    scale_up: Option<Rules>,
    #[serde(alias = "scaleDown", default)]
    scale_down: Option<Rules>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Rules {
    #[serde(alias = "stabilizationWindowSeconds", default)]
    stabilization_window_seconds: Option<Value>,
    #[serde(alias = "selectPolicy", default)]
    select_policy: Option<Value>,
    #[serde(alias = "policies", default)]
    policies: Option<Vec<Policy>>,
    #[serde(alias = "tolerance", default)]
    tolerance: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Policy {
    #[serde(rename = "Type", alias = "type", default)]
    kind: Value,
    #[serde(alias = "value", default)]
    value: Value,
    #[serde(alias = "periodSeconds", default)]
    period_seconds: Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: Value,
    status: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Value>,
}

/// Whether metrics have targets or current amounts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Amounts {
    Wanted,
    Current,
}

/// The annotation for metrics of v2.
pub(super) fn metrics_text(metrics: &Value, amounts: Amounts) -> Option<String> {
    let metrics: Vec<Metric> = metrics.as_array()?.iter().map(|metric| older(metric, amounts)).collect();
    serde_json::to_string(&metrics).ok()
}

/// The metrics of v2 from such an annotation.
pub(super) fn metrics(text: &str, amounts: Amounts) -> Option<Value> {
    let metrics: Vec<Metric> = serde_json::from_str(text).ok()?;
    Some(metrics.into_iter().map(|metric| newer(metric, amounts)).collect())
}

pub(super) fn behavior_text(behavior: &Value) -> Option<String> {
    serde_json::to_string(&serde_json::from_value::<Behavior>(behavior.clone()).ok()?).ok()
}

pub(super) fn behavior(text: &str) -> Option<Value> {
    let behavior: Behavior = serde_json::from_str(text).ok()?;
    let rules = |rules: Rules| {
        let policies = rules.policies.map(|policies| {
            let policy = |policy: Policy| {
                json!({"type": policy.kind, "value": policy.value, "periodSeconds": policy.period_seconds})
            };
            policies.into_iter().map(policy).collect::<Value>()
        });
        fields([
            ("stabilizationWindowSeconds", rules.stabilization_window_seconds),
            ("selectPolicy", rules.select_policy),
            ("policies", policies),
            ("tolerance", rules.tolerance),
        ])
    };
    Some(fields([("scaleUp", behavior.scale_up.map(rules)), ("scaleDown", behavior.scale_down.map(rules))]))
}

pub(super) fn conditions_text(conditions: &Value) -> Option<String> {
    serde_json::to_string(&serde_json::from_value::<Vec<Condition>>(conditions.clone()).ok()?).ok()
}

pub(super) fn conditions(text: &str) -> Option<Value> {
    serde_json::to_value(serde_json::from_str::<Vec<Condition>>(text).ok()?).ok()
}

fn older(metric: &Value, amounts: Amounts) -> Metric {
    let kind = metric["type"].as_str().unwrap_or_default().to_owned();
    let source = &metric[super::convert::source_of(&kind)];
    let some = |value: &Value| (!value.is_null()).then(|| value.clone());
    let amount = &source[match amounts {
        Amounts::Wanted => "target",
        Amounts::Current => "current",
    }];
    let (value, average, utilization) =
        (some(&amount["value"]), some(&amount["averageValue"]), some(&amount["averageUtilization"]));
    let (name, selector) = (some(&source["metric"]["name"]), some(&source["metric"]["selector"]));
    let selector = selector.and_then(|selector| serde_json::from_value(selector).ok());
    // An absent amount that v1 always writes is zero.
    let nothing = || Some(json!("0"));
    let made = match kind.as_str() {
        "Object" => {
            let described = serde_json::from_value(source["describedObject"].clone()).ok();
            let made =
                Source { target: described, metric_name: name, selector, average_value: average, ..Source::default() };
            match amounts {
                Amounts::Wanted => Source { target_value: value.or_else(nothing), ..made },
                Amounts::Current => Source { current_value: value.or_else(nothing), ..made },
            }
        }
        "Pods" => {
            let made = Source { metric_name: name, selector, ..Source::default() };
            match amounts {
                Amounts::Wanted => Source { target_average_value: average.or_else(nothing), ..made },
                Amounts::Current => Source { current_average_value: average.or_else(nothing), ..made },
            }
        }
        "External" => {
            let made = Source { metric_name: name, metric_selector: selector, ..Source::default() };
            match amounts {
                Amounts::Wanted => Source { target_value: value, target_average_value: average, ..made },
                Amounts::Current => {
                    Source { current_value: value.or_else(nothing), current_average_value: average, ..made }
                }
            }
        }
        _ => {
            let made =
                Source { name: some(&source["name"]), container: some(&source["container"]), ..Source::default() };
            match amounts {
                Amounts::Wanted => {
                    Source { target_average_utilization: utilization, target_average_value: average, ..made }
                }
                Amounts::Current => Source {
                    current_average_utilization: utilization,
                    current_average_value: average.or_else(nothing),
                    ..made
                },
            }
        }
    };
    let mut older = Metric { kind, object: None, pods: None, resource: None, container_resource: None, external: None };
    let field = match older.kind.as_str() {
        "Object" => &mut older.object,
        "Pods" => &mut older.pods,
        "External" => &mut older.external,
        "ContainerResource" => &mut older.container_resource,
        _ => &mut older.resource,
    };
    *field = Some(made);
    older
}

fn newer(metric: Metric, amounts: Amounts) -> Value {
    let source = metric.object.or(metric.pods).or(metric.resource).or(metric.container_resource).or(metric.external);
    let source = source.unwrap_or_default();
    let (value, average, utilization) = match amounts {
        Amounts::Wanted => (source.target_value, source.target_average_value, source.target_average_utilization),
        Amounts::Current => (source.current_value, source.current_average_value, source.current_average_utilization),
    };
    let average = average.or(source.average_value);
    let is_wanted = amounts == Amounts::Wanted;
    let type_of_target = match metric.kind.as_str() {
        "Object" if average.is_none() => "Value",
        "External" if value.is_some() => "Value",
        "Object" | "External" | "Pods" => "AverageValue",
        _ if utilization.is_some() => "Utilization",
        _ => "AverageValue",
    };
    let amount = fields([
        ("type", is_wanted.then(|| type_of_target.into())),
        ("value", value),
        ("averageValue", average),
        ("averageUtilization", utilization),
    ]);
    let name = source.metric_name;
    let selector = source.selector.or(source.metric_selector);
    let selector = selector.and_then(|selector| serde_json::to_value(selector).ok());
    let measured = name.map(|name| fields([("name", Some(name)), ("selector", selector)]));
    let made = fields([
        ("describedObject", source.target.and_then(|described| serde_json::to_value(described).ok())),
        ("metric", measured),
        ("name", source.name),
        ("container", source.container),
        (if is_wanted { "target" } else { "current" }, Some(amount)),
    ]);
    let field = super::convert::source_of(&metric.kind);
    json!({"type": metric.kind, field: made})
}

/// An object of the fields that are present.
fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.filter(|value| !value.is_null())?)));
    Value::Object(Map::from_iter(there))
}
