//! The four resources of RBAC, by name.

use steersman_machinery::GroupResource;

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// One of the four resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Resource {
    ClusterRoleBindings,
    ClusterRoles,
    RoleBindings,
    Roles,
}

impl Resource {
    pub(crate) const ALL: [Resource; 4] =
        [Resource::ClusterRoles, Resource::Roles, Resource::ClusterRoleBindings, Resource::RoleBindings];

    /// The resource of this name, if it is one of the four.
    pub(crate) fn find(group: &str, plural: &str) -> Option<Resource> {
        Resource::ALL.into_iter().find(|one| group == GROUP && one.plural() == plural)
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Resource::ClusterRoleBindings => "clusterrolebindings",
            Resource::ClusterRoles => "clusterroles",
            Resource::RoleBindings => "rolebindings",
            Resource::Roles => "roles",
        }
    }

    pub(crate) fn storage(self) -> GroupResource {
        GroupResource::new(GROUP, self.plural())
    }
}
