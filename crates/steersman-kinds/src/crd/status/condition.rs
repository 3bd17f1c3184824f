//! Conditions of definitions.

use crate::crd::{list, text};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::object_at;

/// A condition to be set.
#[derive(Debug)]
pub(in crate::crd) struct Condition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// The status of a condition to be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::crd) enum ConditionStatus {
    False,
    True,
}

impl Condition {
    pub(in crate::crd) fn new(
        kind: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        let status = match status {
            ConditionStatus::False => "False",
            ConditionStatus::True => "True",
        };
        Condition { kind, status, reason, message: message.into() }
    }
}

/// Whether a condition is present and true.
pub(in crate::crd) fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

/// Whether a condition of a status is present and false.
pub(in crate::crd) fn is_false(status: &Value, kind: &str) -> bool {
    let mut conditions = list(status, &["conditions"]).iter();
    conditions.any(|condition| text(condition, &["type"]) == kind && text(condition, &["status"]) == "False")
}

/// The condition of a kind.
pub(in crate::crd) fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    list(definition, &["status", "conditions"]).iter().find(|condition| text(condition, &["type"]) == kind)
}

/// Sets a condition of a status; the time of the last change stays if the condition's status has not changed.
pub(in crate::crd) fn set(status: &mut Value, condition: &Condition, now: Timestamp) {
    let Some(status) = object_at(status, &[]) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let place = conditions.iter().position(|have| text(have, &["type"]) == condition.kind);
    let since = place
        .map(|place| &conditions[place])
        .filter(|have| text(have, &["status"]) == condition.status)
        .and_then(|have| have.get("lastTransitionTime").filter(|time| !time.is_null()).cloned());
    let new = json!({
        "type": condition.kind,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(time(now))),
    });
    match place {
        Some(place) => conditions[place] = new,
        None => conditions.push(new),
    }
}

/// Removes a condition from a status.
pub(in crate::crd) fn remove(status: &mut Value, kind: &str) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| text(condition, &["type"]) != kind);
    }
}

/// A time as metadata prints it.
pub(in crate::crd) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
