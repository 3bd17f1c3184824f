//! The kinds of API priority and fairness: flow schemas and priority levels.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;

pub mod bootstrap;
pub mod level;
pub mod schema;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The reset fields of `/status`.
const STATUS_LEAVES: &[&[&str]] = &[
    &["spec"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "labels"],
    &["metadata", "ownerReferences"],
];

/// The conditions of the status must have unique types.
fn conditions(object: &Field<'_>, errors: &mut Vec<Error>) {
    let mut types = BTreeSet::new();
    for condition in object.at(&["status", "conditions"]).items() {
        let kind = condition.field("type");
        if !types.insert(kind.text()) {
            errors.push(Error::duplicate(&kind.path, kind.text().into()));
        }
        rules::required(&kind, errors);
    }
}
