//! PriorityClass: a named priority of pods. The admission plugin `Priority` applies it to pods.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, unless_set};

/// Higher values are reserved for system classes.
const VALUE_MAX: i64 = 1_000_000_000;

/// The system classes, which every cluster has: name, value and description.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub const KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "priorityclass",
    short_names: &["pc"],
    versions: &[Version {
        definition: "io.k8s.api.scheduling.v1.PriorityClass",
        columns: &[
            Column::NAME,
            Column::integer("Value", "The priority of its pods."),
            Column::boolean("Global-Default", "Whether it is that of pods that name none."),
            Column::AGE,
            Column::text("PreemptionPolicy", "Whether its pods may make room for themselves."),
        ],
        cells,
        default: |class| {
            if let Some(fields) = class.as_object_mut() {
                unless_set(fields, "preemptionPolicy", "PreemptLowerPriority");
            }
        },
        ..Version::V1
    }],
    generation: &[&["value"]],
    validate: &[
        Rule::new("", Check::By(validate)).on_create(),
        Rule::new("preemptionPolicy", Check::OneOf(&["Never", "PreemptLowerPriority"])).on_create(),
        Rule::new("value", Check::Unchanged("may not be changed in an update.")),
        Rule::new("preemptionPolicy", Check::Immutable),
    ],
    ..Kind::CLUSTER
};

fn validate(class: &Field<'_>, errors: &mut Vec<Error>) {
    let (name, value) = (class.at(&["metadata", "name"]), class.field("value"));
    if name.text().starts_with("system-") {
        if let Err(error) = known_system_class(class) {
            let why = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.push(name.forbidden(format!("{why}{error}")));
        }
    } else if value.number().is_some_and(|value| value > VALUE_MAX) {
        errors.push(value.forbidden(format!("maximum allowed value of a user defined priority is {VALUE_MAX}")));
    }
}

/// Checks that the class is a system class, with the right value.
fn known_system_class(class: &Field<'_>) -> Result<(), String> {
    let name = class.at(&["metadata", "name"]).text();
    let Some((_, value, _)) = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    if class.field("value").number() != Some(*value) {
        return Err(format!("value of {name} PriorityClass must be {value}"));
    }
    if class.field("globalDefault").flag() {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}

fn cells(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(class),
        Value::from(cells::number(class, &["value"])),
        at(class, &["globalDefault"]).cloned().unwrap_or(Value::Bool(false)),
        cells::age(class, now),
        cells::text(class, &["preemptionPolicy"]),
    ]
}
