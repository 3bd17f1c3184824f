//! RuntimeClass: the runtime of the containers of pods that name the class. Admission adds its settings to pods.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::{resources, scheduling};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::name;

pub const KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    versions: &[Version {
        definition: "io.k8s.api.node.v1.RuntimeClass",
        columns: &[
            Column::NAME,
            Column::text("Handler", "The configuration on nodes that runs the pods."),
            Column::AGE,
        ],
        cells: |class, now| vec![cells::name(class), cells::text(class, &["handler"]), cells::age(class, now)],
        ..Version::V1
    }],
    rules: Rules {
        creates_on_update: true,
        updates_unconditionally: false,
        requires_qualified_finalizers: false,
        ..RULES
    },
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(class: &Field<'_>, errors: &mut Vec<Error>) {
    rules::required_name(&class.field("handler"), name::dns1123_label, errors);
    let overhead = class.at(&["overhead", "podFixed"]);
    if overhead.is_present() {
        // Validated like the limits of a container, including the path.
        let limits = json!({ "limits": overhead.value });
        resources::validate(&Field { path: Path::new("overhead"), value: &limits }, errors);
    }
    let placement = class.field("scheduling");
    rules::labels(&placement.field("nodeSelector"), errors);
    let tolerations = placement.field("tolerations");
    scheduling::tolerations(&tolerations, errors);
    let mut seen = BTreeSet::new();
    for toleration in tolerations.items() {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.field(field).text());
        if !seen.insert(key) {
            errors.push(toleration.duplicate());
        }
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (class, old) = (Field::root(request.new), Field::root(request.old));
    validate(&class, errors);
    rules::immutable(&class.field("handler"), &old.field("handler"), errors);
}
