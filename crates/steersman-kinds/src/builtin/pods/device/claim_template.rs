//! ResourceClaimTemplate: the template of claims that are created for pods.

use crate::builtin::kind::{Alias, Column, Kind, RULES, Version};
use crate::builtin::pods::device::{GROUP, request};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
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
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update: |request, errors| {
        let (template, old) = (Field::root(request.new), Field::root(request.old));
        validate(&template, errors);
        rules::immutable(&template.field("spec"), &old.field("spec"), errors);
    },
    ..Kind::NAMESPACED
};

/// Claims only inherit labels and annotations from the template's metadata.
fn validate(template: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = template.field("spec");
    let metadata = spec.field("metadata");
    for (name, value) in metadata.value.as_object().into_iter().flatten() {
        let field = metadata.field(name);
        match name.as_str() {
            "labels" => rules::labels(&field, errors),
            "annotations" => rules::annotations(&field, errors),
            _ if field.is_empty() || value == 0 => {}
            // Upstream blames a field by its name in Go, with a small first letter.
            "uid" => errors.push(Error::forbidden(&metadata.path.child("uID"), "cannot be set")),
            _ => errors.push(field.forbidden("cannot be set")),
        }
    }
    request::validate(&spec.field("spec"), errors);
}
