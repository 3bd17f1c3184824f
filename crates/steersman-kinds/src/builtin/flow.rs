//! The kinds that say how requests are queued when there are many: flow schemas and priority levels.

use crate::builtin::place::Place;
use crate::builtin::rules;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;

pub mod bootstrap;
pub mod level;
pub mod schema;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// What a writer of the status leaves alone.
const STATUS_LEAVES: &[&[&str]] = &[
    &["spec"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "labels"],
    &["metadata", "ownerReferences"],
];

/// Of an object: the conditions of its status have types, each once.
fn conditions(object: &Place<'_>, faults: &mut Vec<Error>) {
    let mut types = BTreeSet::new();
    for condition in object.at(&["status", "conditions"]).items() {
        let kind = condition.field("type");
        if !types.insert(kind.text()) {
            faults.push(Error::duplicate(&kind.path, kind.text().into()));
        }
        rules::required(&kind, faults);
    }
}
