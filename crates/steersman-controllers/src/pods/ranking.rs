//! In which order an owner with too many Pods gives them up.
//!
//! Follows upstream's `ActivePodsWithRanks`.

use crate::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::sync::Arc;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What decides how soon a Pod is given up: the smaller, the sooner.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    deletion_cost: i32,
    /// Where more related Pods are on the same node, one goes sooner.
    n_on_same_node: Reverse<usize>,
    /// One that became ready later goes sooner. The time is that of a power of two, so that Pods of like age go by chance.
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

/// The logarithm of an age in seconds. What has no beginning has just begun.
fn age(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let Some(since) = since else { return 0 };
    let seconds = now.duration_since(since).as_secs();
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map_or(0, |seconds| seconds.ilog2() + 1)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The most restarts of a container.
fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let of = |statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
    };
    of(status.and_then(|status| status.container_statuses.as_ref()))
        .max(of(status.and_then(|status| status.init_container_statuses.as_ref())))
}

/// Puts those that go first at the beginning. Those of one rank go by name, so that the outcome is certain.
pub(crate) fn sort(pods: &mut [Arc<Pod>], n_on_same_node: impl Fn(&Pod) -> usize, now: Timestamp) {
    pods.sort_by_cached_key(|pod| (rank(pod, n_on_same_node(pod), now), pod.metadata.name.clone()));
}
