//! VolumeAttributesClass: properties of volumes that can be changed while the volumes are in use.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Request, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::place::Place;
use crate::builtin::storage::storage_class::{parameters, provisioner};
use crate::strategy::Rules;
use steersman_machinery::field::Error;

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    rules: Rules { returns_deleted: true, ..RULES },
    singular: "volumeattributesclass",
    short_names: &["vac"],
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.VolumeAttributesClass",
        columns: &[Column::NAME, Column::text("DriverName", "The driver that knows the properties."), Column::AGE],
        cells: |class, now| vec![cells::name(class), cells::text(class, &["driverName"]), cells::age(class, now)],
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta1",
        definition: "io.k8s.api.storage.v1beta1.VolumeAttributesClass",
        deprecation: "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
    }],
    validate_create: |request, faults| validate(&Place::root(request.new), faults),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(class: &Place<'_>, faults: &mut Vec<Error>) {
    provisioner(&class.field("driverName"), faults);
    let given = class.field("parameters");
    parameters(&given, faults);
    if given.is_empty() {
        faults.push(given.required("must contain at least one key/value pair"));
    }
}

fn validate_update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let (class, old) = (Place::root(request.new), Place::root(request.old));
    for field in ["driverName", "parameters"] {
        let place = class.field(field);
        if place.value != old.field(field).value {
            faults.push(place.forbidden(format!("updates to {field} are forbidden.")));
        }
    }
    validate(&class, faults);
}
