//! APIService: the server that answers for a version of a group. `crate::upkeep::api_services` creates the APIServices
//! of this server's own groups, and updates the status of the others.

use crate::builtin::kind::{Column, Kind, RULES, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at, unless_set};
use steersman_machinery::{Value, name};

pub const GROUP: &str = "apiregistration.k8s.io";

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
    status_leaves: SPEC_AND_METADATA,
    rules: Rules { updates_unconditionally: false, requires_qualified_finalizers: false, ..RULES },
    name_faults: name::path_segment,
    prepare_create,
    validate: &[
        Rule::new("", Check::By(object_name)),
        Rule::new("spec", Check::By(core_group)),
        Rule::new("spec.group", Check::Format(name::dns1123_subdomain)).unless_empty(),
        Rule::new("spec.version", Check::Format(name::dns1035_label)),
        Rule::new("spec.groupPriorityMinimum", Check::Between(1, 20_000, "must be positive and less than 20000"))
            .or_zero(),
        Rule::new("spec.versionPriority", Check::Between(1, 1_000, "must be positive and less than 1000")).or_zero(),
        Rule::new("spec", Check::By(local)),
        Rule::new("spec.service", Check::Rules(SERVICE)).if_present(),
        Rule::new("spec", Check::By(unverified)),
    ],
    validate_status: &[Rule::new("status.conditions[].status", Check::OneOf(&["True", "False", "Unknown"]))],
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

/// The server that answers for the version, unless this one does.
const SERVICE: &[Rule] =
    &[Rule::required("namespace", ""), Rule::required("name", ""), Rule::new("port", Check::By(rules::service_port))];

fn object_name(service: &Field<'_>, errors: &mut Vec<Error>) {
    let (object_name, spec) = (service.at(&["metadata", "name"]), service.field("spec"));
    let wanted = format!("{}.{}", spec.field("version").text(), spec.field("group").text());
    // Upstream checks the base of a generated name like a name. What no path may have is told of all kinds.
    for text in [object_name, service.at(&["metadata", "generateName"])] {
        if !text.is_empty() && text.text() != wanted && name::path_segment(text.text()).is_empty() {
            errors.push(text.invalid(format!("must be `spec.version+\".\"+spec.group`: {wanted:?}")));
        }
    }
}

fn core_group(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let group = spec.field("group");
    if group.is_empty() && spec.field("version").text() != "v1" {
        errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
}

/// Versions that this server answers for need no verification.
fn local(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (bundle, unchecked) = (spec.field("caBundle"), spec.field("insecureSkipTLSVerify"));
    if spec.field("service").is_present() {
        return;
    }
    if !bundle.is_empty() {
        let bytes = bundle.text().trim_end_matches('=').len() * 3 / 4;
        let why = "local APIServices may not have a caBundle";
        errors.push(Error::invalid(&bundle.path, format!("{bytes} bytes"), why));
    }
    if unchecked.flag() {
        errors.push(unchecked.invalid("local APIServices may not have insecureSkipTLSVerify"));
    }
}

fn unverified(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let unchecked = spec.field("insecureSkipTLSVerify");
    if spec.field("service").is_present() && unchecked.flag() && !spec.field("caBundle").is_empty() {
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
