//! The plan of a running container: when its probes succeed, and when it ends if nobody stops it.
//!
//! It depends on the probes, the behavior and the start time alone, so that it can be recomputed when the behavior
//! changes.

use crate::kubelet::pod::container::{Cause, Role, Run, after};
use crate::kubelet::stage::behavior::{Behavior, Range};
use crate::kubelet::stage::duration::seconds;
use crate::kubelet::stage::seed::seed;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;
use tokio::time::Instant;

/// How long the containers run in a Pod that runs to completion.
const RUN_TIME: Duration = Duration::from_millis(250);

/// Whether the containers of a Pod run to completion.
pub(crate) fn is_to_complete(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    policy.is_some_and(|policy| policy != "Always")
        || pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.kind == "Job" && owner.controller == Some(true))
}

/// The input of a container's plan.
pub(crate) struct Planned<'a> {
    pub(crate) spec: &'a core::Container,
    pub(crate) role: Role,
    pub(crate) behavior: &'a Behavior,
    /// Whether its Pod runs to completion.
    pub(crate) is_to_complete: bool,
    /// The uid of the Pod, the index of the container, and its number of restarts, which seed the picks from ranges.
    pub(crate) seed: (&'a str, usize, i32),
}

impl Planned<'_> {
    /// The run of a container that began at `began` and, at the moment in `since`, had been running for the duration in
    /// `since`.
    pub(crate) fn run(&self, began: Timestamp, since: (Instant, Duration)) -> Run {
        let Planned { spec, role, behavior, is_to_complete, seed: (uid, index, restarts) } = *self;
        let at = |wait: Duration| after(since.0, wait.saturating_sub(since.1));
        let picked = |range: Range, what: &str| range.pick(seed((uid, index, restarts, what)));
        let initial = |probe: &core::Probe| seconds(probe.initial_delay_seconds.unwrap_or_default().into());
        let period = |probe: &core::Probe| seconds(probe.period_seconds.unwrap_or(10).max(1).into());
        let startup = spec.startup_probe.as_ref().map_or(Duration::ZERO, initial);
        let ready = spec.readiness_probe.as_ref().map_or(startup, |probe| {
            let further = u32::try_from(probe.success_threshold.unwrap_or(1)).unwrap_or(1).saturating_sub(1);
            initial(probe).max(startup).saturating_add(period(probe).saturating_mul(further))
        });
        let ready_delay = behavior.ready_delay.map_or(Duration::ZERO, |range| picked(range, "ready"));
        let end = match (role, behavior.ends) {
            // Init containers end by themselves, and sidecars do not.
            (Role::Init, _) => Some((Duration::ZERO, 0)),
            (Role::Sidecar, _) => None,
            (Role::Main, Some(end)) => Some((picked(end.after, "end"), end.exit_code)),
            (Role::Main, None) => is_to_complete.then_some((RUN_TIME, 0)),
        };
        let dies = behavior.liveness_fails_after.zip(spec.liveness_probe.as_ref()).map(|(range, probe)| {
            let further = u32::try_from(probe.failure_threshold.unwrap_or(3)).unwrap_or(3).saturating_sub(1);
            let first = picked(range, "liveness").max(initial(probe)).max(startup);
            first.saturating_add(period(probe).saturating_mul(further))
        });
        let end = end.map(|(wait, code)| (wait, Cause::Exit(code)));
        let dies = dies.map(|wait| (wait, Cause::Liveness));
        let first = [end, dies].into_iter().flatten().min_by_key(|(wait, _)| *wait);
        Run {
            at: began,
            since,
            is_started_at: at(startup),
            is_ready_at: (!behavior.is_never_ready).then(|| at(ready.saturating_add(ready_delay))),
            ends: first.map(|(wait, cause)| (at(wait), cause)),
        }
    }
}
