//! PriorityClass: a named priority of pods. The admission plugin `Priority` applies it to pods.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;

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
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
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
    rules::one_of(&class.field("preemptionPolicy"), &["Never", "PreemptLowerPriority"], errors);
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

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (class, old) = (Field::root(request.new), Field::root(request.old));
    if class.field("value").value != old.field("value").value {
        errors.push(class.field("value").forbidden("may not be changed in an update."));
    }
    rules::immutable(&class.field("preemptionPolicy"), &old.field("preemptionPolicy"), errors);
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
