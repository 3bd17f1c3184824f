//! Names of resources that are asked for, limited and counted: `cpu`, `requests.storage`, `example.com/gpu`.

use crate::name;

/// Whether it is memory in pages of a size.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Whether it is of Kubernetes' own name space.
pub fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Whether it is of somebody else's name space, so that a quota can count it.
pub fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && name::qualified(&format!("requests.{resource}")).is_empty()
}
