//! Group, version, kind and resource, and the printed forms that clients expect.

use std::fmt;

/// An API group and one of its versions; the core group is the empty string.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupVersion {
    /// The group's DNS name, empty for the core group.
    pub group: String,
    /// The version, such as `v1` or `v1beta1`.
    pub version: String,
}

/// A kind without a version.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupKind {
    /// The group's DNS name, empty for the core group.
    pub group: String,
    /// The kind in CamelCase, such as `Deployment`.
    pub kind: String,
}

/// A resource without a version.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupResource {
    /// The group's DNS name, empty for the core group.
    pub group: String,
    /// The plural name in the path, such as `deployments`.
    pub resource: String,
}

/// A kind in one version.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupVersionKind {
    /// The group's DNS name, empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind in CamelCase.
    pub kind: String,
}

/// A resource in one version.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupVersionResource {
    /// The group's DNS name, empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural name in the path.
    pub resource: String,
}

// === impl GroupVersion ===

impl GroupVersion {
    /// A group and a version of it.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> GroupVersion {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Parses an `apiVersion`: `v1` is the core group, `apps/v1` is group and version. `None` if there is more than one
    /// slash.
    pub fn parse(api_version: &str) -> Option<GroupVersion> {
        match api_version.split_once('/') {
            None => Some(GroupVersion::new("", api_version)),
            Some((_, rest)) if rest.contains('/') => None,
            Some((group, version)) => Some(GroupVersion::new(group, version)),
        }
    }

    /// This group and version with a kind.
    pub fn kind(&self, kind: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    /// This group and version with a resource.
    pub fn resource(&self, resource: impl Into<String>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }
}

impl fmt::Display for GroupVersion {
    /// The form of `apiVersion`: `v1`, `apps/v1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return f.write_str(&self.version);
        }
        write!(f, "{}/{}", self.group, self.version)
    }
}

// === impl GroupKind ===

impl GroupKind {
    /// A kind of a group.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> GroupKind {
        GroupKind { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    /// `Deployment.apps`, or only the kind for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

// === impl GroupResource ===

impl GroupResource {
    /// A resource of a group.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> GroupResource {
        GroupResource { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    /// `deployments.apps`, or only the resource for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

// === impl GroupVersionKind ===

impl GroupVersionKind {
    /// A kind in a version of a group.
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The group and version, in the form of `apiVersion`.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }

    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }

    /// The group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(self.group.clone(), self.kind.clone())
    }
}

impl fmt::Display for GroupVersionKind {
    /// `apps/v1, Kind=Deployment`; the core group prints as `/v1, Kind=Pod`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

// === impl GroupVersionResource ===

impl GroupVersionResource {
    /// A resource in a version of a group.
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        GroupVersionResource { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// The group and resource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.clone(), self.resource.clone())
    }

    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }
}

impl fmt::Display for GroupVersionResource {
    /// `apps/v1, Resource=deployments`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() {
        return f.write_str(name);
    }
    write!(f, "{name}.{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_version_reads_and_prints_both_forms() {
        for form in ["v1", "apps/v1", "example.com/v1beta2"] {
            assert_eq!(GroupVersion::parse(form).unwrap().to_string(), form);
        }
        assert_eq!(GroupVersion::parse("a/b/c"), None);
    }

    #[test]
    fn the_core_group_leaves_no_dot() {
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(GroupResource::new("apps", "deployments").to_string(), "deployments.apps");
        assert_eq!(GroupKind::new("apps", "Deployment").to_string(), "Deployment.apps");
    }
}
