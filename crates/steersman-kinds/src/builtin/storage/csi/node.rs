//! CSINode: the storage drivers that are installed on a node.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::storage::csi::driver_name;
use crate::strategy::Rules;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::value::remove_at;

const NODE_ID_LENGTH_MAX: usize = 256;

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
    validate_create: |request, errors| validate(&Field::root(request.new).at(&["spec", "drivers"]), errors),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(drivers: &Field<'_>, errors: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for driver in drivers.items() {
        let (name, id) = (driver.field("name"), driver.field("nodeID"));
        driver_name(&name, errors);
        rules::required(&id, errors);
        if id.text().len() > NODE_ID_LENGTH_MAX {
            errors.push(id.invalid(format!("must be {NODE_ID_LENGTH_MAX} characters or less")));
        }
        rules::not_negative(&driver.at(&["allocatable", "count"]), errors);
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        topology_keys(&driver, errors);
    }
}

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

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let drivers = |node| Field::root(node).at(&["spec", "drivers"]);
    let (new, old) = (drivers(request.new), drivers(request.old));
    validate(&new, errors);
    // Drivers may be added and removed; of an existing one, only its number of volumes may change.
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
