//! PodTemplate: a pod template as an object of its own.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod;
use crate::builtin::rules::cells;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::at;

pub const KIND: Kind = Kind {
    kind: "PodTemplate",
    pod_spec: &["template", "spec"],
    plural: "podtemplates",
    singular: "podtemplate",
    versions: &[Version {
        definition: "io.k8s.api.core.v1.PodTemplate",
        columns: &[
            Column::NAME,
            Column::text("Containers", "The names of its containers."),
            Column::text("Images", "The images of its containers."),
            Column::text("Pod Labels", "The labels that pods made from it have."),
        ],
        cells,
        default: |object| pod::defaults::spec(object, &["template", "spec"]),
        ..Version::V1
    }],
    generation: &[&["template"]],
    validate: &[Rule::new("template", Check::Rules(pod::spec::TEMPLATE))],
    rules: Rules { returns_deleted: true, validates_generate_name_on_update: false, ..RULES },
    ..Kind::NAMESPACED
};

fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let (names, images) = cells::containers(at(object, &["template", "spec"]));
    let labels = at(object, &["template", "metadata", "labels"]).unwrap_or(&Value::Null);
    vec![cells::name(object), names, images, Value::from(selector::labels_text(labels))]
}
