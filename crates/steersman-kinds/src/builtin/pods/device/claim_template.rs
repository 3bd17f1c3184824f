//! ResourceClaimTemplate: the template of claims that are created for pods.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Version};
use crate::builtin::pods::device::{GROUP, request};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::place::Place;
use crate::strategy::Rules;
use steersman_machinery::field::Error;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    rules: Rules { returns_deleted: true, ..RULES },
    singular: "resourceclaimtemplate",
    versions: &[Version {
        definition: "io.k8s.api.resource.v1.ResourceClaimTemplate",
        columns: &[Column::NAME, Column::AGE],
        cells: |template, now| vec![cells::name(template), cells::age(template, now)],
        default: |template| request::default(template.pointer_mut("/spec/spec")),
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta2",
        definition: "io.k8s.api.resource.v1beta2.ResourceClaimTemplate",
        deprecation: "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
    }],
    validate_create: |request, faults| validate(&Place::root(request.new), faults),
    validate_update: |request, faults| {
        let (template, old) = (Place::root(request.new), Place::root(request.old));
        validate(&template, faults);
        rules::immutable(&template.field("spec"), &old.field("spec"), faults);
    },
    ..Kind::NAMESPACED
};

/// Claims only inherit labels and annotations from the template's metadata.
fn validate(template: &Place<'_>, faults: &mut Vec<Error>) {
    let spec = template.field("spec");
    let metadata = spec.field("metadata");
    for (field, value) in metadata.value.as_object().into_iter().flatten() {
        let place = metadata.field(field);
        match field.as_str() {
            "labels" => rules::labels(&place, faults),
            "annotations" => rules::annotations(&place, faults),
            _ if place.is_empty() || value == 0 => {}
            _ => faults.push(place.forbidden("cannot be set")),
        }
    }
    request::validate(&spec.field("spec"), faults);
}
