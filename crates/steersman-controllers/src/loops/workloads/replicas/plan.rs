//! Plans the Pods to create or delete for an owner of replicas, and its status. Reads and writes nothing.

use crate::loops::workloads::replicas::kind::Desired;
use crate::shared::pods::{self, Availability};
use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

/// The most Pods that one reconcile creates or deletes, as upstream.
const BURST: usize = 500;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The action that brings the number of Pods closer to the desired one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Create(usize),
    Delete(usize),
    Nothing,
}

/// The reason and message of the condition `ReplicaFailure`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The numbers of Pods for the status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    replicas: usize,
    fully_labeled: usize,
    ready: usize,
    available: usize,
    terminating: Option<usize>,
    /// How soon a ready Pod becomes available.
    pub(crate) next_available: Option<Duration>,
}

/// The action due at this number of active Pods.
pub(crate) fn step(wanted: i32, n_active: usize) -> Step {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if n_active < wanted {
        Step::Create((wanted - n_active).min(BURST))
    } else if wanted < n_active {
        Step::Delete((n_active - wanted).min(BURST))
    } else {
        Step::Nothing
    }
}

/// The status after a step. It equals the known one to the byte if nothing has changed.
pub(crate) fn status(
    known: &ReplicaSetStatus,
    counts: &Counts,
    failure: Option<Failure>,
    generation: Option<i64>,
    now: Timestamp,
) -> ReplicaSetStatus {
    ReplicaSetStatus {
        available_replicas: count(counts.available),
        conditions: conditions(known.conditions.as_deref().unwrap_or_default(), failure, now),
        fully_labeled_replicas: count(counts.fully_labeled),
        observed_generation: generation.filter(|&generation| generation != 0),
        ready_replicas: count(counts.ready),
        replicas: capped(counts.replicas),
        terminating_replicas: counts.terminating.map(capped),
    }
}

/// Updates the conditions. A failure that is already reported keeps its first reason and time.
fn conditions(
    known: &[ReplicaSetCondition],
    failure: Option<Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let is_failure = |condition: &ReplicaSetCondition| condition.type_.as_deref() == Some(REPLICA_FAILURE);
    let is_said = known.iter().any(is_failure);
    let mut conditions = known.to_vec();
    match failure {
        None => conditions.retain(|condition| !is_failure(condition)),
        Some(_) if is_said => {}
        Some(Failure { reason, message }) => conditions.push(ReplicaSetCondition {
            last_transition_time: Some(Time(now)),
            message: Some(message),
            reason: Some(reason.to_owned()),
            status: Some("True".to_owned()),
            type_: Some(REPLICA_FAILURE.to_owned()),
        }),
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}

/// The count, or `None` for zero, which the API omits.
fn count(n: usize) -> Option<i32> {
    Some(capped(n)).filter(|&n| n != 0)
}

fn capped(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The number of active Pods on each node; Pods without a node are under an empty name.
pub(crate) fn count_by_node(pods: &[Arc<Pod>]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
        *counts.entry_ref(pods::node_name(pod).unwrap_or_default()).or_insert(0) += 1;
    }
    counts
}

// === impl Failure ===

impl Failure {
    pub(crate) const CREATE: &'static str = "FailedCreate";
    pub(crate) const DELETE: &'static str = "FailedDelete";
}

// === impl Counts ===

impl Counts {
    pub(crate) fn of(active: &[Arc<Pod>], terminating: Option<usize>, wanted: &Desired<'_>, now: Timestamp) -> Counts {
        let mut counts = Counts { replicas: active.len(), terminating, ..Counts::default() };
        let template = wanted.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        for pod in active {
            let has = |(key, value)| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value);
            if template.into_iter().flatten().all(has) {
                counts.fully_labeled += 1;
            }
            match pods::availability(pod, wanted.min_ready_seconds, now) {
                Availability::Available => {
                    counts.ready += 1;
                    counts.available += 1;
                }
                Availability::In(wait) => {
                    counts.ready += 1;
                    counts.next_available = Some(counts.next_available.map_or(wait, |known| known.min(wait)));
                }
                Availability::NotReady => counts.ready += usize::from(pods::is_ready(pod)),
            }
        }
        counts
    }
}
