//! The CPU and memory usage of a container on a simulated node.
//!
//! Used to serve `metrics.k8s.io`. The figures come from the Pod's [`Behavior`] (`simulate.steersman.dev/cpu-usage` and
//! `memory-usage`), or else are those of an idle program. Nothing is measured, and nothing changes with time, so the
//! figures are always the same.

use crate::kubelet::stage::behavior::Behavior;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use steersman_machinery::usage::Usage;

/// Behaviors give CPU usage in thousandths of a processor.
const NANOS_PER_MILLI: u64 = 1_000_000;
/// The default usage of a container: little, as of an idle program. It is not the container's requests, so that an
/// autoscaler does not find every Pod to be busy.
const IDLE: Usage = Usage { cpu_nanos: NANOS_PER_MILLI, memory_bytes: 10 << 20 };

/// The usage of a container, given its behavior. `None` if it does not run, or the Pod has no container of that name.
/// Init containers and sidecars have usage too while they run.
pub(crate) fn usage(pod: &Pod, container: &str, behavior: &Behavior) -> Option<Usage> {
    let status = pod.status.as_ref()?;
    let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let is_running = |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.running.is_some());
    statuses.find(|one| one.name == container).filter(|one| is_running(one))?;
    Some(Usage {
        cpu_nanos: behavior.cpu_usage.map_or(IDLE.cpu_nanos, |millis| millis.saturating_mul(NANOS_PER_MILLI)),
        memory_bytes: behavior.memory_usage.unwrap_or(IDLE.memory_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        let status = |name: &str, state: &str| json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {state: {}}});
        let mut ended = status("ended", "terminated");
        ended["state"] = json!({"terminated": {"exitCode": 0}});
        serde_json::from_value(json!({"status": {
            "containerStatuses": [status("runs", "running"), status("waits", "waiting"), ended],
            "initContainerStatuses": [status("sidecar", "running")],
        }}))
        .unwrap()
    }

    #[test]
    fn only_what_runs_uses_something() {
        for (container, uses) in
            [("runs", true), ("sidecar", true), ("waits", false), ("ended", false), ("none", false)]
        {
            assert_eq!(usage(&pod(), container, &Behavior::default()).is_some(), uses, "{container}");
        }
        assert_eq!(usage(&Pod::default(), "runs", &Behavior::default()), None);
    }

    #[test]
    fn what_is_not_said_is_that_of_an_idle_program() {
        let behavior = Behavior { cpu_usage: Some(250), ..Behavior::default() };
        let want = Usage { cpu_nanos: 250 * NANOS_PER_MILLI, memory_bytes: IDLE.memory_bytes };
        assert_eq!(usage(&pod(), "runs", &behavior), Some(want));
    }
}
