//! The authorizers of a server and their order.
//!
//! The first authorizer that allows or denies decides; if none does, the request is denied with the reasons of all.
//! Members of `system:masters` are allowed first, as in kube-apiserver, so that no mistake in a role or a webhook locks
//! out the administrator.

use crate::access::authz::node::Nodes;
use crate::access::authz::rbac::Rbac;
use crate::access::authz::{Authorizer, Decision, NonResourceRule, Reason, ResourceRule, Rules, Verdict};
use crate::shared::operation::Attributes;
use futures::future::{self, BoxFuture};
use std::sync::Arc;
use steersman_kinds::user::{MASTERS, User};

/// How a server authorizes requests.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// Only the embedder's authorizer: it decides about members of `system:masters` too.
    Custom(Arc<dyn Authorizer>),
    /// These authorizers, in this order.
    Modes(Vec<Mode>),
}

/// An authorizer, by its name in `--authorization-mode`.
#[derive(Clone, Debug)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    /// The node authorizer, which decides by the pods on a node.
    Node,
    /// An authorizer of the embedder, such as a webhook.
    Other(Arc<dyn Authorizer>),
    /// The roles and bindings in the store.
    Rbac,
}

/// Calls several authorizers in turn.
#[derive(Debug)]
struct Union(Vec<Arc<dyn Authorizer>>);

/// Gives the same verdict on every request.
#[derive(Debug)]
struct Always(Verdict);

/// Allows every request of members of `system:masters`.
#[derive(Debug)]
struct Privileged;

impl Default for Authorization {
    /// The node authorizer and RBAC.
    fn default() -> Authorization {
        Authorization::Modes(vec![Mode::Node, Mode::Rbac])
    }
}

impl Authorization {
    /// Whether the node authorizer is used.
    pub(crate) fn has_nodes(&self) -> bool {
        matches!(self, Authorization::Modes(modes) if modes.iter().any(|mode| matches!(mode, Mode::Node)))
    }

    /// The authorizer, with these roles and bindings, and this graph of nodes.
    pub(crate) fn authorizer(self, rbac: &Arc<Rbac>, nodes: &Arc<Nodes>) -> Arc<dyn Authorizer> {
        let modes = match self {
            Authorization::Custom(authorizer) => return authorizer,
            Authorization::Modes(modes) => modes,
        };
        let authorizers = modes.into_iter().map(|mode| match mode {
            Mode::AlwaysAllow => Arc::new(Always(Verdict::ALLOW)) as Arc<dyn Authorizer>,
            Mode::AlwaysDeny => {
                let reason = "Everything is forbidden.".into();
                Arc::new(Always(Verdict { reason, ..Verdict::NO_OPINION }))
            }
            Mode::Node => nodes.clone(),
            Mode::Other(authorizer) => authorizer,
            Mode::Rbac => rbac.clone(),
        });
        Arc::new(Union(std::iter::once(Arc::new(Privileged) as Arc<dyn Authorizer>).chain(authorizers).collect()))
    }
}

impl Mode {
    /// The mode with this name, if it needs no further settings.
    pub fn named(name: &str) -> Option<Mode> {
        match name {
            "AlwaysAllow" => Some(Mode::AlwaysAllow),
            "AlwaysDeny" => Some(Mode::AlwaysDeny),
            "Node" => Some(Mode::Node),
            "RBAC" => Some(Mode::Rbac),
            _ => None,
        }
    }
}

// === impl Union ===

/// The verdicts without a decision.
#[derive(Debug, Default)]
struct Undecided {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Undecided {
    /// The verdict, if it decides; otherwise it is recorded.
    fn decided(&mut self, verdict: Verdict) -> Option<Verdict> {
        if verdict.decision != Decision::NoOpinion {
            return Some(verdict);
        }
        if !verdict.reason.is_empty() {
            self.reasons.push(verdict.reason.to_string());
        }
        self.errors.extend(verdict.error);
        None
    }

    fn verdict(self) -> Verdict {
        let reason = if self.reasons.is_empty() { Reason::NONE } else { self.reasons.join("\n").into() };
        Verdict { decision: Decision::NoOpinion, reason, error: one_text(self.errors) }
    }
}

/// Several errors in one text.
fn one_text(errors: Vec<String>) -> Option<String> {
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

impl Authorizer for Union {
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        let mut undecided = Undecided::default();
        for authorizer in &self.0 {
            if let Some(verdict) = undecided.decided(authorizer.authorize_now(user, attributes)?) {
                return Some(verdict);
            }
        }
        Some(undecided.verdict())
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let mut undecided = Undecided::default();
            for authorizer in &self.0 {
                let verdict = crate::access::authz::verdict(&**authorizer, user, attributes).await;
                if let Some(verdict) = undecided.decided(verdict) {
                    return verdict;
                }
            }
            undecided.verdict()
        })
    }

    fn rules_for<'a>(&'a self, user: &'a User, namespace: &'a str) -> BoxFuture<'a, Rules> {
        Box::pin(async move {
            let (mut all, mut errors) = (Rules::default(), Vec::new());
            for authorizer in &self.0 {
                let rules = authorizer.rules_for(user, namespace).await;
                all.resources.extend(rules.resources);
                all.non_resources.extend(rules.non_resources);
                all.is_incomplete |= rules.is_incomplete;
                errors.extend(rules.error);
            }
            all.error = one_text(errors);
            all
        })
    }
}

// === impl Always ===

impl Authorizer for Always {
    fn authorize_now(&self, _: &User, _: &Attributes<'_>) -> Option<Verdict> {
        Some(self.0.clone())
    }

    fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.0.clone()))
    }

    fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        let all = || vec!["*".to_owned()];
        let mut rules = Rules::default();
        if self.0.is_allowed() {
            let resource_names = Vec::new();
            let resource = ResourceRule { verbs: all(), api_groups: all(), resources: all(), resource_names };
            rules.resources.push(resource);
            rules.non_resources.push(NonResourceRule { verbs: all(), paths: all() });
        }
        Box::pin(future::ready(rules))
    }
}

// === impl Privileged ===

impl Authorizer for Privileged {
    fn authorize_now(&self, user: &User, _: &Attributes<'_>) -> Option<Verdict> {
        Some(if user.is_in(MASTERS) { Verdict::ALLOW } else { Verdict::NO_OPINION })
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.authorize_now(user, attributes).unwrap_or(Verdict::NO_OPINION)))
    }

    /// Empty: the administrator's rules are listed through the binding `cluster-admin`.
    fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        Box::pin(future::ready(Rules::default()))
    }
}
