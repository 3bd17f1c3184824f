//! The row of an autoscaler in a table.

use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::workloads::autoscaler::convert::source_of;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The row of an autoscaler in the form of v2.
pub(super) fn of_v2(scaler: &Value, now: Timestamp) -> Vec<Value> {
    let target = |field: &str| str_at(scaler, &["spec", "scaleTargetRef", field]).unwrap_or_default();
    let least = at(scaler, &["spec", "minReplicas"]).and_then(Value::as_i64);
    vec![
        cells::name(scaler),
        Value::from(format!("{}/{}", target("kind"), target("name"))),
        Value::from(targets(scaler)),
        Value::from(least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string())),
        Value::from(cells::number(scaler, &["spec", "maxReplicas"])),
        Value::from(cells::number(scaler, &["status", "currentReplicas"])),
        cells::age(scaler, now),
    ]
}

/// The maximum number of metrics that are shown; further ones are only counted.
const SHOWN_MAX: usize = 2;

/// `cpu: 40%/80%, 12/20`.
fn targets(scaler: &Value) -> String {
    let list = |path: &[&str]| at(scaler, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (metrics, currents) = (list(&["spec", "metrics"]), list(&["status", "currentMetrics"]));
    if metrics.is_empty() {
        return NONE.to_owned();
    }
    let texts = metrics.iter().enumerate().take(SHOWN_MAX).map(|(index, metric)| text(metric, currents.get(index)));
    let shown = texts.collect::<Vec<String>>().join(", ");
    match metrics.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn text(metric: &Value, current: Option<&Value>) -> String {
    let source = source_of(str_at(metric, &["type"]).unwrap_or_default());
    let wanted = at(metric, &[source, "target"]).unwrap_or(&Value::Null);
    let current = current.and_then(|current| at(current, &[source, "current"])).unwrap_or(&Value::Null);
    let amount = |of: &Value, field: &str| match of.get(field) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(format!("{number}%")),
        _ => None,
    };
    let (field, mark) = if source == "pods" {
        ("averageValue", "")
    } else if wanted.get("averageUtilization").is_some_and(Value::is_number) {
        ("averageUtilization", "")
    } else if wanted.get("averageValue").is_some_and(Value::is_string) {
        ("averageValue", if matches!(source, "external" | "object") { " (avg)" } else { "" })
    } else {
        ("value", "")
    };
    let pair = format!(
        "{}/{}{mark}",
        amount(current, field).unwrap_or_else(|| "<unknown>".to_owned()),
        amount(wanted, field).unwrap_or_else(|| "<auto>".to_owned()),
    );
    match str_at(metric, &[source, "name"]) {
        Some(name) => format!("{name}: {pair}"),
        None => pair,
    }
}
