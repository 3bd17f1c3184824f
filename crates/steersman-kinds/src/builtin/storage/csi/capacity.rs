//! CSIStorageCapacity: the available storage of a class in a part of the cluster.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.CSIStorageCapacity",
        columns: &[Column::NAME, Column::date("Created At", "When it was created.")],
        cells,
        ..Version::V1
    }],
    rules: Rules { updates_unconditionally: false, ..RULES },
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::NAMESPACED
};

fn validate(capacity: &Field<'_>, errors: &mut Vec<Error>) {
    selector::validate(&capacity.field("nodeTopology"), errors);
    let class = capacity.field("storageClassName");
    errors.extend(name::dns1123_subdomain(class.text()).into_iter().map(|detail| {
        // An absent name is also printed as a string.
        Error::invalid(&class.path, class.text(), detail)
    }));
    rules::not_negative_quantity(&capacity.field("capacity"), errors);
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (new, old) = (Field::root(request.new), Field::root(request.old));
    validate(&new, errors);
    rules::immutable(&new.field("nodeTopology"), &old.field("nodeTopology"), errors);
    rules::immutable(&new.field("storageClassName"), &old.field("storageClassName"), errors);
}

/// Upstream has no specific columns for this kind.
fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), cells::text(object, &["metadata", "creationTimestamp"])]
}
