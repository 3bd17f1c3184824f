//! PodDisruptionBudget: the number of pods that must stay available during evictions.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::int_or_percent;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;
use steersman_machinery::{Value, name};

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
        validates_generate_name: false,
        validates_generate_name_on_update: false,
        ..RULES
    },
    name_faults: name::path_segment,
    validate: &[
        Rule::new("spec", Check::By(one_amount)),
        Rule::new("spec.minAvailable", Check::By(amount)).if_present(),
        Rule::new("spec.maxUnavailable", Check::By(amount)).if_present(),
        Rule::new("spec.selector", Check::By(selector::validate)),
        Rule::new("spec.unhealthyPodEvictionPolicy", Check::OneOf(&["AlwaysAllow", "IfHealthyBudget"])).if_present(),
    ],
    validate_status: &[
        Rule::new("status.conditions[]", Check::Rules(rules::CONDITION)),
        Rule::new("status.disruptionsAllowed", Check::NotNegative),
        Rule::new("status.currentHealthy", Check::NotNegative),
        Rule::new("status.desiredHealthy", Check::NotNegative),
        Rule::new("status.expectedPods", Check::NotNegative),
    ],
    ..Kind::NAMESPACED
};

/// Whether a budget selects a pod.
pub fn is_about(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = at(budget, &["spec", "selector"]).and_then(selector::parse) else { return false };
    selector::matches(&selector, at(pod, &["metadata", "labels"]).unwrap_or(&Value::Null))
}

fn one_amount(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("minAvailable").is_present() && spec.field("maxUnavailable").is_present() {
        errors.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
    }
}

fn amount(amount: &Field<'_>, errors: &mut Vec<Error>) {
    int_or_percent::validate(amount, errors);
    int_or_percent::at_most_all(amount, errors);
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
