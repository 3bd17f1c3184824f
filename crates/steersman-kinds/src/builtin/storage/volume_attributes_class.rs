//! VolumeAttributesClass: properties of volumes that can be changed while the volumes are in use.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Request, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
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
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(class: &Field<'_>, errors: &mut Vec<Error>) {
    provisioner(&class.field("driverName"), errors);
    let given = class.field("parameters");
    parameters(&given, errors);
    if given.is_empty() {
        errors.push(given.required("must contain at least one key/value pair"));
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (class, old) = (Field::root(request.new), Field::root(request.old));
    for name in ["driverName", "parameters"] {
        let field = class.field(name);
        if field.value != old.field(name).value {
            errors.push(field.forbidden(format!("updates to {name} are forbidden.")));
        }
    }
    validate(&class, errors);
}
