//! ControllerRevision: a former state of a controller's template, for rollbacks.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};

pub const KIND: Kind = Kind {
    group: "apps",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    versions: &[Version {
        definition: "io.k8s.api.apps.v1.ControllerRevision",
        columns: &[
            Column::NAME,
            Column::text("Controller", "Whose template it was."),
            Column::text("Revision", "The place in the order of the templates."),
            Column::AGE,
        ],
        cells,
        ..Version::V1
    }],
    validate: &[
        Rule::new("data", Check::By(data)).and_present("data is mandatory"),
        Rule::new("revision", Check::NotNegative),
        Rule::new("data", Check::Immutable),
    ],
    ..Kind::NAMESPACED
};

fn data(data: &Field<'_>, errors: &mut Vec<Error>) {
    if !data.value.is_object() {
        errors.push(data.required("data must be a valid JSON object"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(object),
        Value::from(controller(object).unwrap_or_else(|| NONE.to_owned())),
        Value::from(cells::number(object, &["revision"])),
        cells::age(object, now),
    ]
}

/// `statefulset.apps/web`.
fn controller(object: &Value) -> Option<String> {
    let owners = at(object, &["metadata", "ownerReferences"])?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == Value::Bool(true))?;
    let (kind, name) = (str_at(owner, &["kind"])?.to_lowercase(), str_at(owner, &["name"])?);
    Some(match str_at(owner, &["apiVersion"])?.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    })
}
