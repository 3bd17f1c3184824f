//! The policies of one kind with their bindings, and the progress of following their changes.

use crate::shared::follower::Progress;
use crate::shared::operation::ResourceAttributes;
use crate::write::admission::action::Action;
use crate::write::admission::dynamic::matching::Index;
use crate::write::admission::dynamic::policy::definition::{Binding, Policy};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// One of the four resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::write::admission) enum Part {
    MutatingBindings,
    MutatingPolicies,
    ValidatingBindings,
    ValidatingPolicies,
}

/// A policy with the bindings that refer to it, at least one.
#[derive(Debug)]
pub(in crate::write::admission) struct Bound<P> {
    pub(in crate::write::admission) policy: Arc<P>,
    pub(in crate::write::admission) bindings: Vec<Arc<Binding>>,
}

/// Policies and bindings of one kind.
#[derive(Debug)]
pub(in crate::write::admission) struct Registered<P> {
    parts: Mutex<Parts<P>>,
    index: ArcSwap<Index<Bound<P>>>,
    policies: Progress,
    bindings: Progress,
}

#[derive(Debug)]
struct Parts<P> {
    policies: BTreeMap<Box<str>, Arc<P>>,
    bindings: BTreeMap<Box<str>, Arc<Binding>>,
}

/// A change of one object; `None` if it was deleted.
#[derive(Debug)]
pub(in crate::write::admission) enum Change<P> {
    Binding(Box<str>, Option<Arc<Binding>>),
    Policy(Box<str>, Option<Arc<P>>),
}

impl Part {
    pub(in crate::write::admission) const ALL: [Part; 4] =
        [Part::MutatingBindings, Part::MutatingPolicies, Part::ValidatingBindings, Part::ValidatingPolicies];

    pub(in crate::write::admission) fn find(plural: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.plural() == plural)
    }

    pub(in crate::write::admission) fn plural(self) -> &'static str {
        match self {
            Part::MutatingBindings => "mutatingadmissionpolicybindings",
            Part::MutatingPolicies => "mutatingadmissionpolicies",
            Part::ValidatingBindings => "validatingadmissionpolicybindings",
            Part::ValidatingPolicies => "validatingadmissionpolicies",
        }
    }

    pub(in crate::write::admission) fn is_mutating(self) -> bool {
        matches!(self, Part::MutatingBindings | Part::MutatingPolicies)
    }

    pub(in crate::write::admission) fn is_binding(self) -> bool {
        matches!(self, Part::MutatingBindings | Part::ValidatingBindings)
    }
}

impl<P> Default for Registered<P> {
    fn default() -> Registered<P> {
        Registered {
            parts: Mutex::new(Parts { policies: BTreeMap::new(), bindings: BTreeMap::new() }),
            index: ArcSwap::default(),
            policies: Progress::default(),
            bindings: Progress::default(),
        }
    }
}

impl<P: Policy> Registered<P> {
    /// The policies in effect.
    pub(in crate::write::admission) fn index(&self) -> Arc<Index<Bound<P>>> {
        self.index.load_full()
    }

    /// Whether a policy in effect may match a write. Allocates nothing.
    pub(in crate::write::admission) fn may_concern(&self, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        !self.index.load().find(action, attributes).is_empty()
    }

    /// Reads an object of one of the two resources.
    pub(in crate::write::admission) fn read(&self, part: Part, object: &Object) -> Change<P> {
        let name = (*object.key.name).into();
        let parsed: Option<Value> = serde_json::from_slice(object.json())
            .inspect_err(|error| tracing::error!(key = %object.key, %error, "a stored policy is not readable"))
            .ok();
        match part.is_binding() {
            true => Change::Binding(name, parsed.map(|binding| Arc::new(Binding::read(&binding)))),
            false => Change::Policy(name, parsed.map(|policy| Arc::new(P::read(&policy)))),
        }
    }

    /// The change for a deleted object.
    pub(in crate::write::admission) fn deletion(part: Part, object: &Object) -> Change<P> {
        let name = (*object.key.name).into();
        if part.is_binding() { Change::Binding(name, None) } else { Change::Policy(name, None) }
    }

    /// Applies changes; if `forgotten` is given, first removes all objects of that resource.
    pub(in crate::write::admission) fn change(&self, forgotten: Option<Part>, changes: Vec<Change<P>>) {
        let mut parts = self.parts.lock();
        match forgotten.map(Part::is_binding) {
            Some(true) => parts.bindings.clear(),
            Some(false) => parts.policies.clear(),
            None => {}
        }
        for change in changes {
            match change {
                Change::Binding(name, Some(binding)) => drop(parts.bindings.insert(name, binding)),
                Change::Binding(name, None) => drop(parts.bindings.remove(&name)),
                Change::Policy(name, Some(policy)) => drop(parts.policies.insert(name, policy)),
                Change::Policy(name, None) => drop(parts.policies.remove(&name)),
            }
        }
        self.index.store(Arc::new(parts.index()));
    }

    /// The progress of following one of the two resources.
    pub(in crate::write::admission) fn progress(&self, part: Part) -> &Progress {
        if part.is_binding() { &self.bindings } else { &self.policies }
    }
}

impl<P: Policy> Parts<P> {
    /// Policies with bindings, by the names of the policies.
    fn index(&self) -> Index<Bound<P>> {
        let mut bindings: HashMap<&str, Vec<Arc<Binding>>> = HashMap::new();
        for binding in self.bindings.values() {
            bindings.entry(&binding.policy).or_default().push(binding.clone());
        }
        let bound = self.policies.iter().filter_map(|(name, policy)| {
            let bindings = bindings.remove(&**name)?;
            Some(Arc::new(Bound { policy: policy.clone(), bindings }))
        });
        Index::new(bound.collect(), |bound| &bound.policy.definition().criteria)
    }
}
