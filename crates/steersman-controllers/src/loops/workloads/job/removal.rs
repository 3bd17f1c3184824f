//! Chooses which active Pods of a Job to delete when there are too many.
//!
//! Follows upstream's `activePodsForRemoval` and `ActivePods`.

use crate::loops::workloads::job::index;
use crate::shared::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The Pods to remove: at least `n_min`. In an Indexed Job with this number of completions, Pods without an index or
/// with one that is not wanted are included, and all but one Pod of each index.
pub(crate) fn order(active: &[Arc<Pod>], completions: Option<i32>, n_min: usize) -> Vec<Arc<Pod>> {
    let (mut removed, mut left) = match completions {
        None => (Vec::new(), active.to_vec()),
        Some(completions) => without_repetitions(active, completions),
    };
    left.sort_by_cached_key(|pod| rank(pod));
    removed.extend(left.into_iter().take(n_min.saturating_sub(removed.len())));
    removed
}

/// The Pods to remove, and the others.
fn without_repetitions(active: &[Arc<Pod>], completions: i32) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut by_index: BTreeMap<i32, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in active {
        match index::within(pod, completions) {
            Some(at) => by_index.entry(at).or_default().push(pod.clone()),
            None => removed.push(pod.clone()),
        }
    }
    for mut same in by_index.into_values() {
        same.sort_by_cached_key(|pod| rank(pod));
        left.extend(same.pop());
        removed.extend(same);
    }
    (removed, left)
}

/// The Pod with the lowest rank is removed first: without a node, not running, not ready, ready for a shorter time,
/// restarted more often, created later.
fn rank(pod: &Pod) -> impl Ord + use<> {
    let is_ready = pods::is_ready(pod);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let phase = match pods::phase(pod) {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let containers =
        pod.status.iter().flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses));
    let n_restarts = containers.flatten().map(|container| container.restart_count).max().unwrap_or(0);
    let later_first = |time: Option<Timestamp>| Reverse(time.unwrap_or(Timestamp::MAX));
    (
        node.is_some_and(|node| !node.is_empty()),
        phase,
        is_ready,
        later_first(pods::ready_since(pod)),
        Reverse(n_restarts),
        later_first(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
        pod.metadata.name.clone(),
    )
}
