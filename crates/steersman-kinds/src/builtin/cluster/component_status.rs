//! ComponentStatus: whether a part of the control plane is healthy. Deprecated, and never stored.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules::cells;
use crate::catalog::{Handling, Verb};
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

pub const KIND: Kind = Kind {
    kind: "ComponentStatus",
    plural: "componentstatuses",
    singular: "componentstatus",
    short_names: &["cs"],
    verbs: &[Verb::Get, Verb::List],
    handling: Handling::Computed,
    versions: &[Version {
        definition: "io.k8s.api.core.v1.ComponentStatus",
        deprecation: "v1 ComponentStatus is deprecated in v1.19+",
        columns: &[
            Column::NAME,
            Column::text("Status", "Whether it is well."),
            Column::text("Message", "What it says."),
            Column::text("Error", "What is wrong with it."),
        ],
        cells: |status, now| cells_of(status, now).to_vec(),
        ..Version::V1
    }],
    ..Kind::CLUSTER
};

fn cells_of(status: &Value, _now: Timestamp) -> [Value; 4] {
    let mut conditions = at(status, &["conditions"]).and_then(Value::as_array).into_iter().flatten();
    let healthy = conditions.find(|condition| str_at(condition, &["type"]) == Some("Healthy"));
    let text = |field: &str| healthy.and_then(|condition| str_at(condition, &[field])).unwrap_or_default();
    let word = match (healthy, text("status")) {
        (None, _) => "Unknown",
        (Some(_), "True") => "Healthy",
        (Some(_), _) => "Unhealthy",
    };
    [cells::name(status), Value::from(word), Value::from(text("message")), Value::from(text("error"))]
}
