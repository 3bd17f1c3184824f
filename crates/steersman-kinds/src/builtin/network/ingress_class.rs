//! IngressClass: the controller that implements the ingresses of a class.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at, unless_set};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    versions: &[Version {
        definition: "io.k8s.api.networking.v1.IngressClass",
        columns: &[
            Column::NAME,
            Column::text("Controller", "Who carries them out."),
            Column::text("Parameters", "What he is told."),
            Column::AGE,
        ],
        cells,
        default: |class| {
            let parameters = class.pointer_mut("/spec/parameters").and_then(Value::as_object_mut);
            if let Some(parameters) = parameters {
                unless_set(parameters, "scope", "Cluster");
            }
        },
        ..Version::V1
    }],
    generation: &[&["spec"]],
    validate: &[
        Rule::new("spec.controller", Check::Immutable),
        Rule::new("spec.controller", Check::LengthMax(250)),
        Rule::new("spec.controller", Check::Text(is_path, "must be a domain-prefixed path (such as \"acme.io/foo\")")),
        Rule::new("spec.parameters", Check::Rules(PARAMETERS)).if_present(),
    ],
    ..Kind::CLUSTER
};

const PARAMETERS: &[Rule] = &[
    Rule::new("apiGroup", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("kind", Check::Format(name::path_segment)).and_required(""),
    Rule::new("name", Check::Format(name::path_segment)).and_required(""),
    Rule::new("scope", Check::OneOf(&["Cluster", "Namespace"])),
    Rule::new("", Check::By(scope)),
];

fn is_path(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(domain, path)| name::dns1123_subdomain(domain).is_empty() && !path.is_empty())
}

fn scope(parameters: &Field<'_>, errors: &mut Vec<Error>) {
    let (scope, namespace) = (parameters.field("scope"), parameters.field("namespace"));
    match scope.text() {
        "Namespace" if namespace.is_empty() => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => rules::named(&namespace, name::dns1123_label, errors),
        "Cluster" if namespace.is_present() => {
            errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'"));
        }
        _ => {}
    }
}

fn cells(class: &Value, now: Timestamp) -> Vec<Value> {
    let part = |field: &str| str_at(class, &["spec", "parameters", field]).unwrap_or_default();
    let parameters = match (at(class, &["spec", "parameters"]), part("apiGroup")) {
        (None, _) => NONE.to_owned(),
        (Some(_), "") => format!("{}/{}", part("kind"), part("name")),
        (Some(_), group) => format!("{}.{group}/{}", part("kind"), part("name")),
    };
    vec![
        cells::name(class),
        cells::text(class, &["spec", "controller"]),
        Value::from(parameters),
        cells::age(class, now),
    ]
}
