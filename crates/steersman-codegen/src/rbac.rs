//! Roles for a set of requests.
//!
//! [`Permissions`] are collected, for example by the testkit from an operator's requests in a test, and become
//! manifests: a service account, and the smallest roles that allow these requests. Permissions that are needed only in
//! the account's own namespace become a Role there, all others a ClusterRole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::manifest;

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A set of permissions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Permissions {
    needed: BTreeSet<Permission>,
}

/// A verb on the objects of a resource.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Permission {
    /// The namespace; `None` for all namespaces and for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural; with a subresource, `pods/status`.
    pub resource: String,
    /// `get`, `list` and so on.
    pub verb: String,
}

/// The subject of the roles.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

/// The verbs in the usual order.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

// === impl Permissions ===

impl Permissions {
    /// Adds a permission.
    pub fn insert(&mut self, permission: Permission) {
        self.needed.insert(permission);
    }

    /// Adds verbs on a resource, in all namespaces.
    #[must_use]
    pub fn allow(mut self, group: &str, resource: &str, verbs: &[&str]) -> Permissions {
        self.needed.extend(verbs.iter().map(|verb| Permission {
            namespace: None,
            group: group.to_owned(),
            resource: resource.to_owned(),
            verb: (*verb).to_owned(),
        }));
        self
    }

    /// Adds verbs on a resource in one namespace.
    #[must_use]
    pub fn allow_in(mut self, namespace: &str, group: &str, resource: &str, verbs: &[&str]) -> Permissions {
        self.needed.extend(verbs.iter().map(|verb| Permission {
            namespace: Some(namespace.to_owned()),
            group: group.to_owned(),
            resource: resource.to_owned(),
            verb: (*verb).to_owned(),
        }));
        self
    }

    /// Iterates over all permissions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Permission> {
        self.needed.iter()
    }

    /// The manifests: the account, a ClusterRole and a Role with its permissions, and their bindings. An empty role is
    /// left out.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn manifests(&self, account: &ServiceAccount) -> Result<String, manifest::Error> {
        let ServiceAccount { namespace, name } = account;
        let everywhere: BTreeSet<[&str; 3]> = self
            .needed
            .iter()
            .filter(|permission| permission.namespace.as_ref() != Some(namespace))
            .map(Permission::what)
            .collect();
        let own: BTreeSet<[&str; 3]> =
            self.needed.iter().map(Permission::what).filter(|what| !everywhere.contains(what)).collect();

        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace}});
        let mut objects = vec![account];
        for (kind, needed) in [("ClusterRole", everywhere), ("Role", own)] {
            if needed.is_empty() {
                continue;
            }
            let mut metadata = json!({"name": name});
            if kind == "Role" {
                metadata["namespace"] = namespace.as_str().into();
            }
            objects
                .push(json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "rules": rules(&needed)}));
            objects.push(json!({"apiVersion": API_VERSION, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}));
        }
        let documents = objects.iter().map(manifest::object).collect::<Result<Vec<String>, manifest::Error>>()?;
        Ok(documents.join("---\n"))
    }
}

impl Permission {
    fn what(&self) -> [&str; 3] {
        [&self.group, &self.resource, &self.verb]
    }
}

impl Extend<Permission> for Permissions {
    fn extend<T: IntoIterator<Item = Permission>>(&mut self, permissions: T) {
        self.needed.extend(permissions);
    }
}

// === impl ServiceAccount ===

impl ServiceAccount {
    /// The account `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> ServiceAccount {
        ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One rule for all resources of a group that need the same verbs.
fn rules(needed: &BTreeSet<[&str; 3]>) -> Value {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for [group, resource, verb] in needed {
        verbs.entry((group, resource)).or_default().push(verb);
    }
    let mut resources: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((group, resource), mut verbs) in verbs {
        verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb));
        resources.entry((group, verbs)).or_default().push(resource);
    }
    // Sorted by the first resource, since the verbs change most often.
    let mut rules: Vec<_> = resources.into_iter().collect();
    rules.sort_by(|((group_a, _), a), ((group_b, _), b)| (group_a, a).cmp(&(group_b, b)));
    rules
        .into_iter()
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn what_is_needed_in_the_own_namespace_only_is_no_cluster_role() {
        let permissions = Permissions::default()
            .allow("", "configmaps", &["watch", "patch", "list"])
            .allow("example.com", "greetings", &["list", "watch"])
            .allow("", "secrets", &["list"])
            .allow_in("shop", "", "events", &["create"])
            .allow_in("op", "coordination.k8s.io", "leases", &["update", "get", "create"])
            .allow_in("op", "", "secrets", &["get", "list"]);
        let manifests = permissions.manifests(&ServiceAccount::new("op", "greeter")).unwrap();
        expect![[r#"
            apiVersion: v1
            kind: ServiceAccount
            metadata:
              name: greeter
              namespace: op
            ---
            apiVersion: rbac.authorization.k8s.io/v1
            kind: ClusterRole
            metadata:
              name: greeter
            rules:
            - apiGroups:
              - ""
              resources:
              - configmaps
              verbs:
              - list
              - watch
              - patch
            - apiGroups:
              - ""
              resources:
              - events
              verbs:
              - create
            - apiGroups:
              - ""
              resources:
              - secrets
              verbs:
              - list
            - apiGroups:
              - example.com
              resources:
              - greetings
              verbs:
              - list
              - watch
            ---
            apiVersion: rbac.authorization.k8s.io/v1
            kind: ClusterRoleBinding
            metadata:
              name: greeter
            roleRef:
              kind: ClusterRole
              name: greeter
              apiGroup: rbac.authorization.k8s.io
            subjects:
            - kind: ServiceAccount
              name: greeter
              namespace: op
            ---
            apiVersion: rbac.authorization.k8s.io/v1
            kind: Role
            metadata:
              name: greeter
              namespace: op
            rules:
            - apiGroups:
              - ""
              resources:
              - secrets
              verbs:
              - get
            - apiGroups:
              - coordination.k8s.io
              resources:
              - leases
              verbs:
              - get
              - create
              - update
            ---
            apiVersion: rbac.authorization.k8s.io/v1
            kind: RoleBinding
            metadata:
              name: greeter
              namespace: op
            roleRef:
              kind: Role
              name: greeter
              apiGroup: rbac.authorization.k8s.io
            subjects:
            - kind: ServiceAccount
              name: greeter
              namespace: op
        "#]]
        .assert_eq(&manifests);
    }

    #[test]
    fn an_account_that_needs_nothing_has_no_role() {
        let manifests = Permissions::default().manifests(&ServiceAccount::new("op", "idle")).unwrap();
        assert!(manifests.contains("ServiceAccount") && !manifests.contains("Role"), "{manifests}");
    }
}
