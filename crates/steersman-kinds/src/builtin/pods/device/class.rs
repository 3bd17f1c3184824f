//! DeviceClass: a named class of devices that claims can request.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Request, Version};
use crate::builtin::pods::device::selector::selectors;
use crate::builtin::pods::device::{CONFIG_MAX, GROUP, configuration, each};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use crate::strategy::Rules;
use steersman_machinery::field::Error;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "DeviceClass",
    plural: "deviceclasses",
    rules: Rules { validates_generate_name_on_update: false, returns_deleted: true, ..RULES },
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
    validate_create: validate,
    validate_update: validate,
    ..Kind::CLUSTER
};

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let spec = Field::root(request.new).field("spec");
    selectors(&spec.field("selectors"), errors);
    each(&spec.field("config"), CONFIG_MAX, errors, configuration);
    let extended = spec.field("extendedResourceName");
    if extended.is_present() && !resource_name::is_extended(extended.text()) {
        errors.push(extended.invalid("must be a valid extended resource name"));
    }
}
