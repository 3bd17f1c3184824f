//! The row of a Pod in a table: ready containers, status, restarts and age, as kubectl prints them.

use crate::builtin::rules::age;
use crate::builtin::rules::cells::{self, NONE};
use jiff::Timestamp;
use std::collections::HashSet;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The fields from which the row is computed.
pub(super) const READ: &[&str] = &[
    "metadata.name",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "spec.containers[]",
    "spec.initContainers.name",
    "spec.initContainers.restartPolicy",
    "spec.nodeName",
    "spec.readinessGates",
    "status.conditions.reason",
    "status.conditions.status",
    "status.conditions.type",
    "status.containerStatuses",
    "status.initContainerStatuses",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.reason",
];

pub(super) fn of_pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let state = State::of(pod);
    let or_none = |path: &[&str]| Value::from(str_at(pod, path).filter(|text| !text.is_empty()).unwrap_or(NONE));
    vec![
        cells::name(pod),
        Value::from(format!("{}/{}", state.ready, state.total)),
        Value::from(state.reason),
        Value::from(match state.restarted_at.filter(|_| state.restarts > 0) {
            Some(time) => format!("{} ({} ago)", state.restarts, age::since(time, now)),
            None => state.restarts.to_string(),
        }),
        cells::age(pod, now),
        or_none(&["status", "podIP"]),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        Value::from(gates(pod)),
    ]
}

/// The summarized states of a pod's containers.
struct State<'a> {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    restarted_at: Option<&'a Value>,
}

impl<'a> State<'a> {
    fn of(pod: &'a Value) -> State<'a> {
        let status = |name: &str| str_at(pod, &["status", name]).unwrap_or_default();
        let reason = if status("reason").is_empty() { status("phase") } else { status("reason") };
        let mut state = State {
            ready: 0,
            total: items(pod, &["spec", "containers"]).len(),
            reason: reason.to_owned(),
            restarts: 0,
            restarted_at: None,
        };
        let is_gated = |condition: &&Value| {
            str_at(condition, &["type"]) == Some("PodScheduled") && str_at(condition, &["reason"]) == Some(GATED)
        };
        if items(pod, &["status", "conditions"]).iter().find(is_gated).is_some() {
            state.reason = GATED.to_owned();
        }
        let is_initializing = state.read_init_containers(pod);
        if !is_initializing || condition(pod, "Initialized") {
            state.read_containers(pod);
        }
        if at(pod, &["metadata", "deletionTimestamp"]).is_some() {
            if status("reason") == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if !matches!(status("phase"), "Failed" | "Succeeded") {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Reads the init containers; true if the pod is still initializing.
    fn read_init_containers(&mut self, pod: &'a Value) -> bool {
        let specs = items(pod, &["spec", "initContainers"]);
        self.total += specs.iter().filter(|spec| is_sidecar(spec)).count();
        for (index, container) in items(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            self.count_restarts(container);
            let named = |spec: &&Value| str_at(spec, &["name"]) == str_at(container, &["name"]);
            let is_sidecar = specs.iter().find(named).is_some_and(is_sidecar);
            let terminated = at(container, &["state", "terminated"]);
            if terminated.is_some_and(|state| cells::number(state, &["exitCode"]) == 0) {
                continue;
            }
            if is_sidecar && flag(container, "started") {
                self.ready += usize::from(flag(container, "ready"));
                continue;
            }
            let waiting = str_at(container, &["state", "waiting", "reason"]).unwrap_or_default();
            self.reason = match terminated {
                Some(state) => format!("Init:{}", ended(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", specs.len()),
            };
            return true;
        }
        false
    }

    fn read_containers(&mut self, pod: &'a Value) {
        // Restarts of init containers no longer count, except for those of sidecars.
        let sidecars = items(pod, &["spec", "initContainers"]).iter().filter(|spec| is_sidecar(spec));
        let sidecars: HashSet<Option<&str>> = sidecars.map(|spec| str_at(spec, &["name"])).collect();
        self.restarts = 0;
        self.restarted_at = None;
        for container in items(pod, &["status", "initContainerStatuses"]) {
            if sidecars.contains(&str_at(container, &["name"])) {
                self.count_restarts(container);
            }
        }
        let mut has_running = false;
        for container in items(pod, &["status", "containerStatuses"]).iter().rev() {
            self.count_restarts(container);
            let waiting = str_at(container, &["state", "waiting", "reason"]).unwrap_or_default();
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(state) = at(container, &["state", "terminated"]) {
                self.reason = ended(state);
            } else if flag(container, "ready") && at(container, &["state", "running"]).is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        // One container is done and another one runs.
        if self.reason == "Completed" && has_running {
            self.reason = if condition(pod, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, container: &'a Value) {
        self.restarts += cells::number(container, &["restartCount"]);
        let ended = at(container, &["lastState", "terminated", "finishedAt"]).filter(|time| time.is_string());
        // Stored times all have the same form, so they compare as strings.
        if ended.and_then(Value::as_str) > self.restarted_at.and_then(Value::as_str) {
            self.restarted_at = ended;
        }
    }
}

const GATED: &str = "SchedulingGated";

/// The reason why a container ended.
fn ended(state: &Value) -> String {
    let reason = str_at(state, &["reason"]).unwrap_or_default();
    let (signal, code) = (cells::number(state, &["signal"]), cells::number(state, &["exitCode"]));
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{code}"),
        ("", _) => format!("Signal:{signal}"),
        _ => reason.to_owned(),
    }
}

/// Whether an init container is a sidecar: it keeps running beside the containers.
fn is_sidecar(spec: &Value) -> bool {
    str_at(spec, &["restartPolicy"]) == Some("Always")
}

fn flag(object: &Value, name: &str) -> bool {
    at(object, &[name]).and_then(Value::as_bool).unwrap_or(false)
}

fn condition(pod: &Value, kind: &str) -> bool {
    let is_it = |condition: &&Value| str_at(condition, &["type"]) == Some(kind);
    let found = items(pod, &["status", "conditions"]).iter().find(is_it);
    found.and_then(|condition| str_at(condition, &["status"])) == Some("True")
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let holds = |gate: &&Value| str_at(gate, &["conditionType"]).is_some_and(|kind| condition(pod, kind));
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}

fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::Projection;
    use serde_json::json;

    #[track_caller]
    fn check(pod: Value, want: &str) {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let cells = of_pod(&pod, now);
        let read = Projection::of(READ).read(pod.to_string().as_bytes()).unwrap();
        assert_eq!(of_pod(&read, now), cells);
        let texts: Vec<&str> = cells[1..4].iter().map(|cell| cell.as_str().unwrap()).collect();
        assert_eq!(texts.join(" | "), want);
    }

    fn pod(status: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}, "status": status})
    }

    fn container(state: Value) -> Value {
        pod(json!({"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 0, "state": state}]}))
    }

    #[test]
    fn the_reason_of_a_container_is_that_of_the_pod() {
        check(pod(json!({"phase": "Pending"})), "0/1 | Pending | 0");
        check(pod(json!({"phase": "Failed", "reason": "Evicted"})), "0/1 | Evicted | 0");
        check(container(json!({"waiting": {"reason": "ImagePullBackOff"}})), "0/1 | ImagePullBackOff | 0");
        check(container(json!({"terminated": {"exitCode": 0, "reason": "Completed"}})), "0/1 | Completed | 0");
        check(container(json!({"terminated": {"exitCode": 3}})), "0/1 | ExitCode:3 | 0");
        check(container(json!({"terminated": {"exitCode": 3, "signal": 9}})), "0/1 | Signal:9 | 0");
    }

    #[test]
    fn restarts_tell_when_the_last_was() {
        let mut pod = container(json!({"running": {}}));
        pod["status"]["containerStatuses"][0]["ready"] = json!(true);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(4);
        pod["status"]["containerStatuses"][0]["lastState"] =
            json!({"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}});
        check(pod, "1/1 | Running | 4 (5m ago)");
    }

    #[test]
    fn a_pod_at_its_first_containers_says_how_far_it_is() {
        let mut pod = pod(json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "x", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": "y", "restartCount": 1, "state": {"running": {}}},
        ]}));
        pod["spec"]["initContainers"] = json!([{"name": "x"}, {"name": "y"}]);
        check(pod.clone(), "0/1 | Init:1/2 | 1");
        pod["status"]["initContainerStatuses"][1]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        check(pod, "0/1 | Init:CrashLoopBackOff | 1");
    }

    #[test]
    fn one_that_is_being_deleted_says_so() {
        let mut pod = container(json!({"running": {}}));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(pod, "0/1 | Terminating | 0");
    }
}
