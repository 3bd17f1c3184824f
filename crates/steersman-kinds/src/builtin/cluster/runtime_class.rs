//! RuntimeClass: the runtime of the containers of pods that name the class. Admission adds its settings to pods.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod::container::resources;
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
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
    validate: &[
        Rule::new("handler", Check::Format(name::dns1123_label)).and_required(""),
        Rule::new("overhead.podFixed", Check::By(overhead)).if_present(),
        Rule::new("scheduling.nodeSelector", Check::By(rules::labels)),
        Rule::new("scheduling.tolerations", Check::By(tolerations)),
        Rule::new("handler", Check::Immutable),
    ],
    ..Kind::CLUSTER
};

/// The overhead is validated like the limits of a container, including the path.
fn overhead(overhead: &Field<'_>, errors: &mut Vec<Error>) {
    let limits = json!({ "limits": overhead.value });
    resources::validate(&Field { path: Path::new("overhead"), value: &limits }, errors);
}

fn tolerations(tolerations: &Field<'_>, errors: &mut Vec<Error>) {
    scheduling::tolerations(tolerations, errors);
    let mut seen = BTreeSet::new();
    for toleration in tolerations.items() {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.field(field).text());
        if !seen.insert(key) {
            errors.push(toleration.duplicate());
        }
    }
}
