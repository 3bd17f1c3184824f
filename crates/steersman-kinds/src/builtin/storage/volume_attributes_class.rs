//! VolumeAttributesClass: properties of volumes that can be changed while the volumes are in use.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::storage::storage_class::{parameters, provisioner};
use crate::strategy::Rules;

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
    validate: &[
        Rule::new("driverName", Check::Unchanged("updates to driverName are forbidden.")),
        Rule::new("parameters", Check::Unchanged("updates to parameters are forbidden.")),
        Rule::new("driverName", Check::By(provisioner)).and_required(""),
        Rule::new("parameters", Check::By(parameters)),
        Rule::required("parameters", "must contain at least one key/value pair"),
    ],
    ..Kind::CLUSTER
};
