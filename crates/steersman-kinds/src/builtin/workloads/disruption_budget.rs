//! PodDisruptionBudget: the number of pods that must stay available during evictions.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;

pub const KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    versions: &[Version {
        definition: "io.k8s.api.policy.v1.PodDisruptionBudget",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Min Available", "How many pods must stay."),
            Column::text("Max Unavailable", "How many pods may be away."),
            Column::integer("Allowed Disruptions", "How many pods may be sent away now."),
            Column::AGE,
        ],
        cells,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    rules: Rules {
        updates_unconditionally: false,
        requires_qualified_finalizers: false,
        validates_generate_name_on_update: false,
        ..RULES
    },
    validate_create: validate,
    validate_update: validate,
    validate_status,
    ..Kind::NAMESPACED
};

/// Whether a budget selects a pod.
pub fn is_about(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = at(budget, &["spec", "selector"]).and_then(selector::parse) else { return false };
    selector::matches(&selector, at(pod, &["metadata", "labels"]).unwrap_or(&Value::Null))
}

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let spec = Field::root(request.new).field("spec");
    let (least, most) = (spec.field("minAvailable"), spec.field("maxUnavailable"));
    if least.is_present() && most.is_present() {
        errors.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
    }
    for amount in [least, most].iter().filter(|amount| amount.is_present()) {
        int_or_percent::validate(amount, errors);
        int_or_percent::at_most_all(amount, errors);
    }
    selector::validate(&spec.field("selector"), errors);
    let policy = spec.field("unhealthyPodEvictionPolicy");
    rules::one_of_if_present(&policy, &["AlwaysAllow", "IfHealthyBudget"], errors);
}

fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let status = Field::root(request.new).field("status");
    rules::conditions(&status.field("conditions"), errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        rules::not_negative(&status.field(field), errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let amount = |field: &str| match at(object, &["spec", field]) {
        Some(Value::String(text)) => Value::from(text.as_str()),
        Some(Value::Number(number)) => Value::from(number.to_string()),
        _ => Value::from("N/A"),
    };
    vec![
        cells::name(object),
        amount("minAvailable"),
        amount("maxUnavailable"),
        Value::from(cells::number(object, &["status", "disruptionsAllowed"])),
        cells::age(object, now),
    ]
}
