//! PriorityClass: a name for how much pods matter. What pods get from it is the admission plugin `Priority`'s to say.

use crate::builtin::cells;
use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::place::Place;
use crate::builtin::pod::defaults::unless_set;
use crate::builtin::rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;

/// What is above is for the cluster's own parts.
const VALUE_MAX: i64 = 1_000_000_000;

pub(crate) const KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
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
    validate_create: |request, faults| validate(&Place::root(request.new), faults),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(class: &Place<'_>, faults: &mut Vec<Error>) {
    let (name, value) = (class.at(&["metadata", "name"]), class.field("value"));
    if name.text().starts_with("system-") {
        let why = "priority class names with 'system-' prefix are reserved for system use only";
        faults.push(name.forbidden(why));
    } else if value.number().is_some_and(|value| value > VALUE_MAX) {
        faults.push(value.forbidden(format!("maximum allowed value of a user defined priority is {VALUE_MAX}")));
    }
    rules::one_of(&class.field("preemptionPolicy"), &["Never", "PreemptLowerPriority"], faults);
}

fn validate_update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let (class, old) = (Place::root(request.new), Place::root(request.old));
    if class.field("value").value != old.field("value").value {
        faults.push(class.field("value").forbidden("may not be changed in an update."));
    }
    rules::immutable(&class.field("preemptionPolicy"), &old.field("preemptionPolicy"), faults);
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
