//! ControllerRevision: a former state of a controller's template, for rollbacks.

use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
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
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::NAMESPACED
};

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    if object.field("data").is_absent() {
        errors.push(object.field("data").required("data is mandatory"));
    }
    rules::not_negative(&object.field("revision"), errors);
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (object, old) = (Field::root(request.new), Field::root(request.old));
    validate(&object, errors);
    rules::immutable(&object.field("data"), &old.field("data"), errors);
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
