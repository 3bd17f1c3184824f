//! ResourceClaimTemplate: the template of claims that are created for pods.

use crate::builtin::kind::{Alias, Column, Compiles, Kind, RULES, Version};
use crate::builtin::pods::device::{GROUP, request};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
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
    compiles: Compiles::Always,
    validate: &[
        Rule::new("spec.metadata", Check::By(metadata)),
        Rule::new("spec.spec", Check::By(request::validate)),
        Rule::new("spec", Check::Immutable),
    ],
    ..Kind::NAMESPACED
};

/// Claims only inherit labels and annotations from the template's metadata.
fn metadata(metadata: &Field<'_>, errors: &mut Vec<Error>) {
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
}
