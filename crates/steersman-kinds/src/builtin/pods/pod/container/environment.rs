//! Validation of environment variables and of their sources.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// The rules of a variable.
pub(in crate::builtin::pods::pod) const VARIABLE: &[Rule] =
    &[Rule::new("name", Check::Format(rules::variable_name)).and_required(""), Rule::new("", Check::By(value_from))];

/// The rules of a source of variables, before those of its reference.
pub(in crate::builtin) const SOURCE: &[Rule] =
    &[Rule::new("prefix", Check::Format(rules::variable_name)).unless_empty()];

/// The rules of the sources of the value of a variable.
pub(in crate::builtin) const VALUE_SOURCE: &[Rule] = &[
    Rule::new("configMapKeyRef", Check::Rules(KEY)).if_present(),
    Rule::new("secretKeyRef", Check::Rules(KEY)).if_present(),
    Rule::new("fileKeyRef", Check::Rules(FILE_KEY)).if_present(),
    Rule::new("fieldRef", Check::By(|reference, errors| field_reference(reference, ENVIRONMENT_FIELDS, errors))),
    Rule::new("resourceFieldRef", Check::By(own_resource)),
];

const KEY: &[Rule] = &[
    Rule::new("key", Check::Format(name::config_key)).and_required(""),
    Rule::new("name", Check::Format(name::dns1123_subdomain)),
];

const FILE_KEY: &[Rule] = &[
    Rule::new("key", Check::Format(rules::variable_name)).and_required(""),
    Rule::new("volumeName", Check::Format(name::dns1123_label)).and_required(""),
    Rule::new("path", Check::By(rules::no_backsteps)).and_required(""),
];

/// Validates the sources of variables. Upstream blames the list for one without a reference, and for one with two.
pub(in crate::builtin::pods::pod) fn sources(sources: &Field<'_>, errors: &mut Vec<Error>) {
    for source in sources.items() {
        check_field(SOURCE, &source, errors);
        let given = given(&source, &["configMapRef", "secretRef"]);
        for one in &given {
            rules::required_name(&one.field("name"), name::dns1123_subdomain, errors);
        }
        match given.as_slice() {
            [] => errors.push(blank(sources, "must specify one of: `configMapRef` or `secretRef`")),
            [_] => {}
            _ => errors.push(blank(sources, "may not have more than one field specified at a time")),
        }
    }
}

fn value_from(variable: &Field<'_>, errors: &mut Vec<Error>) {
    const SOURCES: [&str; 5] = ["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
    let source = variable.field("valueFrom");
    if source.is_absent() {
        return;
    }
    let given = given(&source, &SOURCES);
    match given.as_slice() {
        [] => errors.push(blank(
            &source,
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        )),
        _ if !variable.field("value").is_empty() => {
            errors.push(blank(&source, "may not be specified when `value` is not empty"));
        }
        [_] => {}
        _ => errors.push(blank(&source, "may not have more than one field specified at a time")),
    }
    check_field(VALUE_SOURCE, &source, errors);
}

/// The fields of a pod that can be the source of a variable.
const ENVIRONMENT_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields of a pod that can be projected into a file.
pub(in crate::builtin::pods::pod) const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Validates a reference to a field of the pod, or to one of its labels or annotations.
pub(in crate::builtin::pods::pod) fn field_reference(reference: &Field<'_>, fields: &[&str], errors: &mut Vec<Error>) {
    if reference.is_absent() {
        return;
    }
    let path = reference.field("fieldPath");
    let version = reference.field("apiVersion");
    if version.is_empty() {
        errors.push(version.required(""));
    } else if path.is_empty() {
        errors.push(path.required(""));
    } else if version.text() != "v1" {
        let why = format!("error converting fieldPath: unsupported pod version: {}", version.text());
        errors.push(path.invalid(why));
    } else if let Some((map, key)) = path.text().strip_suffix("']").and_then(|text| text.split_once("['")) {
        match map {
            "metadata.annotations" => {
                errors.extend(name::qualified(&key.to_lowercase()).into_iter().map(|f| path.invalid(f)));
            }
            "metadata.labels" => errors.extend(name::qualified(key).into_iter().map(|detail| path.invalid(detail))),
            _ => errors.push(path.invalid(format!("{map:?} does not support subscript"))),
        }
    } else if !fields.contains(&path.text()) {
        let known = ENVIRONMENT_FIELDS.contains(&path.text()) || FILE_FIELDS.contains(&path.text());
        let unknown = || format!("error converting fieldPath: field label not supported: {}", path.text());
        errors.push(if known { path.not_supported(fields) } else { path.invalid(unknown()) });
    }
}

/// The requests and limits of a container that can be a source, besides those of huge pages.
pub(in crate::builtin) const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// The units in which requests and limits other than those of CPU are given.
const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Validates a reference of a variable to its container's resource request or limit.
fn own_resource(reference: &Field<'_>, errors: &mut Vec<Error>) {
    if reference.is_present() {
        resource(&reference.field("resource"), errors);
        divisor(reference, errors);
    }
}

/// Validates a reference of a file to a container's resource request or limit.
pub(in crate::builtin::pods::pod) fn resource_of_container(reference: &Field<'_>, errors: &mut Vec<Error>) {
    if reference.is_present() {
        let container = reference.field("containerName");
        match container.is_empty() {
            true => errors.push(container.required("")),
            false => resource(&reference.field("resource"), errors),
        }
        divisor(reference, errors);
    }
}

fn resource(resource: &Field<'_>, errors: &mut Vec<Error>) {
    if resource.is_empty() {
        errors.push(resource.required(""));
    } else if !is_huge_page(resource.text()) {
        rules::one_of(resource, RESOURCES, errors);
    }
}

fn is_huge_page(resource: &str) -> bool {
    ["limits.hugepages-", "requests.hugepages-"].iter().any(|lead| resource.starts_with(lead))
}

/// The amount by which a request or limit is divided must be a unit of its resource.
fn divisor(reference: &Field<'_>, errors: &mut Vec<Error>) {
    let (resource, divisor) = (reference.field("resource"), reference.field("divisor"));
    let is_zero = Quantity::parse(divisor.text()).is_ok_and(Quantity::is_zero);
    let Some(unit) = Quantity::canonical(divisor.text()).ok().filter(|_| !is_zero) else { return };
    let (units, what) = match resource.text() {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"][..], "cpu"),
        "limits.memory" | "requests.memory" => (BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (BYTES, "local ephemeral storage"),
        other if is_huge_page(other) => (BYTES, "hugepages"),
        _ => return,
    };
    if !units.contains(&&*unit) {
        let listed = if what == "cpu" { "1m and 1".to_owned() } else { units.join(", ") };
        let why = format!("only divisor's values {listed} are supported with the {what} resource");
        // Upstream shows the resource.
        errors.push(Error::invalid(&divisor.path, resource.text(), why));
    }
}

/// The fields that are present.
pub(in crate::builtin::pods::pod) fn given<'a>(field: &Field<'a>, fields: &[&str]) -> Vec<Field<'a>> {
    fields.iter().map(|name| field.field(name)).filter(Field::is_present).collect()
}

/// An error of an object as a whole. The message does not repeat the object.
fn blank(field: &Field<'_>, detail: &str) -> Error {
    Error::invalid(&field.path, Value::from(""), detail)
}
