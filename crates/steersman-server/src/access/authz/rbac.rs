//! Authorization by roles and bindings (RBAC), as Kubernetes' `plugin/pkg/auth/authorizer/rbac` decides it.
//!
//! [`Rbac`] holds the Roles, ClusterRoles and their bindings of the store, compiled by subject: a decision looks up the
//! user and the groups of the request, and costs nothing for bindings of others. Tasks of the server follow the four
//! resources (`follower`). A write of one of them is answered only once it is in effect ([`Rbac::wait_for`]), so that
//! the writer's next request is decided by it.
//!
//! `builtin/access` validates the content of a role, `registry/rights/escalation` checks who may write one.

pub(crate) mod binding;
pub(crate) mod covers;
pub(crate) mod follower;
mod index;
pub(crate) mod resource;
mod role;
pub(crate) mod rule;

use crate::access::authz::rbac::binding::RoleRef;
use crate::access::authz::rbac::index::Index;
use crate::access::authz::rbac::resource::Resource;
use crate::access::authz::rbac::rule::Rule;
use crate::access::authz::{
    Attributes, Authorizer, Decision, NonResourceRule, Reason, ResourceAttributes, ResourceRule, Rules, Verdict,
};
use crate::shared::follower::Progress;
use futures::future::{self, BoxFuture};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use steersman_kinds::user::User;
use steersman_machinery::Revision;
use tokio::sync::{Notify, watch};

/// The maximum size of the rules that a review lists. The rules of Kubernetes' role `admin` take about 4 KB.
const TOLD_BYTES_MAX: usize = 512 * 1024;
/// The overhead in bytes of a rule, and of each of its strings.
const RULE_BYTES: usize = 32;
const TEXT_BYTES: usize = 3;

/// The roles and bindings in effect.
#[derive(Default)]
pub(crate) struct Rbac {
    index: RwLock<Index>,
    cluster_role_bindings: Progress,
    cluster_roles: Progress,
    role_bindings: Progress,
    roles: Progress,
    /// Notified when a ClusterRole has changed.
    cluster_roles_changed: Notify,
    /// Notified when anything has changed.
    changed: watch::Sender<()>,
}

/// The rules of a user.
#[derive(Debug, Default)]
pub(crate) struct UserRules {
    /// The rules of each role that the user has; a role occurs once for each binding that grants it. They are shared, so that they are looked
    /// through without a lock.
    pub(crate) roles: Vec<Arc<[Rule]>>,
    /// Roles that bindings name and that do not exist.
    pub(crate) not_found: BTreeSet<RoleRef>,
}

// === impl Rbac ===

impl Rbac {
    /// The verdict on a request, with the binding that allows it.
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let namespace = match attributes {
            Attributes::NonResource { .. } => None,
            Attributes::Resource(ResourceAttributes { namespace, .. }) => *namespace,
        };
        let mut not_found = BTreeSet::new();
        let index = self.index.read();
        let allowed = index.visit(user, namespace, |held| match held.role {
            Some(role) if role.allows(attributes) => {
                held.grants.first().map_or(ControlFlow::Continue(()), |grant| ControlFlow::Break(grant.clone()))
            }
            Some(_) => ControlFlow::Continue(()),
            None => {
                not_found.insert(held.name.not_found());
                ControlFlow::Continue(())
            }
        });
        match allowed {
            ControlFlow::Break(grant) => {
                Verdict { decision: Decision::Allow, reason: Reason::Granted(grant), error: None }
            }
            ControlFlow::Continue(()) if not_found.is_empty() => Verdict::NO_OPINION,
            ControlFlow::Continue(()) => {
                Verdict { reason: format!("RBAC: {}", aggregate(not_found)).into(), ..Verdict::NO_OPINION }
            }
        }
    }

    /// All rules that apply to a user in a namespace.
    pub(crate) fn rules_of(&self, user: &User, namespace: Option<&str>) -> UserRules {
        let (mut all, mut seen) = (UserRules::default(), BTreeSet::new());
        let index = self.index.read();
        let _: ControlFlow<()> = index.visit(user, namespace, |held| {
            match held.role {
                // A binding may have several subjects that are the user, and counts once.
                Some(role) => {
                    let grants = held.grants.iter().filter(|grant| seen.insert(grant.binding_address()));
                    all.roles.extend(grants.map(|_| role.rules().clone()));
                }
                None => {
                    all.not_found.insert(held.name.clone());
                }
            }
            ControlFlow::Continue(())
        });
        all
    }

    /// The rules of a role, referred to from a namespace or from the cluster.
    pub(crate) fn rules_of_role(&self, role: &RoleRef, namespace: Option<&str>) -> Option<Arc<[Rule]>> {
        self.index.read().rules(role, namespace)
    }

    /// The names of the aggregated ClusterRoles.
    pub(crate) fn aggregated(&self) -> Vec<Box<str>> {
        self.index.read().aggregated()
    }

    /// The rules that an aggregated ClusterRole should have, if they differ from those that it has.
    pub(crate) fn gathered(&self, cluster_role: &str) -> Option<Vec<Rule>> {
        self.index.read().gathered(cluster_role)
    }

    /// Resolves when a ClusterRole has changed since the last call.
    pub(crate) async fn cluster_roles_changed(&self) {
        self.cluster_roles_changed.notified().await;
    }

    /// Notified when a role or a binding has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until what was written at a revision is in force. False if it never will be.
    pub(crate) async fn wait_for(&self, resource: Resource, revision: Revision) -> bool {
        self.progress(resource).wait_for(revision).await
    }

    /// The progress of following a resource.
    pub(crate) fn progress(&self, resource: Resource) -> &Progress {
        match resource {
            Resource::ClusterRoleBindings => &self.cluster_role_bindings,
            Resource::ClusterRoles => &self.cluster_roles,
            Resource::RoleBindings => &self.role_bindings,
            Resource::Roles => &self.roles,
        }
    }
}

impl UserRules {
    pub(crate) fn n_rules(&self) -> usize {
        self.roles.iter().map(|rules| rules.len()).sum()
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").finish_non_exhaustive()
    }
}

impl Authorizer for Rbac {
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.decide(user, attributes))
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.decide(user, attributes)))
    }

    fn rules_for<'a>(&'a self, user: &'a User, namespace: &'a str) -> BoxFuture<'a, Rules> {
        let UserRules { roles, not_found } = self.rules_of(user, Some(namespace));
        let (mut rules, mut bytes) = (Rules::default(), 0_usize);
        for rule in roles.iter().flat_map(|rules| rules.iter()) {
            bytes = bytes.saturating_add(told_bytes(rule));
            if TOLD_BYTES_MAX < bytes {
                rules.is_incomplete = true;
                break;
            }
            let Rule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule.clone();
            if !resources.is_empty() {
                rules.resources.push(ResourceRule { verbs: verbs.clone(), api_groups, resources, resource_names });
            }
            if !non_resource_urls.is_empty() {
                rules.non_resources.push(NonResourceRule { verbs, paths: non_resource_urls });
            }
        }
        let mut errors: BTreeSet<String> = not_found.iter().map(RoleRef::not_found).collect();
        if rules.is_incomplete {
            errors.insert(format!(
                "the rules that apply to the user have more than {TOLD_BYTES_MAX} bytes; only the first of them are listed"
            ));
        }
        if !errors.is_empty() {
            rules.error = Some(aggregate(errors));
        }
        Box::pin(future::ready(rules))
    }
}

/// The approximate size of a listed rule in bytes.
fn told_bytes(rule: &Rule) -> usize {
    let Rule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule;
    let texts = [api_groups, non_resource_urls, resource_names, resources, verbs].into_iter().flatten();
    RULE_BYTES + texts.map(|text| text.len() + TEXT_BYTES).sum::<usize>()
}

/// Several errors in one text: a single one unchanged, several in brackets.
pub(crate) fn aggregate(texts: BTreeSet<String>) -> String {
    let texts: Vec<String> = texts.into_iter().collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authz::rbac::index::Entry;
    use serde_json::json;
    use steersman_machinery::{Object, ObjectKey};

    fn insert(rbac: &Rbac, resource: Resource, name: &str, object: &serde_json::Value) {
        let key = ObjectKey::cluster(name);
        let object = Arc::new(Object::decode(key.clone(), Revision(1), object.to_string().as_bytes()).unwrap());
        let entry = Entry::read(resource, &object).unwrap();
        rbac.index.write().insert(resource, &key, entry);
    }

    #[tokio::test]
    async fn a_review_of_very_many_rules_lists_the_first_and_says_that_it_is_incomplete() {
        let rbac = Rbac::default();
        let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}]);
        for role in 0..20 {
            let rule = |n: usize| json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [format!("c-{n}")], "verbs": ["get"]});
            let (name, rules): (String, Vec<_>) = (format!("r{role:03}"), (0..2_000).map(rule).collect());
            insert(&rbac, Resource::ClusterRoles, &name, &json!({"metadata": {"name": name}, "rules": rules}));
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
            let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
            insert(&rbac, Resource::ClusterRoleBindings, &name, &binding);
        }
        let alice = User::authenticated("alice", []);
        let rules = rbac.rules_for(&alice, "default").await;
        assert!(rules.is_incomplete);
        let error = rules.error.unwrap();
        assert_eq!(
            error,
            "the rules that apply to the user have more than 524288 bytes; only the first of them are listed"
        );
        assert!((5_000..10_000).contains(&rules.resources.len()), "{}", rules.resources.len());
        assert_eq!(rbac.rules_of(&alice, None).n_rules(), 40_000, "who grants something needs all of them");
        let nobody = rbac.rules_for(&User::authenticated("bob", []), "default").await;
        assert_eq!((nobody.is_incomplete, nobody.error, nobody.resources.len()), (false, None, 0));
    }
}
