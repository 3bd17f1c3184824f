//! The back-off of a Job before it replaces failed Pods: 10 s, 20 s, 40 s and so on, at most ten minutes.
//!
//! Counted since the last Pod that succeeded, in memory: it starts over after a restart of the process. Follows
//! upstream's `backoff_utils.go`.

use crate::loops::workloads::job::index;
use crate::shared::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use std::sync::Arc;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(600);

/// The failures of a Job's Pods since the last success.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Backoff {
    pub(crate) n_failures: u32,
    pub(crate) last_failure: Option<Timestamp>,
}

// === impl Backoff ===

impl Backoff {
    /// The back-off after more Pods have finished.
    pub(crate) fn after(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Backoff {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let later = failed.iter().map(|pod| finished_at(pod)).filter(|at| last_success.is_none_or(|last| *at > last));
        let before = if last_success.is_some() { Backoff::default() } else { self };
        later.fold(before, |backoff, at| Backoff {
            n_failures: backoff.n_failures.saturating_add(1),
            last_failure: match backoff.last_failure {
                Some(last) if last_success.is_some() || backoff.n_failures > before.n_failures => Some(last.max(at)),
                _ => Some(at),
            },
        })
    }

    /// The rest of the back-off.
    pub(crate) fn left(self, now: Timestamp) -> Duration {
        let (Some(last), n_doublings) = (self.last_failure, self.n_failures.saturating_sub(1)) else {
            return Duration::ZERO;
        };
        let wait = FIRST.saturating_mul(1u32.checked_shl(n_doublings).unwrap_or(u32::MAX)).min(MAX);
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        let left = Duration::try_from(wait.saturating_sub(now.duration_since(last))).unwrap_or_default();
        // A Pod whose finish time is far in the future is not waited for: its clock is wrong.
        if left > MAX.saturating_mul(2) { Duration::ZERO } else { left }
    }
}

/// The rest of the back-off before the last failed Pod of an index is replaced.
pub(crate) fn left_of_index(last: Option<&Pod>, now: Timestamp) -> Duration {
    let Some(last) = last else { return Duration::ZERO };
    let n_failures = index::n_failures(last).saturating_add(index::n_ignored_failures(last)).saturating_add(1);
    let n_failures = u32::try_from(n_failures).unwrap_or(1);
    Backoff { n_failures, last_failure: Some(finished_at(last)) }.left(now)
}

/// When a Pod finished: when its containers did, else when it became not ready, else when it was deleted, else when it
/// was created.
pub(crate) fn finished_at(pod: &Pod) -> Timestamp {
    let not_ready = || {
        let ready = pods::condition(pod, "Ready").filter(|condition| condition.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let deleted = || {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        pod.metadata.deletion_timestamp.as_ref()?.0.checked_sub(grace).ok()
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    containers_finished_at(pod).or_else(not_ready).or_else(deleted).or_else(created).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When the last container ended, sidecars included; `None` if one has not.
fn containers_finished_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_sidecar = |container: &&ContainerStatus| {
        let mut all = pod.spec.iter().flat_map(|spec| &spec.init_containers).flatten();
        all.any(|one| one.name == container.name && one.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten().filter(is_sidecar);
    let mut last = None;
    for container in status.container_statuses.iter().flatten().chain(sidecars) {
        let at = container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0;
        last = last.max(Some(at));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn pod(second: i64) -> Arc<Pod> {
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(second).to_string()});
        Arc::new(serde_json::from_value(json!({"metadata": {}, "status": {"conditions": [condition]}})).unwrap())
    }

    #[test]
    fn the_wait_doubles_with_each_failure_up_to_ten_minutes() {
        let left = |n_failures, second| Backoff { n_failures, last_failure: Some(at(0)) }.left(at(second)).as_secs();
        assert_eq!([1, 2, 3, 6, 7, 8, 40, u32::MAX].map(|n| left(n, 0)), [10, 20, 40, 320, 600, 600, 600, 600]);
        assert_eq!((left(1, 4), left(1, 10), left(1, 99)), (6, 0, 0));
        assert_eq!(Backoff::default().left(at(0)), Duration::ZERO);
        let failed_at = |second| Backoff { n_failures: 1, last_failure: Some(at(second)) }.left(at(0)).as_secs();
        assert_eq!((failed_at(5), failed_at(80_000_000)), (15, 0));
    }

    #[test]
    fn a_success_ends_the_row_of_failures_before_it() {
        let two = Backoff::default().after(&[], &[pod(5), pod(3)]);
        assert_eq!(two, Backoff { n_failures: 2, last_failure: Some(at(5)) });
        assert_eq!(two.after(&[], &[]), two);
        assert_eq!(two.after(&[pod(6)], &[]), Backoff::default());
        assert_eq!(
            two.after(&[pod(6)], &[pod(4), pod(9), pod(8)]),
            Backoff { n_failures: 2, last_failure: Some(at(9)) }
        );
        assert_eq!(two.after(&[], &[pod(4)]), Backoff { n_failures: 3, last_failure: Some(at(4)) });
    }

    #[test]
    fn containers_say_best_when_a_pod_finished() {
        let ended = |second: i64| {
            json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "finishedAt": at(second).to_string()}}})
        };
        let running = json!({"name": "d", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}});
        let pod = |containers: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"creationTimestamp": at(0).to_string(), "deletionTimestamp": at(40).to_string(), "deletionGracePeriodSeconds": 30},
                "status": {"containerStatuses": containers},
            })).unwrap()
        };
        assert_eq!(finished_at(&pod(json!([ended(3), ended(7)]))), at(7));
        assert_eq!(finished_at(&pod(json!([ended(3), running]))), at(10));
        assert_eq!(finished_at(&Pod::default()), Timestamp::UNIX_EPOCH);
    }
}
