//! Plans the writes for a StatefulSet from the current state. Pure.
//!
//! Follows upstream's `stateful_set_control.go`. Ordered management takes one step at a time: Pods are created from the
//! first ordinal on, each when all before it are available; surplus Pods are deleted from the last ordinal on, and only
//! then are Pods of older templates replaced. Parallel management does not wait. Missing replicas are not kept in
//! memory, since a set may ask for two billion of them.

use crate::loops::scaling::scaled::{self, Round};
use crate::loops::workloads::history;
use crate::loops::workloads::statefulset::claims::{self, ClaimChanges, Find};
use crate::loops::workloads::statefulset::identity;
use crate::shared::pods::{self, Availability};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most Pods that one pass creates.
pub(crate) const BURST: usize = 500;

/// A current or former template of the set.
#[derive(Clone, Copy)]
pub(crate) struct Revision<'a> {
    /// The name of its ControllerRevision.
    pub(crate) name: &'a str,
    pub(crate) template: &'a PodTemplateSpec,
}

/// A StatefulSet with the input of all decisions.
pub(crate) struct State<'a> {
    pub(crate) set: &'a StatefulSet,
    /// The revision before the update in progress.
    pub(crate) current: Revision<'a>,
    /// The revision of the current template.
    pub(crate) update: Revision<'a>,
    pub(crate) n_collisions: i32,
    pub(crate) pods: &'a [Arc<Pod>],
    pub(crate) claims: &'a Find<'a>,
    pub(crate) now: Timestamp,
}

/// A single action.
#[derive(Debug)]
pub(crate) enum Step {
    /// Creates or updates the claims of a Pod.
    Claims(Arc<Pod>, ClaimChanges),
    /// Creates a Pod, after its claims.
    Create(Box<Pod>, ClaimChanges),
    Delete(Arc<Pod>),
    /// Restores the identity and the volumes of a Pod, after its claims.
    Update(Box<Pod>, ClaimChanges),
}

/// The actions of one pass.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Phases run in order. If one fails, those after it are skipped.
    pub(crate) phases: Vec<Vec<Step>>,
    /// Whether the steps of a phase run concurrently.
    pub(crate) is_parallel: bool,
    /// Pods of older templates that are deleted at the end. Each lowers the number of current replicas in the status by
    /// one.
    pub(crate) outdated: Vec<Arc<Pod>>,
    pub(crate) status: StatefulSetStatus,
    /// When a ready Pod becomes available.
    pub(crate) again: Option<Duration>,
}

/// The Pods of a set by their index.
struct Replicas<'a> {
    /// The Pods to keep by index, from 0 on.
    kept: BTreeMap<i64, &'a Arc<Pod>>,
    /// The Pods beyond the replicas, the last ordinal first.
    condemned: Vec<&'a Arc<Pod>>,
}

/// Whether ordered management goes on to the next Pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    Go,
    Wait,
}

// === impl State ===

impl<'a> State<'a> {
    pub(crate) fn plan(&self) -> Plan {
        let is_parallel = self.set.spec.pod_management_policy.as_deref() == Some("Parallel");
        let mut plan = Plan {
            phases: Vec::new(),
            is_parallel,
            outdated: Vec::new(),
            status: self.status(self.pods.iter()),
            again: self.soonest(),
        };
        if self.set.metadata.deletion_timestamp.is_some() {
            return plan;
        }
        let replicas = Replicas::of(self.set, self.pods);
        plan.status = self.status(replicas.kept.values().copied().chain(replicas.condemned.iter().copied()));

        let (steps, next) = if is_parallel { self.all_at_once(&replicas) } else { self.in_order(&replicas) };
        plan.phases.push(steps);
        if next == Next::Wait {
            return plan;
        }
        let fixed = replicas.condemned.iter().filter(|pod| !claims::are_owned_as_wanted(self.set, pod, self.claims));
        let owned = |pod: &&Arc<Pod>| ClaimChanges::default().and_owners(self.set, pod, self.claims);
        plan.phases.push(fixed.map(|pod| Step::Claims(Arc::clone(pod), owned(pod))).collect());

        if is_parallel {
            let going = replicas.condemned.iter().filter(|pod| !pods::is_terminating(pod));
            plan.phases.push(going.map(|pod| Step::Delete(Arc::clone(pod))).collect());
        } else if let Some(last) = replicas.condemned.first() {
            plan.phases.push(self.condemn(last, &replicas));
            return plan;
        }
        plan.outdated = self.outdated(&replicas);
        plan
    }

    /// The steps of ordered management, up to the first Pod that all others have to wait for.
    fn in_order(&self, replicas: &Replicas<'_>) -> (Vec<Step>, Next) {
        let mut steps = Vec::new();
        for index in 0..identity::replicas(self.set) {
            let Some(pod) = replicas.kept.get(&index) else {
                steps.extend(self.creation(index));
                return (steps, Next::Wait);
            };
            if self.step(pod, &mut steps) == Next::Wait || !self.is_running(pod) {
                return (steps, Next::Wait);
            }
            steps.extend(self.repair(pod));
        }
        (steps, Next::Go)
    }

    /// The steps of parallel management: all that is due for any Pod.
    fn all_at_once(&self, replicas: &Replicas<'_>) -> (Vec<Step>, Next) {
        let mut steps = Vec::new();
        for pod in replicas.kept.values() {
            if self.step(pod, &mut steps) == Next::Go {
                steps.extend(self.repair(pod));
            }
        }
        let is_missing = |index: &i64| !replicas.kept.contains_key(index);
        let mut missing = (0..identity::replicas(self.set)).filter(is_missing);
        steps.extend(missing.by_ref().take(BURST).filter_map(|index| self.creation(index)));
        // The created Pods wake the set, which then creates the next ones.
        let next = if missing.next().is_some() { Next::Wait } else { Next::Go };
        (steps, next)
    }

    /// Adds the step that an existing Pod needs, if any.
    fn step(&self, pod: &Arc<Pod>, steps: &mut Vec<Step>) -> Next {
        if pods::is_terminal(pod) {
            // The replacement is created when this Pod is gone.
            if !pods::is_terminating(pod) {
                steps.push(Step::Delete(Arc::clone(pod)));
            }
            return Next::Wait;
        }
        if pods::phase(pod) == "Pending" {
            let work = ClaimChanges::missing(self.set, pod, self.claims).and_owners(self.set, pod, self.claims);
            if !work.is_nothing() {
                steps.push(Step::Claims(Arc::clone(pod), work));
            }
        }
        Next::Go
    }

    /// Whether the Pods after this one may be created.
    fn is_running(&self, pod: &Pod) -> bool {
        !pods::is_terminating(pod) && pods::phase(pod) == "Running" && self.is_available(pod)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.availability(pod) == Availability::Available
    }

    fn availability(&self, pod: &Pod) -> Availability {
        pods::availability(pod, self.set.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        pods::is_terminating(pod) || !self.is_available(pod)
    }

    /// The creation of a Pod; `None` while a claim of an earlier Pod of this name is in the way.
    fn creation(&self, index: i64) -> Option<Step> {
        let ordinal = identity::start(self.set).saturating_add(index);
        let Revision { name, template } = self.revision_of_new(index);
        let pod = identity::new_pod(self.set, template, name, ordinal);
        if claims::is_stale(self.set, &pod, self.claims) {
            return None;
        }
        let work = ClaimChanges::missing(self.set, &pod, self.claims).and_owners(self.set, &pod, self.claims);
        Some(Step::Create(Box::new(pod), work))
    }

    /// The revision of a Pod that is created during an update, which depends on its index and the partition.
    fn revision_of_new(&self, index: i64) -> Revision<'a> {
        let strategy = self.set.spec.update_strategy.as_ref();
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate");
        let n_current = match strategy.and_then(|strategy| strategy.rolling_update.as_ref()) {
            Some(rolling) => rolling.partition.unwrap_or(0),
            None if is_rolling => self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0),
            None => 0,
        };
        if index < i64::from(n_current) { self.current } else { self.update }
    }

    /// Restores the parts of a Pod that must not change.
    fn repair(&self, pod: &Arc<Pod>) -> Option<Step> {
        let has_identity = identity::has_identity(self.set, pod);
        let has_storage = identity::has_storage(self.set, pod);
        if has_identity && has_storage && claims::are_owned_as_wanted(self.set, pod, self.claims) {
            return None;
        }
        let mut changed = (**pod).clone();
        let mut work = ClaimChanges::default();
        if !has_identity {
            identity::set_identity(self.set, &mut changed);
        }
        if !has_storage {
            identity::set_storage(self.set, &mut changed);
            work = ClaimChanges::missing(self.set, &changed, self.claims);
        }
        let work = work.and_owners(self.set, &changed, self.claims);
        Some(Step::Update(Box::new(changed), work))
    }

    /// The deletion of surplus Pods under ordered management: the last one is deleted, unless another unavailable one
    /// has to recover first. A terminated Pod does not delay others; upstream waits forever if there are two.
    fn condemn(&self, last: &Arc<Pod>, replicas: &Replicas<'_>) -> Vec<Step> {
        let mut lowest_first = replicas.condemned.iter().rev();
        let first_in_trouble = lowest_first.find(|pod| self.is_unavailable(pod));
        let is_first_in_trouble = first_in_trouble.is_some_and(|pod| Arc::ptr_eq(pod, last));
        let is_well = self.is_running(last) || pods::is_terminal(last);
        let may_go = !pods::is_terminating(last) && (is_well || is_first_in_trouble);
        if may_go { vec![Step::Delete(Arc::clone(last))] } else { Vec::new() }
    }

    /// The Pods of older templates that may be deleted now. The partition counts indices, as upstream, and not
    /// ordinals.
    fn outdated(&self, replicas: &Replicas<'_>) -> Vec<Arc<Pod>> {
        let strategy = self.set.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return Vec::new();
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = i64::from(rolling.and_then(|rolling| rolling.partition).unwrap_or(0));
        let outdated = replicas.kept.iter().rev().take_while(|(index, _)| **index >= partition);
        match rolling.and_then(|rolling| self.unavailable_max(rolling)) {
            Some(unavailable_max) => {
                let n = identity::replicas(self.set);
                let n_available = replicas.kept.values().filter(|pod| !self.is_unavailable(pod)).count();
                let n_unavailable = n.saturating_sub(i64::try_from(n_available).unwrap_or(i64::MAX));
                let n_left = usize::try_from(unavailable_max.saturating_sub(n_unavailable)).unwrap_or(0);
                let outdated = outdated.filter(|(_, pod)| self.is_outdated(pod));
                outdated.take(n_left).map(|(_, pod)| Arc::clone(pod)).collect()
            }
            None => {
                // The last outdated Pod, if all after it exist and are available.
                let mut expected = identity::replicas(self.set);
                for (index, pod) in outdated {
                    expected -= 1;
                    if *index != expected {
                        return Vec::new();
                    }
                    if self.is_outdated(pod) {
                        return vec![Arc::clone(pod)];
                    }
                    if self.is_unavailable(pod) {
                        return Vec::new();
                    }
                }
                Vec::new()
            }
        }
    }

    fn is_outdated(&self, pod: &Pod) -> bool {
        history::pod_revision(pod) != Some(self.update.name) && !pods::is_terminating(pod)
    }

    /// How many Pods may be unavailable during an update. `None` if unset, as the server leaves it unless the feature
    /// `MaxUnavailableStatefulSet` is on: then Pods are replaced one by one, including those that never became
    /// available.
    fn unavailable_max(&self, rolling: &RollingUpdateStatefulSetStrategy) -> Option<i64> {
        let value = rolling.max_unavailable.as_ref()?;
        Some(scaled::number(value, identity::replicas(self.set), Round::Down).unwrap_or(1).max(1))
    }

    fn status<'p>(&self, pods: impl Iterator<Item = &'p Arc<Pod>>) -> StatefulSetStatus {
        let (mut n, mut n_ready, mut n_available, mut n_current, mut n_updated) = (0, 0, 0, 0, 0);
        for pod in pods.filter(|pod| !pods::phase(pod).is_empty()) {
            n += 1;
            let is_ready = pods::phase(pod) == "Running" && pods::is_ready(pod);
            n_ready += i32::from(is_ready);
            n_available += i32::from(is_ready && self.is_available(pod));
            if !pods::is_terminating(pod) {
                let revision = history::pod_revision(pod);
                n_current += i32::from(revision == Some(self.current.name));
                n_updated += i32::from(revision == Some(self.update.name));
            }
        }
        StatefulSetStatus {
            available_replicas: Some(n_available),
            collision_count: Some(self.n_collisions),
            conditions: None,
            current_replicas: Some(n_current),
            current_revision: Some(self.current.name.to_owned()),
            observed_generation: self.set.metadata.generation,
            ready_replicas: Some(n_ready),
            replicas: n,
            update_revision: Some(self.update.name.to_owned()),
            updated_replicas: Some(n_updated),
        }
    }

    fn soonest(&self) -> Option<Duration> {
        let left = |pod: &Arc<Pod>| match self.availability(pod) {
            Availability::In(left) => Some(left),
            Availability::Available | Availability::NotReady => None,
        };
        self.pods.iter().filter_map(left).min()
    }
}

impl<'a> Replicas<'a> {
    fn of(set: &StatefulSet, pods: &'a [Arc<Pod>]) -> Replicas<'a> {
        let mut replicas = Replicas { kept: BTreeMap::new(), condemned: Vec::new() };
        for pod in pods {
            match identity::index(set, pod) {
                Some(index) => drop(replicas.kept.insert(index, pod)),
                // A Pod without an ordinal is not managed by the set.
                None if identity::ordinal(pod).is_none() => {}
                None => replicas.condemned.push(pod),
            }
        }
        replicas.condemned.sort_by_key(|pod| Reverse(identity::ordinal(pod)));
        replicas
    }
}

/// Completes an update whose Pods all exist, and omits zero values as the server does.
pub(crate) fn complete_rolling_update(set: &StatefulSet, mut status: StatefulSetStatus) -> StatefulSetStatus {
    let is_rolling =
        set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate");
    let wanted = set.spec.replicas.unwrap_or(1);
    let counts = [status.updated_replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0), status.replicas];
    if is_rolling && counts.iter().all(|count| *count == wanted) {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    for count in [&mut status.current_replicas, &mut status.ready_replicas, &mut status.updated_replicas] {
        *count = count.filter(|count| *count > 0);
    }
    status
}

/// Whether a status has to be written because its generation, counts or revisions differ. Other differences are not
/// worth a write.
pub(crate) fn differs(known: Option<&StatefulSetStatus>, status: &StatefulSetStatus) -> bool {
    let Some(known) = known else { return true };
    let counts = |status: &StatefulSetStatus| {
        let optional =
            [status.available_replicas, status.current_replicas, status.ready_replicas, status.updated_replicas];
        (status.replicas, optional.map(Option::unwrap_or_default))
    };
    status.observed_generation > known.observed_generation
        || counts(status) != counts(known)
        || status.current_revision != known.current_revision
        || status.update_revision != known.update_revision
}

#[cfg(test)]
mod tests;
