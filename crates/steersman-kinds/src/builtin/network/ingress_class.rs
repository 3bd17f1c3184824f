//! IngressClass: the controller that implements the ingresses of a class.

use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Value, name};

const CONTROLLER_LENGTH_MAX: usize = 250;

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
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::CLUSTER
};

fn validate(class: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = class.field("spec");
    let controller = spec.field("controller");
    if controller.text().len() > CONTROLLER_LENGTH_MAX {
        errors.push(Error::too_long(&controller.path, CONTROLLER_LENGTH_MAX));
    }
    let is_path = controller
        .text()
        .split_once('/')
        .is_some_and(|(domain, path)| name::dns1123_subdomain(domain).is_empty() && !path.is_empty());
    if !is_path {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(Error::invalid(&controller.path, controller.text(), why));
    }
    let parameters = spec.field("parameters");
    if parameters.is_absent() {
        return;
    }
    let group = parameters.field("apiGroup");
    if group.is_present() {
        rules::named(&group, name::dns1123_subdomain, errors);
    }
    for field in ["kind", "name"] {
        rules::required_name(&parameters.field(field), name::path_segment, errors);
    }
    let (scope, namespace) = (parameters.field("scope"), parameters.field("namespace"));
    rules::one_of(&scope, &["Cluster", "Namespace"], errors);
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

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (class, old) = (Field::root(request.new), Field::root(request.old));
    rules::immutable(&class.at(&["spec", "controller"]), &old.at(&["spec", "controller"]), errors);
    validate(&class, errors);
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
