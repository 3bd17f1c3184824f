//! The resource usage of simulated nodes and their Pods, as a metrics-server would have measured it: after a first
//! delay, over a window, and only of running containers.
//!
//! Computed from the Pods alone when a caller asks (`Agent::pod_usage`, `Agent::node_usage`): nothing is measured in
//! between. Follows metrics-server's `pkg/storage`, which measures every fifteen seconds and accepts ten for a
//! container that has just started.

use crate::shared::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use std::ops::Add;
use std::time::Duration;
use steersman_machinery::usage::{NodeUsage, PodUsage, Usage};

/// The interval between two measurements.
const RESOLUTION_SECONDS: u64 = 15;
/// The shortest run that is measured.
const FRESH_SECONDS: u64 = 10;

/// The usage of a Pod, given that of its running containers; `None` unless all of them have run for long enough.
pub(crate) fn of_pod(pod: &Pod, running: Vec<(&ContainerStatus, Usage)>, now: Timestamp) -> Option<PodUsage> {
    if pods::phase(pod) != "Running" || running.is_empty() {
        return None;
    }
    let mut found = PodUsage { window: Duration::from_secs(RESOLUTION_SECONDS), containers: Vec::new() };
    for (container, usage) in running {
        let begun = container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?;
        found.window = found.window.min(window(begun.0, now)?);
        found.containers.push((container.name.clone(), usage));
    }
    Some(found)
}

/// The usage of a node as the sum of its containers'; `None` while the node is new.
pub(crate) fn of_node(node: &Node, usages: impl Iterator<Item = Usage>, now: Timestamp) -> Option<NodeUsage> {
    let window = window(node.metadata.creation_timestamp.as_ref()?.0, now)?;
    Some(NodeUsage { window, usage: usages.fold(Usage::default(), Add::add) })
}

/// The window of a measurement of something that began at `begun`; `None` if it has not run for long enough.
fn window(begun: Timestamp, now: Timestamp) -> Option<Duration> {
    let seconds = u64::try_from(now.duration_since(begun).as_secs()).ok()?;
    (seconds >= FRESH_SECONDS).then(|| Duration::from_secs(seconds.min(RESOLUTION_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const QUARTER: Usage = Usage { cpu_nanos: 250_000_000, memory_bytes: 1024 };

    fn now() -> Timestamp {
        "2026-03-01T00:01:00Z".parse().unwrap()
    }

    /// A container that has been running since this second of the minute.
    fn running(name: &str, since: &str) -> ContainerStatus {
        let state = json!({"running": {"startedAt": format!("2026-03-01T00:00:{since}Z")}});
        let status =
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        serde_json::from_value(status).unwrap()
    }

    #[track_caller]
    fn check(phase: &str, containers: &[(&str, &str)], want: Option<(u64, &[&str])>) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase}})).unwrap();
        let statuses: Vec<ContainerStatus> = containers.iter().map(|(name, since)| running(name, since)).collect();
        let want = want.map(|(seconds, names)| PodUsage {
            window: Duration::from_secs(seconds),
            containers: names.iter().map(|name| ((*name).to_owned(), QUARTER)).collect(),
        });
        assert_eq!(of_pod(&pod, statuses.iter().map(|status| (status, QUARTER)).collect(), now()), want);
    }

    #[test]
    fn a_pod_is_measured_once_all_that_runs_of_it_has_run_for_ten_seconds() {
        check("Running", &[("a", "00")], Some((15, &["a"])));
        check("Running", &[("a", "00"), ("b", "48")], Some((12, &["a", "b"])));
        check("Running", &[("a", "50")], Some((10, &["a"])));
        check("Running", &[("a", "00"), ("b", "51")], None);
        check("Running", &[], None);
        check("Pending", &[("i", "00")], None);
    }

    #[test]
    fn what_begins_in_the_future_is_not_measured() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Running"}})).unwrap();
        let status = running("a", "30");
        assert_eq!(of_pod(&pod, vec![(&status, QUARTER)], "2026-03-01T00:00:00Z".parse().unwrap()), None);
    }

    #[test]
    fn a_node_uses_what_all_containers_on_it_use() {
        let node = |since: &str| -> Node {
            let since = format!("2026-03-01T00:00:{since}Z");
            serde_json::from_value(json!({"metadata": {"name": "n", "creationTimestamp": since}})).unwrap()
        };
        let usage = Usage { cpu_nanos: 750_000_000, memory_bytes: 3 * 1024 };
        let want = NodeUsage { window: Duration::from_secs(15), usage };
        assert_eq!(of_node(&node("00"), [QUARTER; 3].into_iter(), now()), Some(want));
        let nothing = NodeUsage { window: Duration::from_secs(11), usage: Usage::default() };
        assert_eq!(of_node(&node("49"), [].into_iter(), now()), Some(nothing));
        assert_eq!(of_node(&node("55"), [QUARTER].into_iter(), now()), None);
    }
}
