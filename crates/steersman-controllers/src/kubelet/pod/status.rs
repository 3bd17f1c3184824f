//! The status of a Pod on a simulated node as a kubelet writes it, and the state that can be restored from an earlier
//! one.
//!
//! Follows kubernetes' `pkg/kubelet/kubelet_pods.go` and `pkg/kubelet/status/generate.go`.

use crate::kubelet::node::images;
use crate::kubelet::pod;
use crate::kubelet::pod::container::{self, Container, Exit, Phase, Role};
use crate::kubelet::pod::event::Now;
use crate::kubelet::pod::{PodState, Verdict, container_id, described, image, resize};
use crate::kubelet::stage::duration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    Pod, PodCondition, PodIP, PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The conditions that a kubelet owns, in its order.
const TYPES: [&str; CONDITIONS] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
pub(crate) const CONDITIONS: usize = 5;
/// The index of `Ready` among them.
pub(crate) const READY: usize = 2;

/// Whether a condition is true, its reason and its message.
type Condition = (bool, &'static str, String);

/// The kubelet's part of the status, without conditions of others.
pub(crate) fn of(state: &mut PodState, pod: &Pod, host: IpAddr, now: Now) -> PodStatus {
    let phase = phase(state, pod, now.instant);
    let generation = pod.metadata.generation;
    if state.is_rejected() {
        // The node has not started the Pod, and reports nothing else.
        let (reason, message) = state.failure.clone().unwrap_or_default();
        return PodStatus {
            observed_generation: generation,
            phase: Some(phase.to_owned()),
            qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()),
            reason: Some(reason),
            message: Some(message),
            start_time: Some(Time(state.began)),
            ..PodStatus::default()
        };
    }
    let statuses: Vec<(Role, ContainerStatus)> = container::all(pod)
        .enumerate()
        .map(|(index, (spec, role))| (role, container_status(state, pod, index, spec, role, now.instant)))
        .collect();
    let mut conditions = conditions(state, pod, phase, now);
    conditions.extend(state.allocation.conditions());
    let of_role = |is_main: bool| -> Option<Vec<ContainerStatus>> {
        let mut all: Vec<_> =
            statuses.iter().filter(|(role, _)| (*role == Role::Main) == is_main).map(|(_, one)| one.clone()).collect();
        if is_main {
            all.sort_by(|a, b| a.name.cmp(&b.name));
        }
        (!all.is_empty()).then_some(all)
    };
    let ips = || state.ips.iter().map(ToString::to_string);
    let (reason, message) = match &state.failure {
        Some((reason, message)) if state.verdict.is_some() => (Some(reason.clone()), Some(message.clone())),
        _ => (None, None),
    };
    PodStatus {
        conditions: Some(conditions),
        container_statuses: of_role(true),
        ephemeral_container_statuses: state.ephemeral_statuses(pod),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP { ip: host.to_string() }]),
        init_container_statuses: of_role(false),
        observed_generation: generation,
        phase: Some(phase.to_owned()),
        pod_ip: ips().next(),
        pod_ips: (!state.ips.is_empty()).then(|| ips().map(|ip| PodIP { ip }).collect()),
        qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        reason,
        message,
        start_time: Some(Time(state.began)),
        ..PodStatus::default()
    }
}

/// The fields of a stored status that only a kubelet writes, for comparing two statuses.
#[derive(Serialize)]
pub(crate) struct Owned<'a> {
    /// The conditions without times, which do not matter for the comparison.
    conditions: Vec<Holds<'a>>,
    containers: [Option<&'a [ContainerStatus]>; 3],
    host_ips: (Option<&'a str>, Option<&'a [HostIP]>),
    phase: Option<&'a str>,
    pod_ips: (Option<&'a str>, Option<&'a [PodIP]>),
    start_time: Option<&'a Time>,
}

/// The content of a condition.
#[derive(Serialize)]
struct Holds<'a> {
    type_: &'a str,
    status: &'a str,
    reason: Option<&'a str>,
    message: Option<&'a str>,
    observed_generation: Option<i64>,
}

impl Owned<'_> {
    /// `None` for a Pod without a status.
    pub(crate) fn of(pod: &Pod) -> Option<Owned<'_>> {
        let status = pod.status.as_ref()?;
        let is_own = |one: &&PodCondition| TYPES[..4].contains(&&*one.type_);
        let own = status.conditions.iter().flatten().filter(is_own);
        let holds = own.map(|one| Holds {
            type_: &one.type_,
            status: &one.status,
            reason: one.reason.as_deref(),
            message: one.message.as_deref(),
            observed_generation: one.observed_generation,
        });
        Some(Owned {
            conditions: holds.collect(),
            containers: [
                status.container_statuses.as_deref(),
                status.ephemeral_container_statuses.as_deref(),
                status.init_container_statuses.as_deref(),
            ],
            host_ips: (status.host_ip.as_deref(), status.host_ips.as_deref()),
            phase: status.phase.as_deref(),
            pod_ips: (status.pod_ip.as_deref(), status.pod_ips.as_deref()),
            start_time: status.start_time.as_ref(),
        })
    }
}

/// The conditions that the server may have and that are no longer true.
pub(crate) fn dropped_conditions(state: &PodState, status: &PodStatus) -> Vec<&'static str> {
    if !state.allocation.has_conditions() {
        return Vec::new();
    }
    let holds = |type_: &str| status.conditions.iter().flatten().any(|one| one.type_ == type_);
    resize::CONDITIONS.into_iter().filter(|type_| !holds(type_)).collect()
}

fn phase(state: &PodState, pod: &Pod, now: Instant) -> &'static str {
    match state.verdict {
        Some(Verdict::Failed) => "Failed",
        Some(Verdict::Succeeded) => "Succeeded",
        None => match state.phase_of_containers(pod, now) {
            // The final phase is set only when the Pod is closed.
            "Failed" | "Succeeded" => "Running",
            phase => phase,
        },
    }
}

impl PodState {
    fn is_rejected(&self) -> bool {
        self.verdict == Some(Verdict::Failed)
            && self.failure.is_some()
            && !self.containers.iter().any(Container::has_run)
    }
}

// === containers ===

fn container_status(
    state: &PodState,
    pod: &Pod,
    index: usize,
    spec: &core::Container,
    role: Role,
    now: Instant,
) -> ContainerStatus {
    let fresh = Container::new();
    let container = state.containers.get(index).unwrap_or(&fresh);
    let has_init = pod.spec.as_ref().is_some_and(|spec| spec.init_containers.iter().flatten().next().is_some());
    let creating = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let image = image(spec);
    let current = match &container.phase {
        Phase::Waiting | Phase::Pulling { .. } => waiting(creating, None),
        Phase::PullFailed { .. } => waiting("ErrImagePull", Some(pod::pull_error(image))),
        Phase::PullBackOff { .. } => {
            let why = format!("ErrImagePull: {}", pod::pull_error(image));
            waiting("ImagePullBackOff", Some(format!("Back-off pulling image {image:?}: {why}")))
        }
        Phase::Misconfigured { message, .. } => waiting("CreateContainerConfigError", Some(message.clone())),
        Phase::BackOff { wait, .. } => {
            let (wait, name) = (duration::format(*wait), &spec.name);
            let message = format!("back-off {wait} restarting failed container={name} pod={}", described(pod));
            waiting("CrashLoopBackOff", Some(message))
        }
        Phase::Running(run) => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(run.at)) }),
            ..ContainerState::default()
        },
        Phase::Exited(exit) => terminated(exit),
    };
    let is_ready = match role {
        Role::Init => container.has_succeeded(),
        Role::Main | Role::Sidecar => container.is_ready(now),
    };
    let has_run = container.has_run();
    let is_known = has_run || matches!(container.phase, Phase::BackOff { .. });
    let id = match &container.phase {
        Phase::Exited(exit) => exit.id.clone(),
        Phase::BackOff { .. } => container.last.as_ref().and_then(|exit| exit.id.clone()),
        _ => is_known.then(|| container_id(&state.uid, &spec.name, container.restarts)),
    };
    let is_running = container.is_running();
    let given = state.allocation.given(index).filter(|_| is_known);
    ContainerStatus {
        allocated_resources: given.and_then(|one| one.requests.clone()),
        container_id: id,
        image: if is_known { images::reference(image) } else { image.to_owned() },
        image_id: if is_known { images::id(image) } else { String::new() },
        last_state: Some(container.last.as_ref().map(terminated).unwrap_or_default()),
        name: spec.name.clone(),
        ready: is_ready,
        resources: if is_running { state.allocation.actual(index).cloned() } else { given.cloned() },
        restart_count: container.restarts,
        started: Some(is_running && container.is_started(now)),
        state: Some(current),
        volume_mounts: mounts(spec),
        ..ContainerStatus::default()
    }
}

fn mounts(spec: &core::Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    let status = |mount: &core::VolumeMount| VolumeMountStatus {
        mount_path: mount.mount_path.clone(),
        name: mount.name.clone(),
        read_only: mount.read_only.filter(|is_set| *is_set),
        recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    };
    Some(mounts.iter().map(status).collect())
}

fn terminated(exit: &Exit) -> ContainerState {
    let terminated = ContainerStateTerminated {
        container_id: exit.id.clone(),
        exit_code: exit.code,
        finished_at: exit.ended.map(Time),
        message: exit.message.clone(),
        reason: Some(exit.reason.clone()),
        signal: None,
        started_at: exit.began.map(Time),
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

// === conditions ===

fn conditions(state: &mut PodState, pod: &Pod, phase: &str, now: Now) -> Vec<PodCondition> {
    let containers_ready = containers_ready(state, pod, phase, now.instant);
    let ready = if containers_ready.0 { gates(pod) } else { containers_ready.clone() };
    let has_sandbox = state.verdict.is_none() && !state.ips.is_empty();
    let all: [Condition; CONDITIONS] = [
        (has_sandbox, "", String::new()),
        initialized(state, pod, phase, now.instant),
        ready,
        containers_ready,
        (true, "", String::new()),
    ];
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut conditions = Vec::with_capacity(CONDITIONS);
    for ((type_, (holds, reason, message)), known) in TYPES.into_iter().zip(all).zip(&mut state.conditions) {
        let since = match *known {
            Some((held, since)) if held == holds => since,
            _ => now.time,
        };
        *known = Some((holds, since));
        conditions.push(PodCondition {
            last_transition_time: Some(Time(since)),
            message: given(&message),
            observed_generation: pod.metadata.generation,
            reason: given(reason),
            status: if holds { "True" } else { "False" }.to_owned(),
            type_: type_.to_owned(),
            ..PodCondition::default()
        });
    }
    conditions
}

/// Names in the format of a Go list.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", names.collect::<Vec<_>>().join(" "))
}

fn containers_ready(state: &PodState, pod: &Pod, phase: &str, now: Instant) -> Condition {
    match phase {
        "Failed" => return (false, "PodFailed", String::new()),
        "Succeeded" => return (false, "PodCompleted", String::new()),
        _ => {}
    }
    let with_states = container::all(pod).zip(&state.containers);
    let unready: Vec<&str> = with_states
        .filter(|((_, role), one)| *role != Role::Init && !one.is_ready(now))
        .map(|((spec, _), _)| spec.name.as_str())
        .collect();
    if unready.is_empty() {
        return (true, "", String::new());
    }
    (false, "ContainersNotReady", format!("containers with unready status: {}", list(unready.into_iter())))
}

/// Whether all readiness gates of the Pod are true.
fn gates(pod: &Pod) -> Condition {
    let known = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let missing: Vec<String> = gates
        .filter_map(|gate| {
            let gate = &gate.condition_type;
            match known.iter().find(|one| one.type_ == *gate) {
                None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
                Some(one) if one.status == "True" => None,
                Some(one) => {
                    Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", one.status))
                }
            }
        })
        .collect();
    if missing.is_empty() { (true, "", String::new()) } else { (false, "ReadinessGatesNotReady", missing.join(", ")) }
}

fn initialized(state: &PodState, pod: &Pod, phase: &str, now: Instant) -> Condition {
    let with_states = || container::all(pod).zip(&state.containers);
    if phase == "Succeeded" {
        return (true, "PodCompleted", String::new());
    }
    if with_states().any(|((_, role), one)| role == Role::Main && one.has_run()) {
        return (true, "", String::new());
    }
    let is_incomplete = |role: Role, one: &Container| match role {
        Role::Init => !one.has_succeeded(),
        Role::Sidecar => !one.is_started(now),
        Role::Main => false,
    };
    let incomplete: Vec<&str> = with_states()
        .filter(|((_, role), one)| is_incomplete(*role, one))
        .map(|((spec, _), _)| spec.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return (true, "", String::new());
    }
    let message = format!("containers with incomplete status: {}", list(incomplete.into_iter()));
    (false, "ContainersNotInitialized", message)
}

// === an earlier status ===

/// Takes over the status of a Pod that was on the node before this process started.
pub(crate) fn adopt(state: &mut PodState, pod: &Pod, known: &PodStatus, now: Now) {
    if known.start_time.is_none() {
        return;
    }
    // A Pod has at most one address of each family.
    for ip in known.pod_ips.iter().flatten().filter_map(|one| one.ip.parse::<IpAddr>().ok()) {
        if !state.ips.iter().any(|known| known.is_ipv4() == ip.is_ipv4()) {
            state.ips.push(ip);
        }
    }
    state.verdict = known.phase.as_deref().and_then(Verdict::of_phase);
    state.allocation.adopt(pod, known);
    state.adopt_ephemeral(known);
    state.failure = known.reason.clone().map(|reason| (reason, known.message.clone().unwrap_or_default()));
    for (type_, since) in TYPES.into_iter().zip(&mut state.conditions) {
        let condition = known.conditions.iter().flatten().find(|one| one.type_ == type_);
        *since = condition.and_then(|one| Some((one.status == "True", one.last_transition_time.as_ref()?.0)));
    }
    let statuses: Vec<&ContainerStatus> =
        known.init_container_statuses.iter().chain(&known.container_statuses).flatten().collect();
    for (index, (spec, role)) in container::all(pod).enumerate() {
        let Some(status) = statuses.iter().find(|status| status.name == spec.name) else { continue };
        if let Some(container) = state.containers.get_mut(index) {
            container.restarts = status.restart_count;
        }
        let phase = adopted(state, pod, index, spec, role, status, now);
        let Some(container) = state.containers.get_mut(index) else { continue };
        container.last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(exit);
        container.phase = phase;
    }
}

fn adopted(
    state: &PodState,
    pod: &Pod,
    index: usize,
    spec: &core::Container,
    role: Role,
    status: &ContainerStatus,
    now: Now,
) -> Phase {
    let Some(current) = &status.state else { return Phase::Waiting };
    if let Some(terminated) = &current.terminated {
        return Phase::Exited(exit(terminated));
    }
    if let Some(running) = &current.running {
        let began: Timestamp = running.started_at.as_ref().map_or(now.time, |time| time.0);
        let passed = Duration::try_from(now.time.duration_since(began)).unwrap_or_default();
        return Phase::Running(state.planned(pod, index, spec, role, began, (now.instant, passed)));
    }
    let has_ended = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    if has_ended { Phase::BackOff { wait: Duration::ZERO, until: now.instant } } else { Phase::Waiting }
}

fn exit(terminated: &ContainerStateTerminated) -> Exit {
    Exit {
        code: terminated.exit_code,
        began: terminated.started_at.as_ref().map(|time| time.0),
        ended: terminated.finished_at.as_ref().map(|time| time.0),
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone(),
        id: terminated.container_id.clone(),
    }
}
