//! The order in which an owner with too many Pods deletes them.
//!
//! Follows upstream's `ActivePodsWithRanks`.

use crate::shared::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::sync::Arc;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The rank of a Pod. The Pod with the lowest rank is deleted first.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    deletion_cost: i32,
    /// Pods with more related Pods on the same node are deleted first.
    n_on_same_node: Reverse<usize>,
    /// Pods that became ready later are deleted first. Ages are compared by powers of two, so that later criteria
    /// decide among Pods of similar age.
    ready_for: u32,
    restarts: Reverse<i32>,
    created_for: u32,
}

/// The rank of a Pod; `n_on_same_node` is the number of related Pods on its node.
pub(crate) fn rank(pod: &Pod, n_on_same_node: usize, now: Timestamp) -> Rank {
    Rank {
        is_assigned: pods::node_name(pod).is_some(),
        phase: match pods::phase(pod) {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        },
        is_ready: pods::is_ready(pod),
        deletion_cost: deletion_cost(pod),
        n_on_same_node: Reverse(n_on_same_node),
        ready_for: if pods::is_ready(pod) { age(pods::ready_since(pod), now) } else { 0 },
        restarts: Reverse(restarts(pod)),
        created_for: age(pod.metadata.creation_timestamp.as_ref().map(|time| time.0), now),
    }
}

/// The logarithm of an age in seconds. An unknown start counts as now.
fn age(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let Some(since) = since else { return 0 };
    let seconds = now.duration_since(since).as_secs();
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map_or(0, |seconds| seconds.ilog2() + 1)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The highest restart count of a container.
fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let of = |statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
    };
    of(status.and_then(|status| status.container_statuses.as_ref()))
        .max(of(status.and_then(|status| status.init_container_statuses.as_ref())))
}

/// Sorts Pods in the order of deletion. Pods of equal rank are ordered by name, so that the result is deterministic.
pub(crate) fn sort(pods: &mut [Arc<Pod>], n_on_same_node: impl Fn(&Pod) -> usize, now: Timestamp) {
    pods.sort_by_cached_key(|pod| (rank(pod, n_on_same_node(pod), now), pod.metadata.name.clone()));
}
