//! Authorization by roles and bindings (RBAC), as Kubernetes' `plugin/pkg/auth/authorizer/rbac` decides it.
//!
//! [`Rbac`] holds what the Roles, ClusterRoles and their bindings in the store say, compiled by subject: a decision looks up the
//! user and the groups of the request, and costs nothing for bindings of others. Tasks of the server follow the four resources
//! (`follower`). Writing one of them waits until it is in force ([`Rbac::wait_for`]), so that its writer's next request is
//! decided by it.
//!
//! What a role may contain is checked in `builtin/access`, who may write one in `registry/escalation`.

pub(crate) mod binding;
pub(crate) mod covers;
pub(crate) mod follower;
mod index;
pub(crate) mod resource;
pub(crate) mod rule;

use crate::authz::rbac::binding::RoleRef;
use crate::authz::rbac::index::Index;
use crate::authz::rbac::resource::Resource;
use crate::authz::rbac::rule::Rule;
use crate::authz::{
    Attributes, Authorizer, Decision, NonResourceRule, Reason, ResourceAttributes, ResourceRule, Rules, Verdict,
};
use crate::follower::Progress;
use crate::user::User;
use futures::future::{self, BoxFuture};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use steersman_machinery::Revision;
use tokio::sync::Notify;

/// The roles and bindings in force.
#[derive(Default)]
pub(crate) struct Rbac {
    index: RwLock<Index>,
    cluster_role_bindings: Progress,
    cluster_roles: Progress,
    role_bindings: Progress,
    roles: Progress,
    /// Notified when a ClusterRole has changed.
    cluster_roles_changed: Notify,
}

// === impl Rbac ===

impl Rbac {
    /// Whether a request is allowed, and by which binding.
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let namespace = match attributes {
            Attributes::NonResource { .. } => None,
            Attributes::Resource(ResourceAttributes { namespace, .. }) => *namespace,
        };
        let mut not_found = BTreeSet::new();
        let index = self.index.read();
        let allowed = index.visit(user, namespace, |held| match held.rules {
            Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                held.grants.first().map_or(ControlFlow::Continue(()), |grant| ControlFlow::Break(grant.clone()))
            }
            Some(_) => ControlFlow::Continue(()),
            None => {
                not_found.insert(held.role.not_found());
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

    /// All rules that apply to a user in a namespace, and the roles that bindings name and that do not exist.
    pub(crate) fn rules_of(&self, user: &User, namespace: Option<&str>) -> (Vec<Rule>, BTreeSet<RoleRef>) {
        let (mut rules, mut not_found) = (Vec::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        let index = self.index.read();
        let _: ControlFlow<()> = index.visit(user, namespace, |held| {
            match held.rules {
                // A binding may have several subjects that are the user, and counts once.
                Some(found) => {
                    for grant in held.grants {
                        if seen.insert(grant.binding_address()) {
                            rules.extend(found.iter().cloned());
                        }
                    }
                }
                None => {
                    not_found.insert(held.role.clone());
                }
            }
            ControlFlow::Continue(())
        });
        (rules, not_found)
    }

    /// The rules of a role, named from a namespace or from the cluster.
    pub(crate) fn rules_of_role(&self, role: &RoleRef, namespace: Option<&str>) -> Option<Arc<[Rule]>> {
        self.index.read().rules(role, namespace)
    }

    /// The names of the aggregated ClusterRoles.
    pub(crate) fn aggregated(&self) -> Vec<Box<str>> {
        self.index.read().aggregated()
    }

    /// The rules that an aggregated ClusterRole should have, if they are not those that it has.
    pub(crate) fn gathered(&self, cluster_role: &str) -> Option<Vec<Rule>> {
        self.index.read().gathered(cluster_role)
    }

    /// Resolves when a ClusterRole has changed since the last call.
    pub(crate) async fn cluster_roles_changed(&self) {
        self.cluster_roles_changed.notified().await;
    }

    /// Waits until what was written at a revision is in force. False if it never will be.
    pub(crate) async fn wait_for(&self, resource: Resource, revision: Revision) -> bool {
        self.progress(resource).wait_for(revision).await
    }

    fn progress(&self, resource: Resource) -> &Progress {
        match resource {
            Resource::ClusterRoleBindings => &self.cluster_role_bindings,
            Resource::ClusterRoles => &self.cluster_roles,
            Resource::RoleBindings => &self.role_bindings,
            Resource::Roles => &self.roles,
        }
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
        let (found, not_found) = self.rules_of(user, Some(namespace));
        let mut rules = Rules::default();
        for Rule { api_groups, non_resource_urls, resource_names, resources, verbs } in found {
            if !resources.is_empty() {
                rules.resources.push(ResourceRule { verbs: verbs.clone(), api_groups, resources, resource_names });
            }
            if !non_resource_urls.is_empty() {
                rules.non_resources.push(NonResourceRule { verbs, paths: non_resource_urls });
            }
        }
        if !not_found.is_empty() {
            rules.error = Some(aggregate(not_found.iter().map(RoleRef::not_found).collect()));
        }
        Box::pin(future::ready(rules))
    }
}

/// Several errors in one text: one alone as it is, several in brackets.
pub(crate) fn aggregate(texts: BTreeSet<String>) -> String {
    let texts: Vec<String> = texts.into_iter().collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
