//! DeviceClass: a named class of devices that claims can request.

use crate::builtin::kind::{Alias, Column, Compiles, Kind, RULES, Version};
use crate::builtin::pods::device::selector::{SELECTOR, SELECTORS_MAX};
use crate::builtin::pods::device::{CONFIG_MAX, CONFIGURATION, GROUP};
use crate::builtin::rules::cells;
use crate::builtin::rules::resource_name;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "DeviceClass",
    plural: "deviceclasses",
    rules: Rules {
        validates_generate_name: false,
        validates_generate_name_on_update: false,
        returns_deleted: true,
        ..RULES
    },
    singular: "deviceclass",
    versions: &[Version {
        definition: "io.k8s.api.resource.v1.DeviceClass",
        columns: &[Column::NAME, Column::AGE],
        cells: |class, now| vec![cells::name(class), cells::age(class, now)],
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta2",
        definition: "io.k8s.api.resource.v1beta2.DeviceClass",
        deprecation: "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
    }],
    generation: &[&["spec"]],
    compiles: Compiles::Always,
    validate: &[
        Rule::new("spec.selectors[]", Check::Rules(SELECTOR)).up_to(SELECTORS_MAX),
        Rule::new("spec.config[]", Check::Rules(CONFIGURATION)).up_to(CONFIG_MAX),
        Rule::new(
            "spec.extendedResourceName",
            Check::Text(resource_name::is_extended, "must be a valid extended resource name"),
        )
        .if_present(),
    ],
    ..Kind::CLUSTER
};
