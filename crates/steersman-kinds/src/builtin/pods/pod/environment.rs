//! Validation of environment variables and of their sources.

use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates the environment of a container.
pub(super) fn validate(container: &Place<'_>, faults: &mut Vec<Error>) {
    for variable in container.field("env").items() {
        rules::required_name(&variable.field("name"), rules::variable_name, faults);
        value_from(&variable, faults);
    }
    for source in container.field("envFrom").items() {
        if !source.field("prefix").is_empty() {
            rules::named(&source.field("prefix"), rules::variable_name, faults);
        }
        let given = given(&source, &["configMapRef", "secretRef"]);
        match given.as_slice() {
            [] => faults.push(blank(&source, "must specify one of: `configMapRef` or `secretRef`")),
            [one] => rules::required_name(&one.field("name"), name::dns1123_subdomain, faults),
            _ => faults.push(blank(&source, "may not have more than one field specified at a time")),
        }
    }
}

fn value_from(variable: &Place<'_>, faults: &mut Vec<Error>) {
    const SOURCES: [&str; 5] = ["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
    let source = variable.field("valueFrom");
    if source.is_absent() {
        return;
    }
    let given = given(&source, &SOURCES);
    match given.as_slice() {
        [] => faults.push(blank(
            &source,
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        )),
        _ if !variable.field("value").is_empty() => {
            faults.push(blank(&source, "may not be specified when `value` is not empty"));
        }
        [_] => {}
        _ => faults.push(blank(&source, "may not have more than one field specified at a time")),
    }
    for reference in ["configMapKeyRef", "secretKeyRef"].map(|field| source.field(field)) {
        if reference.is_present() {
            rules::required_name(&reference.field("key"), name::config_key, faults);
        }
    }
    let file = source.field("fileKeyRef");
    if file.is_present() {
        for field in ["volumeName", "path", "key"] {
            rules::required(&file.field(field), faults);
        }
    }
    field_reference(&source.field("fieldRef"), ENVIRONMENT_FIELDS, faults);
    resource_reference(&source.field("resourceFieldRef"), faults);
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
pub(super) const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Validates a reference to a field of the pod, or to one of its labels or annotations.
pub(super) fn field_reference(reference: &Place<'_>, fields: &[&str], faults: &mut Vec<Error>) {
    if reference.is_absent() {
        return;
    }
    let path = reference.field("fieldPath");
    if reference.field("apiVersion").is_empty() {
        faults.push(reference.field("apiVersion").required(""));
    } else if path.is_empty() {
        faults.push(path.required(""));
    } else if let Some((map, key)) = path.text().strip_suffix("']").and_then(|text| text.split_once("['")) {
        match map {
            "metadata.annotations" => {
                faults.extend(name::qualified(&key.to_lowercase()).into_iter().map(|f| path.invalid(f)));
            }
            "metadata.labels" => faults.extend(name::qualified(key).into_iter().map(|fault| path.invalid(fault))),
            _ => faults.push(path.invalid(format!("{map:?} does not support subscript"))),
        }
    } else if !fields.contains(&path.text()) {
        let known = ENVIRONMENT_FIELDS.contains(&path.text()) || FILE_FIELDS.contains(&path.text());
        let unknown = || format!("error converting fieldPath: field label not supported: {}", path.text());
        faults.push(if known { path.not_supported(fields) } else { path.invalid(unknown()) });
    }
}

/// Validates a reference to a container's resource request or limit.
pub(super) fn resource_reference(reference: &Place<'_>, faults: &mut Vec<Error>) {
    const RESOURCES: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    if reference.is_absent() {
        return;
    }
    let resource = reference.field("resource");
    let is_huge_page =
        ["limits.hugepages-", "requests.hugepages-"].iter().any(|lead| resource.text().starts_with(lead));
    if resource.is_empty() {
        faults.push(resource.required(""));
    } else if !is_huge_page {
        rules::one_of(&resource, &RESOURCES, faults);
    }
}

/// The fields that are present.
pub(super) fn given<'a>(place: &Place<'a>, fields: &[&str]) -> Vec<Place<'a>> {
    fields.iter().map(|field| place.field(field)).filter(Place::is_present).collect()
}

/// An error of an object as a whole. The message does not repeat the object.
fn blank(place: &Place<'_>, detail: &str) -> Error {
    Error::invalid(&place.path, Value::from(""), detail)
}
