//! APIService: the server that answers for a version of a group. `crate::upkeep::api_services` creates the APIServices
//! of this server's own groups, and updates the status of the others.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at};
use steersman_machinery::{Value, name};

pub const GROUP: &str = "apiregistration.k8s.io";

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    versions: &[Version {
        definition: "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Service", "The service of the server that answers, or Local."),
            Column::text("Available", "Whether it answers."),
            Column::AGE,
        ],
        cells,
        default: |service| {
            if let Some(reference) = service.pointer_mut("/spec/service").and_then(Value::as_object_mut) {
                unless_set(reference, "port", 443);
            }
        },
        ..Version::V1
    }],
    status_leaves: &[
        &["spec"],
        &["metadata", "annotations"],
        &["metadata", "finalizers"],
        &["metadata", "labels"],
        &["metadata", "ownerReferences"],
    ],
    rules: Rules { updates_unconditionally: false, requires_qualified_finalizers: false, ..RULES },
    name_faults: name::path_segment,
    prepare_create,
    validate_create: validate,
    validate_update: validate,
    validate_status: |request, errors| {
        for condition in Field::root(request.new).at(&["status", "conditions"]).items() {
            rules::one_of(&condition.field("status"), &["True", "False", "Unknown"], errors);
        }
    },
    ..Kind::CLUSTER
};

/// The server's own APIServices are always available.
fn prepare_create(service: &mut Value) {
    if at(service, &["spec", "service"]).is_some() {
        return;
    }
    let now = at(service, &["metadata", "creationTimestamp"]).cloned().unwrap_or_default();
    let condition = json!({
        "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available",
    });
    set_at(service, &["status", "conditions"], json!([condition]));
}

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let service = Field::root(request.new);
    let (object_name, spec) = (service.at(&["metadata", "name"]), service.field("spec"));
    let (group, version) = (spec.field("group"), spec.field("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    if object_name.text() != wanted {
        errors.push(object_name.invalid(format!("must be `spec.version+\".\"+spec.group`: {wanted:?}")));
    }
    if group.is_empty() && version.text() != "v1" {
        errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
    if !group.is_empty() {
        rules::named(&group, name::dns1123_subdomain, errors);
    }
    let wrong = name::dns1035_label(version.text()).into_iter();
    errors.extend(wrong.map(|detail| Error::invalid(&version.path, version.text(), detail)));
    for (field, most) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.field(field);
        let number = priority.number().unwrap_or(0);
        if number <= 0 || most < number {
            errors.push(Error::invalid(&priority.path, number, format!("must be positive and less than {most}")));
        }
    }
    connection(&spec, errors);
}

/// Validates how another server is reached and verified.
fn connection(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (reference, bundle) = (spec.field("service"), spec.field("caBundle"));
    let unchecked = spec.field("insecureSkipTLSVerify");
    if reference.is_absent() {
        if !bundle.is_empty() {
            let bytes = bundle.text().trim_end_matches('=').len() * 3 / 4;
            let why = "local APIServices may not have a caBundle";
            errors.push(Error::invalid(&bundle.path, format!("{bytes} bytes"), why));
        }
        if unchecked.flag() {
            errors.push(unchecked.invalid("local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    }
    rules::required(&reference.field("namespace"), errors);
    rules::required(&reference.field("name"), errors);
    rules::service_port(&reference.field("port"), errors);
    if unchecked.flag() && !bundle.is_empty() {
        errors.push(unchecked.invalid("may not be true if caBundle is present"));
    }
}

fn cells(service: &Value, now: Timestamp) -> Vec<Value> {
    let object = Field::root(service);
    let reference = object.at(&["spec", "service"]);
    let server = match reference.is_present() {
        true => format!("{}/{}", reference.field("namespace").text(), reference.field("name").text()),
        false => "Local".to_owned(),
    };
    let conditions = object.at(&["status", "conditions"]);
    let available = conditions.items().find(|condition| condition.field("type").text() == "Available");
    let available = available.map(|condition| (condition.field("status").text(), condition.field("reason").text()));
    let available = match available {
        None => "Unknown".to_owned(),
        Some((status, reason)) if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
        Some((status, _)) => status.to_owned(),
    };
    vec![cells::name(service), Value::from(server), Value::from(available), cells::age(service, now)]
}
