//! CSINode: the storage drivers that are installed on a node.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::storage::csi::driver_name;
use crate::strategy::Rules;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::value::remove_at;

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.CSINode",
        columns: &[Column::NAME, Column::integer("Drivers", "The number of drivers on the node."), Column::AGE],
        cells: |node, now| vec![cells::name(node), cells::count(node, &[&["spec", "drivers"]]), cells::age(node, now)],
        ..Version::V1
    }],
    rules: Rules { updates_unconditionally: false, returns_deleted: true, ..RULES },
    validate: &[
        Rule::new("spec.drivers[]", Check::Rules(DRIVER)),
        Rule::new("spec.drivers", Check::Change(unchanged)).on_update(),
    ],
    ..Kind::CLUSTER
};

const DRIVER: &[Rule] = &[
    Rule::new("name", Check::By(driver_name)),
    Rule::required("nodeID", ""),
    Rule::new("nodeID", Check::Text(|id| id.len() <= 256, "must be 256 characters or less")),
    Rule::new("allocatable.count", Check::NotNegative),
    Rule::new("name", Check::Unique),
    Rule::new("", Check::By(topology_keys)),
];

fn topology_keys(driver: &Field<'_>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for key in driver.field("topologyKeys").items() {
        // Upstream reports the driver, not the key.
        let key = Field { path: driver.path.clone(), ..key };
        rules::required(&key, errors);
        if !seen.insert(key.text()) {
            errors.push(key.duplicate());
        }
        rules::named(&key, name::qualified, errors);
    }
}

/// Drivers may be added and removed; of an existing one, only its number of volumes may change.
fn unchanged(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let fixed = |driver: &Field<'_>| {
        let mut fixed = driver.value.clone();
        remove_at(&mut fixed, &["allocatable"]);
        fixed
    };
    for before in old.items() {
        let same = new.items().filter(|driver| driver.field("name").value == before.field("name").value);
        for driver in same.filter(|driver| fixed(driver) != fixed(&before)) {
            errors.push(Error::invalid(&new.path, driver.value.clone(), rules::IMMUTABLE));
        }
    }
}
