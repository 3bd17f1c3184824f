//! Preemption: selects Pods of lower priority to delete from a node, so that a Pod fits there.
//!
//! Follows the plugin DefaultPreemption and `framework/preemption`: as few and as unimportant Pods as possible,
//! preferably without violating a PodDisruptionBudget.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{Pending, Placed, Preempts};
use crate::scheduler::cluster::{Budget, Cluster};
use crate::scheduler::configuration::Candidates;
use crate::scheduler::cycle::{Cycle, Diagnosis, PreFilterState, Refusal, Rejection, Remedy};
use crate::scheduler::plugins::filters::Plugin;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// The node and the Pods to delete from it.
#[derive(Debug)]
pub(crate) struct Preemption {
    pub(crate) node: Arc<str>,
    /// The Pods to delete, the most important first.
    pub(crate) victims: Vec<Arc<Placed>>,
}

/// Why no Pods are preempted.
#[derive(Debug)]
pub(crate) struct NoPreemption {
    /// The part of the Pod's condition that reports it; `None` if the profile preempts no Pods at all.
    pub(crate) message: Option<String>,
    pub(crate) nomination: Nomination,
    pub(crate) cause: Cause,
}

/// The kind of reason why no Pods are preempted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The preemption itself failed.
    Failure,
    Rejection,
}

/// The treatment of an earlier nomination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Nomination {
    Clear,
    Keep,
}

/// A node from which Pods could be deleted to make room for another.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) node: Arc<str>,
    /// The most important first.
    pub(crate) victims: Vec<Arc<Placed>>,
    /// The number of victims whose deletion violates a PodDisruptionBudget.
    pub(crate) n_violations: i64,
}

/// Finds the nodes on which Pods could be deleted for a Pod that found no node; at least one. `offset` is the index of
/// the node to begin with.
///
/// # Errors
/// Why no Pods are preempted.
pub(crate) fn candidates(
    cycle: &Cycle<'_>,
    around: &PreFilterState,
    diagnosis: &Diagnosis,
    offset: impl FnOnce(usize) -> usize,
) -> Result<Vec<Candidate>, NoPreemption> {
    let candidates_wanted = ensure_eligible(cycle.cluster, cycle.pending, diagnosis)?;
    let is_potential = |(_, rejection): &(&Arc<str>, &Rejection)| rejection.remedy == Remedy::Preemption;
    let potential: Vec<&Node> =
        diagnosis.rejections.iter().filter(is_potential).filter_map(|(name, _)| cycle.cluster.node(name)).collect();
    let wanted = (potential.len().saturating_mul(candidates_wanted.percent) / 100).max(candidates_wanted.min);
    let offset = if potential.is_empty() { 0 } else { offset(potential.len()) };
    let budgets: Vec<&Budget> = cycle.cluster.budgets.values().collect();
    let (mut candidates, mut rejections) = (Vec::new(), BTreeMap::new());
    for at in 0..potential.len() {
        let node = potential[(offset + at) % potential.len()];
        match select_victims(cycle, around, node, &budgets) {
            // The Pod fits without any deletion, as the next attempt will find.
            Ok(candidate) if candidate.victims.is_empty() => {}
            Ok(candidate) => candidates.push(candidate),
            Err(rejection) => {
                rejections.insert(Arc::clone(&node.name), rejection);
            }
        }
        if wanted <= candidates.len() && candidates.iter().any(|candidate| candidate.n_violations == 0) {
            break;
        }
    }
    match candidates.is_empty() {
        false => Ok(candidates),
        true => Err(no_candidate(Diagnosis::of(cycle.cluster.n_nodes(), rejections, NOT_HELPFUL))),
    }
}

/// Chooses the node on which the least is lost.
///
/// # Errors
/// When there is no candidate.
pub(crate) fn best_of(candidates: Vec<Candidate>) -> Result<Preemption, NoPreemption> {
    match candidates.into_iter().min_by_key(cost) {
        Some(Candidate { node, victims, .. }) => Ok(Preemption { node, victims }),
        None => Err(NoPreemption {
            message: Some("preemption: no candidate node for preemption".to_owned()),
            nomination: Nomination::Keep,
            cause: Cause::Rejection,
        }),
    }
}

/// The result when an extender could not be asked, or gave an answer that cannot be used.
pub(crate) fn failed(why: &str) -> NoPreemption {
    let message = Some(format!("preemption: {why}"));
    NoPreemption { message, nomination: Nomination::Keep, cause: Cause::Failure }
}

/// The result when no node was checked: preemption cannot help then.
pub(crate) fn not_helpful(cluster: &Cluster, pending: &Pending, diagnosis: &Diagnosis) -> NoPreemption {
    match ensure_eligible(cluster, pending, diagnosis) {
        Err(why) => why,
        Ok(_) => no_candidate(Diagnosis::of(cluster.n_nodes(), BTreeMap::new(), NOT_HELPFUL)),
    }
}

fn no_candidate(diagnosis: Diagnosis) -> NoPreemption {
    let message = Some(format!("preemption: {}", diagnosis.message()));
    NoPreemption { message, nomination: Nomination::Clear, cause: Cause::Rejection }
}

/// How many nodes to compare for a Pod that may preempt others.
fn ensure_eligible(cluster: &Cluster, pending: &Pending, diagnosis: &Diagnosis) -> Result<Candidates, NoPreemption> {
    let Some(candidates) = pending.profile.preemption else {
        let nomination = if pending.profile.deallocates { Nomination::Keep } else { Nomination::Clear };
        return Err(NoPreemption { message: None, nomination, cause: Cause::Rejection });
    };
    let refused = |why: &str| {
        let message = Some(format!("preemption: not eligible due to {why}"));
        Err(NoPreemption { message, nomination: Nomination::Keep, cause: Cause::Rejection })
    };
    if pending.preempts == Preempts::Never {
        return refused("preemptionPolicy=Never.");
    }
    let Some(nominated) = pending.nominated.as_deref() else { return Ok(candidates) };
    if diagnosis.rejections.get(nominated).is_some_and(|rejection| rejection.remedy == Remedy::None) {
        return Ok(candidates);
    }
    let makes_room = |pod: &Arc<Placed>| pod.is_preempted && pod.priority < pending.pod.priority;
    if cluster.node(nominated).is_some_and(|node| node.pods.iter().any(makes_room)) {
        return refused("a terminating pod on the nominated node.");
    }
    Ok(candidates)
}

/// The order of candidates: budget violations, then priorities, then the number of Pods, then the shortest run time.
fn cost(candidate: &Candidate) -> (i64, i32, i64, usize, Reverse<i128>) {
    let priorities = candidate.victims.iter().map(|pod| pod.priority);
    let highest = priorities.clone().max().unwrap_or(i32::MIN);
    // Each summand is positive, so that more Pods never cost less.
    let sum = priorities.map(|priority| i64::from(priority) + i64::from(i32::MAX) + 1).sum();
    let earliest = candidate.victims.iter().filter(|pod| pod.priority == highest).map(|pod| pod.started).min();
    (candidate.n_violations, highest, sum, candidate.victims.len(), Reverse(earliest.unwrap_or_default()))
}

/// The fewest Pods to delete from a node.
fn select_victims(
    cycle: &Cycle<'_>,
    around: &PreFilterState,
    node: &Node,
    budgets: &[&Budget],
) -> Result<Candidate, Rejection> {
    let own = cycle.pending.pod.priority;
    let mut potential: Vec<Arc<Placed>> = node.pods.iter().filter(|pod| pod.priority < own).cloned().collect();
    if potential.is_empty() {
        let reasons = vec![NO_VICTIMS.into()];
        return Err(Rejection { plugin: Plugin::NodeResourcesFit, remedy: Remedy::None, reasons });
    }
    let (mut node, mut around) = (node.clone(), around.clone());
    for pod in &potential {
        node.remove(pod);
        cycle.change(&mut around, pod, &node, -1);
    }
    cycle.allows(&around, &node).map_err(|refusal| match refusal {
        Refusal::Rejected(rejection) => rejection,
        Refusal::Failed(why) => {
            Rejection { plugin: Plugin::NodeResourcesFit, remedy: Remedy::None, reasons: vec![why.into()] }
        }
    })?;
    potential.sort_by_key(|pod| (Reverse(pod.priority), pod.started));
    let (violating, others) = split_by_budgets(potential, budgets);
    let (mut victims, mut n_violations) = (Vec::new(), 0);
    let n_violating = violating.len();
    for (at, pod) in violating.into_iter().chain(others).enumerate() {
        node.add(&pod);
        cycle.change(&mut around, &pod, &node, 1);
        if cycle.allows(&around, &node).is_err() {
            node.remove(&pod);
            cycle.change(&mut around, &pod, &node, -1);
            n_violations += i64::from(at < n_violating);
            victims.push(pod);
        }
    }
    victims.sort_by_key(|pod| (Reverse(pod.priority), pod.started));
    Ok(Candidate { node: Arc::clone(&node.name), victims, n_violations })
}

/// Splits Pods into those whose deletion would violate a budget, and the others.
fn split_by_budgets(pods: Vec<Arc<Placed>>, budgets: &[&Budget]) -> (Vec<Arc<Placed>>, Vec<Arc<Placed>>) {
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut is_violated = false;
        let identity = &pod.identity;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let applies = budget.namespace == identity.namespace
                && !identity.labels.is_empty()
                && !budget.selector.is_empty()
                && budget.selector.matches(&identity.labels)
                && !budget.disrupted.iter().any(|name| name == pod.key.name());
            if applies {
                *left -= 1;
                is_violated |= *left < 0;
            }
        }
        is_violated
    })
}
