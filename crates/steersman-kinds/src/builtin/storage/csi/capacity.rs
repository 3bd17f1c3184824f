//! CSIStorageCapacity: the available storage of a class in a part of the cluster.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
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
    validate: &[
        Rule::new("nodeTopology", Check::By(selector::validate)),
        Rule::new("storageClassName", Check::Format(name::dns1123_subdomain)),
        Rule::new("capacity", Check::NotNegativeQuantity),
        Rule::new("nodeTopology", Check::Immutable),
        Rule::new("storageClassName", Check::Immutable),
    ],
    ..Kind::NAMESPACED
};

/// Upstream has no specific columns for this kind.
fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), cells::text(object, &["metadata", "creationTimestamp"])]
}
