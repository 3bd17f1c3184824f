//! Names of resources that are requested, limited and counted: `cpu`, `requests.storage`, `example.com/gpu`.

use crate::names::name;

/// Whether the resource is huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Whether the name is in Kubernetes' own namespace.
pub fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Whether the resource is an extended one, which quotas can count.
pub fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && name::qualified(&format!("requests.{resource}")).is_empty()
}
