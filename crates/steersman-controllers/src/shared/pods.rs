//! Helpers for Pods: their state, their order of deletion, and their creation from a template.
//!
//! Follows upstream's `pkg/controller/controller_utils.go` and `pkg/api/v1/pod`.

pub(crate) mod by_label;
pub(crate) mod control;
pub(crate) mod ranking;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use std::time::Duration;

/// Whether a Pod has been ready for as long as it must to count as available.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Availability {
    Available,
    /// It is ready, and becomes available after this time unless it changes.
    In(Duration),
    NotReady,
}

/// The Node that a Pod is on, if it has one.
pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a Pod has terminated by itself.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a Pod counts as a replica of its owner.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when a Pod has been ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a Pod is available to an owner that wants it ready for `min_ready_seconds`.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::NotReady;
    }
    let Ok(min_ready_seconds @ 1..) = u64::try_from(min_ready_seconds) else { return Availability::Available };
    // A condition without a time has no start to count from.
    let Some(since) = ready_since(pod) else { return Availability::NotReady };
    let needed = Duration::from_secs(min_ready_seconds);
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match needed.checked_sub(elapsed) {
        None | Some(Duration::ZERO) => Availability::Available,
        Some(left) => Availability::In(left),
    }
}
