//! Names of resources that are requested, limited and counted: `cpu`, `requests.storage`, `example.com/gpu`.

use crate::builtin::rules::field::Field;
use steersman_machinery::field::Error;
use steersman_machinery::name;

pub use steersman_machinery::resource_name::{is_extended, is_huge_page, is_native};

/// Quota resources that count the objects of a kind, without the prefix `count/`.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Quota resources that sum quantities of containers, claims and nodes.
const SUMMED: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

/// The name of a resource of containers.
pub fn of_container(resource: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    let wrong = name::qualified(resource);
    let is_name = wrong.is_empty();
    errors.extend(wrong.into_iter().map(|detail| Error::invalid(&field.path, resource, detail)));
    if resource.contains('/') {
        if !is_native(resource) && !is_extended(resource) {
            errors.push(Error::invalid(&field.path, resource, "doesn't follow extended resource name standard"));
        }
        return;
    }
    if is_name && !is_standard(resource) {
        errors.push(Error::invalid(&field.path, resource, "must be a standard resource type or fully qualified"));
    }
    if !matches!(resource, "cpu" | "ephemeral-storage" | "memory") && !is_huge_page(resource) {
        errors.push(Error::invalid(&field.path, resource, "must be a standard resource for containers"));
    }
}

/// The name of a resource of a pod as a whole.
pub fn of_pod(resource: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    let n_before = errors.len();
    of_anything(resource, field, errors);
    let is_one = matches!(resource, "cpu" | "memory") || is_huge_page(resource);
    if errors.len() == n_before && !is_one {
        errors.push(Error::not_supported(&field.path, resource, &["cpu", "hugepages-", "memory"]));
    }
}

/// The name of any resource.
pub fn of_anything(resource: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    let wrong = name::qualified(resource);
    if wrong.is_empty() && !resource.contains('/') && !is_standard(resource) {
        errors.push(Error::invalid(&field.path, resource, "must be a standard resource type or fully qualified"));
    }
    errors.extend(wrong.into_iter().map(|detail| Error::invalid(&field.path, resource, detail)));
}

/// The name of a resource of quotas.
pub fn of_quota(resource: &str, field: &Field<'_>, errors: &mut Vec<Error>) {
    of_anything(resource, field, errors);
    if !resource.contains('/') && !is_of_quota(resource) {
        errors.push(Error::invalid(&field.path, resource, "must be a standard resource for quota"));
    }
}

/// Whether Kubernetes defines the resource, for containers or for quotas.
fn is_standard(resource: &str) -> bool {
    is_of_quota(resource) || resource == "storage"
}

/// Whether Kubernetes defines the resource for quotas.
pub fn is_of_quota(resource: &str) -> bool {
    COUNTED.contains(&resource)
        || SUMMED.contains(&resource)
        || is_huge_page(resource)
        || resource.starts_with("requests.hugepages-")
}

/// Whether only whole numbers of the resource are valid.
pub fn is_whole(resource: &str) -> bool {
    COUNTED.contains(&resource) || is_extended(resource)
}

/// Whether the limit may exceed the request.
pub fn can_be_overcommitted(resource: &str) -> bool {
    is_native(resource) && !is_huge_page(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_for_containers_for_quotas_or_for_nothing() {
        for (resource, n_of_container, n_of_quota) in [
            ("cpu", 0, 0),
            ("hugepages-2Mi", 0, 0),
            ("example.com/gpu", 0, 0),
            ("pods", 1, 0),
            ("requests.storage", 1, 0),
            ("storage", 1, 1),
            ("dogs", 2, 2),
            ("count/pods", 0, 0),
        ] {
            let field = Field::root(&serde_json::Value::Null);
            let (mut of_container_errors, mut of_quota_errors) = (Vec::new(), Vec::new());
            of_container(resource, &field, &mut of_container_errors);
            of_quota(resource, &field, &mut of_quota_errors);
            assert_eq!(
                (of_container_errors.len(), of_quota_errors.len()),
                (n_of_container, n_of_quota),
                "{resource}: {of_container_errors:?} {of_quota_errors:?}"
            );
        }
    }
}
