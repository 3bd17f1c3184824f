//! The life of one Pod on a simulated node, as a state machine without a clock of its own.
//!
//! [`PodState::step`] takes the Pod, as read from the cluster, and the time, and returns [`Effects`]: Events to record,
//! whether to look up the ConfigMaps and Secrets that the Pod refers to, and whether the Pod is to be deleted.
//! [`status`] then computes its status. A kubelet would learn the rest from a container runtime and from probes; here
//! it follows from the Pod's current [`Behaviors`]. When these change, the future of a running container is planned
//! anew, counted from its start ([`plan`]). Follows kubernetes' `pkg/kubelet`: its reasons, messages, back-offs and
//! phases.

pub(crate) mod container;
mod ephemeral;
pub(crate) mod event;
mod plan;
pub(crate) mod references;
pub(crate) mod resize;
pub(crate) mod status;
mod subpath;

use crate::kubelet::node::images::Images;
use crate::kubelet::pod::container::{Cause, Container, Exit, Phase, Role, Run, after};
use crate::kubelet::pod::ephemeral::Ephemeral;
use crate::kubelet::pod::event::{Now, PodEvent};
use crate::kubelet::pod::plan::{Planned, is_to_complete};
use crate::kubelet::pod::references::Found;
use crate::kubelet::pod::resize::Allocation;
use crate::kubelet::stage::behavior::Behaviors;
use crate::kubelet::stage::duration::{self, seconds};
use crate::kubelet::stage::seed::seed;
use crate::shared::pods::condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Pod;
use std::net::IpAddr;
use std::time::Duration;
use steersman::events::EventType;
use tokio::time::Instant;

/// How long a failed pull is shown as failed before the back-off until the next attempt.
const PULL_FAILED: Duration = Duration::from_secs(2);
/// The pause before the ConfigMaps and Secrets that a container refers to are looked up again.
const CONFIG_RETRY: Duration = Duration::from_secs(10);
/// Tags of images that no registry has: `missing`, and those with which tests of Kubernetes name such an image.
const MISSING_TAGS: [&str; 3] = ["404", "missing", "non-existent"];
/// The exit codes of a process that was asked to end and had not arranged for it, and of one that was killed.
const TERMINATED: i32 = 143;
const KILLED: i32 = 137;
const GRACE: Duration = Duration::from_secs(30);

/// The state of a Pod on a node.
#[derive(Clone, Debug)]
pub(crate) struct PodState {
    pub(crate) uid: String,
    behaviors: Behaviors,
    /// The annotations that cannot be read, and whether Events have reported them.
    faults: (Vec<String>, bool),
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) began: Timestamp,
    /// How many seconds the Pod may be active, as it said last, and until when that is.
    deadline: Option<(i64, Instant)>,
    /// As [`container::all`] lists them.
    pub(crate) containers: Vec<Container>,
    ephemeral: Vec<Ephemeral>,
    pub(crate) allocation: Allocation,
    lookup: Lookup,
    ending: Option<Ending>,
    /// The reason and the message of the failure of the Pod as a whole.
    pub(crate) failure: Option<(String, String)>,
    pub(crate) verdict: Option<Verdict>,
    /// The value of each condition, and the time of its last transition.
    conditions: [Option<(bool, Timestamp)>; status::CONDITIONS],
    /// Set once the Pod winds down: no container is started or restarted any more.
    is_finishing: bool,
    is_removed: bool,
}

/// The final phase of the Pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Failed,
    Succeeded,
}

/// The trigger of a step.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The Pod has changed, or a timer has fired.
    Wake,
    /// The answer to a lookup requested by [`Effects::asks`].
    References(Found),
}

/// The actions due after a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Effects {
    pub(crate) events: Vec<PodEvent>,
    /// Whether to look for the ConfigMaps and Secrets that the Pod refers to.
    pub(crate) asks: bool,
    /// Whether the Pod is being deleted and no container runs any more, so that it can be removed.
    pub(crate) removes: bool,
    /// When to call again if nothing happens before.
    pub(crate) wakes: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Lookup {
    /// The Pod refers to nothing.
    NotNeeded,
    /// The references have not been requested yet.
    Needed,
    Asked,
    Known(Found),
    /// The volumes cannot be mounted.
    Unmountable {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    why: EndingCause,
    /// When containers that are still running are killed.
    kill_at: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EndingCause {
    Deadline,
    /// Somebody has written a final phase into the status.
    Declaration,
    Deletion,
}

/// The context of a step.
struct Step<'a> {
    pod: &'a Pod,
    images: &'a mut Images,
    now: Now,
    effects: Effects,
}

pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

// === impl Verdict ===

impl Verdict {
    /// The verdict that a phase stands for, if the phase is final.
    pub(crate) fn of_phase(phase: &str) -> Option<Verdict> {
        match phase {
            "Failed" => Some(Verdict::Failed),
            "Succeeded" => Some(Verdict::Succeeded),
            _ => None,
        }
    }
}

// === impl PodState ===

impl PodState {
    /// A Pod that was bound to the node. Containers that its status reports as running go on: the simulation may have
    /// restarted while the Pod ran.
    pub(crate) fn new(pod: &Pod, (behaviors, faults): (Behaviors, Vec<String>), now: Now) -> PodState {
        let began = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now.time, |time| time.0);
        let mut state = PodState {
            uid: uid(pod).to_owned(),
            behaviors,
            faults: (faults, false),
            ips: Vec::new(),
            began,
            deadline: None,
            containers: container::all(pod).map(|_| Container::new()).collect(),
            ephemeral: Vec::new(),
            allocation: Allocation::new(pod),
            lookup: if references::has_any(pod) { Lookup::Needed } else { Lookup::NotNeeded },
            ending: None,
            failure: None,
            verdict: None,
            conditions: [None; status::CONDITIONS],
            is_finishing: false,
            is_removed: false,
        };
        if let Some(known) = &pod.status {
            status::adopt(&mut state, pod, known, now);
        }
        state
    }

    /// Sets how the containers behave from now on, and which annotations cannot be read.
    pub(crate) fn behave(&mut self, (behaviors, faults): (Behaviors, Vec<String>)) {
        self.behaviors = behaviors;
        if self.faults.0 != faults {
            self.faults = (faults, false);
        }
    }

    /// Fails the Pod because the node does not admit it.
    pub(crate) fn reject(&mut self, reason: &str, message: &str) -> PodEvent {
        self.verdict = Some(Verdict::Failed);
        self.failure = Some((reason.to_owned(), format!("Pod was rejected: {message}")));
        PodEvent::about_pod(EventType::Warning, reason, message.to_owned())
    }

    /// Whether the Pod counts against the node's resources.
    pub(crate) fn is_active(&self) -> bool {
        self.verdict.is_none()
    }

    /// Whether no container of the Pod has run, so that the node has yet to admit or reject it.
    pub(crate) fn is_new(&self) -> bool {
        self.verdict.is_none() && !self.containers.iter().any(Container::has_run)
    }

    /// Whether the Pod's deletion is complete.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether the Ready condition and the phase of the Pod, as the cluster has it, agree with the state of the node.
    pub(crate) fn agrees_with(&self, pod: &Pod) -> bool {
        let is_ready = condition(pod, "Ready").map(|ready| ready.status == "True");
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_said = self.conditions.get(status::READY).and_then(|known| known.map(|(holds, _)| holds));
        let is_over = matches!(phase, Some("Failed" | "Succeeded"));
        has_said == is_ready && is_over == self.verdict.is_some()
    }

    /// Advances the Pod as far as possible at this time.
    pub(crate) fn step(&mut self, pod: &Pod, images: &mut Images, now: Now, input: Input) -> Effects {
        self.heed_deadline(pod, now);
        let mut step = Step { pod, images, now, effects: Effects::default() };
        if !std::mem::replace(&mut self.faults.1, true) {
            let event = |fault: &String| PodEvent::about_pod(EventType::Warning, "InvalidSimulation", fault.clone());
            step.effects.events.extend(self.faults.0.iter().map(event));
        }
        if let Input::References(found) = input {
            self.learn(found);
        }
        self.heed_ending(&mut step);
        match self.ending {
            Some(ending) => self.wind_down(&mut step, ending),
            None if self.verdict.is_none() => self.run(&mut step),
            None => {}
        }
        if self.verdict.is_some() {
            self.allocation.close();
        }
        let Step { mut effects, .. } = step;
        if !self.is_removed {
            effects.wakes = self.wakes(now.instant);
        }
        effects
    }

    /// A Pod may be given another deadline while it runs, which is counted from its start.
    fn heed_deadline(&mut self, pod: &Pod, now: Now) {
        let allowed = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        if allowed == self.deadline.map(|(known, _)| known) {
            return;
        }
        self.deadline = allowed.map(|allowed| {
            let passed = Duration::try_from(now.time.duration_since(self.began)).unwrap_or_default();
            (allowed, after(now.instant, seconds(allowed).saturating_sub(passed)))
        });
    }

    /// Takes the result of the lookup, whichever state the Pod is in.
    pub(crate) fn learn(&mut self, found: Found) {
        self.lookup = Lookup::Known(found);
    }

    fn wakes(&self, now: Instant) -> Option<Instant> {
        if self.verdict.is_some() && !self.containers.iter().any(Container::is_running) {
            return None;
        }
        let deadline = self.deadline.map(|(_, at)| at).filter(|_| self.ending.is_none());
        let lookup = match self.lookup {
            Lookup::Unmountable { until } => Some(until),
            _ => None,
        };
        let containers = self.containers.iter().filter_map(|container| container.wakes(now));
        // A timer that is due but waits for something else needs no wake-up of its own: the event that it waits for
        // wakes the Pod.
        let is_mounted = !matches!(self.lookup, Lookup::Needed | Lookup::Asked);
        let others = deadline.into_iter().chain(lookup).chain(self.allocation.wakes());
        let next = containers.filter(|at| *at > now || is_mounted).chain(others).min()?;
        // All that could be done by now has been done, so a timer that is still due waits for something else.
        Some(if next > now { next } else { after(now, CONFIG_RETRY) })
    }

    // --- the end ---

    /// Begins to end the Pod if it is deleted, has exceeded its active deadline, or has a final phase in its status.
    fn heed_ending(&mut self, step: &mut Step<'_>) {
        let now = step.now.instant;
        let spec_grace = step.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        if step.pod.metadata.deletion_timestamp.is_some() {
            let grace = step.pod.metadata.deletion_grace_period_seconds.or(spec_grace).map_or(GRACE, seconds);
            match &mut self.ending {
                Some(ending) if ending.why == EndingCause::Deletion => {
                    // The Pod was deleted again, with a shorter grace period.
                    let kill_at = ending.kill_at.min(after(now, grace));
                    ending.kill_at = kill_at;
                    for container in &mut self.containers {
                        if let Phase::Running(Run { ends: Some((at, cause)), .. }) = &mut container.phase
                            && *at > kill_at
                        {
                            (*at, *cause) = (kill_at, Cause::Exit(KILLED));
                        }
                    }
                }
                _ => self.begin_ending(step, EndingCause::Deletion, grace),
            }
        } else if let Some(verdict) = self.declared(step.pod) {
            // A final phase is never left: the running containers are stopped, as if the node had set the phase.
            let status = step.pod.status.as_ref();
            let reason = status.and_then(|status| status.reason.clone());
            let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
            self.failure = reason.map(|reason| (reason, message));
            self.verdict = Some(verdict);
            self.begin_ending(step, EndingCause::Declaration, spec_grace.map_or(GRACE, seconds));
        } else if self.ending.is_none() && self.verdict.is_none() && self.deadline.is_some_and(|(_, at)| at <= now) {
            let (reason, message) =
                ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
            step.effects.events.push(PodEvent::about_pod(EventType::Normal, reason, message.to_owned()));
            self.failure = Some((reason.to_owned(), message.to_owned()));
            self.begin_ending(step, EndingCause::Deadline, spec_grace.map_or(GRACE, seconds));
        }
    }

    /// The final phase that somebody else has written into the status, if the node has not set one itself.
    fn declared(&self, pod: &Pod) -> Option<Verdict> {
        let verdict = Verdict::of_phase(pod.status.as_ref()?.phase.as_deref()?)?;
        let is_news = self.verdict.is_none() || self.containers.iter().any(Container::is_running);
        (self.ending.is_none() && is_news).then_some(verdict)
    }

    fn begin_ending(&mut self, step: &mut Step<'_>, why: EndingCause, grace: Duration) {
        self.ending = Some(Ending { why, kill_at: after(step.now.instant, grace) });
        for (index, (spec, role)) in container::all(step.pod).enumerate() {
            self.stop(step, index, spec, role, grace);
        }
    }

    /// Asks a container to end, if it runs.
    fn stop(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role, grace: Duration) {
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()?.sleep.as_ref());
        let delay = self.behaviors.container(&spec.name).stop_delay;
        let own = delay.map_or(Duration::ZERO, |range| range.pick(seed((&self.uid, index))));
        let wanted = own.saturating_add(hook.map_or(Duration::ZERO, |sleep| seconds(sleep.seconds)));
        let Some(Container { phase: Phase::Running(run), .. }) = self.containers.get_mut(index) else { return };
        let code = match () {
            () if wanted > grace => KILLED,
            () if role != Role::Sidecar && is_to_complete(step.pod) => TERMINATED,
            () => 0,
        };
        run.ends = Some((after(step.now.instant, wanted.min(grace)), Cause::Exit(code)));
        step.container_event(spec, role, EventType::Normal, "Killing", format!("Stopping container {}", spec.name));
    }

    /// Ends containers that are due to end, and closes the Pod once none runs.
    fn wind_down(&mut self, step: &mut Step<'_>, ending: Ending) {
        let now = step.now.instant;
        for (index, (spec, role)) in container::all(step.pod).enumerate() {
            let Some(container) = self.containers.get_mut(index) else { continue };
            match &container.phase {
                Phase::Running(run) => {
                    let (at, cause) = run.ends.unwrap_or((ending.kill_at, Cause::Exit(KILLED)));
                    if at <= now {
                        self.exited(step, index, spec, role, cause);
                    }
                }
                // The container has ended before and is not restarted.
                Phase::BackOff { .. } => {
                    if let Some(exit) = container.last.take() {
                        container.phase = Phase::Exited(exit);
                    }
                }
                _ => {}
            }
        }
        if self.containers.iter().any(Container::is_running) {
            return;
        }
        if self.verdict.is_none() || ending.why == EndingCause::Declaration {
            self.close(step.pod, now);
        }
        self.end_ephemeral(step.now.time);
        if ending.why == EndingCause::Deletion && !std::mem::replace(&mut self.is_removed, true) {
            step.effects.removes = true;
        }
    }

    /// Sets the final states once no container runs any more: containers that have not started never will.
    fn close(&mut self, pod: &Pod, now: Instant) {
        let is_initialized = container::all(pod).all(|(_, role)| role == Role::Main)
            || container::all(pod).zip(&self.containers).any(|((_, role), one)| role == Role::Main && one.has_run());
        for ((_, role), container) in container::all(pod).zip(&mut self.containers) {
            let is_lost = if role == Role::Main { is_initialized } else { container.has_run() };
            if is_lost && !matches!(container.phase, Phase::Exited(_)) {
                container.phase = Phase::Exited(Exit {
                    code: KILLED,
                    began: None,
                    ended: None,
                    reason: "ContainerStatusUnknown".to_owned(),
                    message: Some("The container could not be located when the pod was terminated".to_owned()),
                    id: None,
                });
            }
        }
        let verdict = match self.phase_of_containers(pod, now) {
            "Succeeded" if self.failure.is_none() => Verdict::Succeeded,
            _ => Verdict::Failed,
        };
        self.verdict.get_or_insert(verdict);
    }

    // --- the middle ---

    fn run(&mut self, step: &mut Step<'_>) {
        if !self.is_mounted(step) {
            return;
        }
        self.begin_ephemeral(step);
        self.complete_resize(step);
        let mut is_initialized = true;
        let is_past_init =
            container::all(step.pod).zip(&self.containers).any(|((_, role), one)| role == Role::Main && one.has_run());
        for (index, (spec, role)) in container::all(step.pod).enumerate() {
            if role == Role::Main && !is_initialized && !is_past_init {
                break;
            }
            // A container after an init container waits for it, but one that has already run goes on.
            let has_turn = is_initialized || is_past_init || self.containers.get(index).is_some_and(Container::has_run);
            if has_turn && !(role == Role::Init && is_past_init) {
                self.advance_container(step, index, spec, role);
            }
            let Some(container) = self.containers.get(index) else { break };
            match role {
                Role::Init => is_initialized &= container.has_succeeded(),
                Role::Sidecar => is_initialized &= container.is_started(step.now.instant),
                Role::Main => {}
            }
        }
        self.finish(step);
    }

    /// Completes a resize that is due, and restarts the containers that have to restart for it.
    fn complete_resize(&mut self, step: &mut Step<'_>) {
        let Some((event, restarting)) = self.allocation.complete(step.pod, step.now) else { return };
        step.effects.events.push(event);
        for (index, (spec, role)) in container::all(step.pod).enumerate() {
            if restarting.contains(&index) && self.containers.get(index).is_some_and(Container::is_running) {
                self.exited(step, index, spec, role, Cause::Resize);
            }
        }
    }

    /// Whether the volumes of the Pod are mounted.
    fn is_mounted(&mut self, step: &mut Step<'_>) -> bool {
        let now = step.now.instant;
        match &self.lookup {
            Lookup::NotNeeded => return true,
            Lookup::Asked => return self.containers.iter().any(Container::has_run),
            Lookup::Needed => {}
            Lookup::Unmountable { until } if *until > now => return false,
            Lookup::Unmountable { .. } => {}
            Lookup::Known(found) => match references::unmountable(step.pod, found) {
                None => return true,
                // Volumes stay mounted.
                Some(_) if self.containers.iter().any(Container::has_run) => return true,
                Some(message) => {
                    let event = PodEvent::about_pod(EventType::Warning, "FailedMount", message);
                    step.effects.events.push(event);
                    self.lookup = Lookup::Unmountable { until: after(now, CONFIG_RETRY) };
                    return false;
                }
            },
        }
        self.lookup = Lookup::Asked;
        step.effects.asks = true;
        self.containers.iter().any(Container::has_run)
    }

    /// Advances a container as far as possible at this time.
    fn advance_container(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role) {
        let now = step.now.instant;
        loop {
            let Some(container) = self.containers.get_mut(index) else { return };
            match container.phase.clone() {
                Phase::Waiting if self.is_finishing || matches!(self.lookup, Lookup::Asked) => return,
                Phase::Waiting => self.begin(step, index, spec, role),
                Phase::Pulling { began, until } if until <= now => {
                    self.pulled(step, index, spec, role, until.saturating_duration_since(began));
                }
                Phase::PullFailed { until } if until <= now => {
                    let wait = container.next_pull();
                    container.phase = Phase::PullBackOff { until: after(now, wait.saturating_sub(PULL_FAILED)) };
                    let message = format!("Back-off pulling image {:?}", image(spec));
                    step.container_event(spec, role, EventType::Normal, "BackOff", message);
                    step.container_event(
                        spec,
                        role,
                        EventType::Warning,
                        "Failed",
                        "Error: ImagePullBackOff".to_owned(),
                    );
                    return;
                }
                Phase::PullBackOff { until } if until <= now => self.begin(step, index, spec, role),
                Phase::Misconfigured { until, .. } if until <= now => {
                    // The references are looked up again; the answer comes in another step.
                    if !matches!(self.lookup, Lookup::Asked) {
                        self.lookup = Lookup::Asked;
                        step.effects.asks = true;
                    }
                    container.phase = Phase::Waiting;
                    return;
                }
                Phase::BackOff { until, .. } if until <= now => {
                    container.begin_again(now);
                    self.begin(step, index, spec, role);
                }
                Phase::Running(run) => match self.go_on(step, index, spec, role, run) {
                    Some((at, cause)) if at <= now => self.exited(step, index, spec, role, cause),
                    _ => return,
                },
                _ => return,
            }
        }
    }

    /// Checks what a container needs, and pulls its image.
    fn begin(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role) {
        let now = step.now.instant;
        let problem = match &self.lookup {
            Lookup::Known(found) => references::problem(namespace(step.pod), spec, found),
            _ => None,
        };
        let problem = problem.or_else(|| subpath::problem(step.pod, spec));
        let Some(container) = self.containers.get_mut(index) else { return };
        if let Some(message) = problem {
            step.container_event(spec, role, EventType::Warning, "Failed", format!("Error: {message}"));
            container.phase = Phase::Misconfigured { message, until: after(now, CONFIG_RETRY) };
            return;
        }
        let image = image(spec);
        let pulls_always = spec.image_pull_policy.as_deref() == Some("Always");
        if !pulls_always && step.images.has(image) && !self.is_missing(spec) {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            step.container_event(spec, role, EventType::Normal, "Pulled", message);
            self.start(step, index, spec, role);
            return;
        }
        step.container_event(spec, role, EventType::Normal, "Pulling", format!("Pulling image {image:?}"));
        if self.is_missing(spec) {
            let why = pull_error(image);
            let message = format!("Failed to pull image {image:?}: {why}");
            step.container_event(spec, role, EventType::Warning, "Failed", message);
            step.container_event(spec, role, EventType::Warning, "Failed", "Error: ErrImagePull".to_owned());
            if let Some(container) = self.containers.get_mut(index) {
                container.phase = Phase::PullFailed { until: after(now, PULL_FAILED) };
            }
            return;
        }
        let delay = self.behaviors.container(&spec.name).pull_delay;
        let delay = delay.map_or(Duration::ZERO, |range| range.pick(seed((&self.uid, index, "delay"))));
        if let Some(container) = self.containers.get_mut(index) {
            container.phase = Phase::Pulling { began: now, until: after(now, delay) };
        }
    }

    fn is_missing(&self, spec: &core::Container) -> bool {
        self.behaviors.container(&spec.name).is_image_missing
            || image(spec).rsplit_once(':').is_some_and(|(_, tag)| MISSING_TAGS.contains(&tag))
    }

    fn pulled(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role, took: Duration) {
        let image = image(spec);
        step.images.add(image);
        let (took, size) = (duration::format(took), Images::size(image));
        let message = format!(
            "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes."
        );
        step.container_event(spec, role, EventType::Normal, "Pulled", message);
        self.start(step, index, spec, role);
    }

    /// The planned run of a container that began at `began` and, at the moment in `since`, had been running for the
    /// duration in `since`.
    fn planned(
        &self,
        pod: &Pod,
        index: usize,
        spec: &core::Container,
        role: Role,
        began: Timestamp,
        since: (Instant, Duration),
    ) -> Run {
        let planned = Planned {
            spec,
            role,
            is_to_complete: is_to_complete(pod),
            behavior: self.behaviors.container(&spec.name),
            seed: (&self.uid, index, self.containers.get(index).map_or(0, |container| container.restarts)),
        };
        planned.run(began, since)
    }

    fn start(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role) {
        step.container_event(spec, role, EventType::Normal, "Created", "Container created".to_owned());
        step.container_event(spec, role, EventType::Normal, "Started", "Container started".to_owned());
        let run = self.planned(step.pod, index, spec, role, step.now.time, (step.now.instant, Duration::ZERO));
        if run.is_ready_at.is_none() {
            step.unready_event(spec, role);
        }
        if let Some(container) = self.containers.get_mut(index) {
            container.phase = Phase::Running(run);
        }
    }

    /// Recomputes the plan of a running container from its current behavior. Returns when it ends, and how.
    fn go_on(
        &mut self,
        step: &mut Step<'_>,
        index: usize,
        spec: &core::Container,
        role: Role,
        before: Run,
    ) -> Option<(Instant, Cause)> {
        // The container was asked to end, so the time and the kind of its end are settled.
        if self.is_finishing {
            return before.ends;
        }
        let run = self.planned(step.pod, index, spec, role, before.at, before.since);
        if run.is_ready_at.is_none() && before.is_ready_at.is_some() {
            step.unready_event(spec, role);
        }
        let ends = run.ends;
        if let Some(container) = self.containers.get_mut(index) {
            container.phase = Phase::Running(run);
        }
        ends
    }

    /// Handles the end of a container: it restarts now, restarts later, or stays terminated.
    fn exited(&mut self, step: &mut Step<'_>, index: usize, spec: &core::Container, role: Role, cause: Cause) {
        let now = step.now;
        let id = self.container_id(spec, index);
        let is_ending = self.ending.is_some() || self.is_finishing;
        let code = match cause {
            Cause::Exit(code) => code,
            Cause::Liveness => {
                let message = "Liveness probe failed: the simulation lets it fail".to_owned();
                step.container_event(spec, role, EventType::Warning, "Unhealthy", message);
                let message = format!("Container {} failed liveness probe, will be restarted", spec.name);
                step.container_event(spec, role, EventType::Normal, "Killing", message);
                TERMINATED
            }
            Cause::Resize => {
                let message = format!("Container {} resize requires restart", spec.name);
                step.container_event(spec, role, EventType::Normal, "Killing", message);
                TERMINATED
            }
        };
        let Some(container) = self.containers.get_mut(index) else { return };
        let began = match &container.phase {
            Phase::Running(run) => Some(run.at),
            _ => None,
        };
        let exit = Exit {
            code,
            began,
            ended: Some(now.time),
            reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
            message: None,
            id: Some(id),
        };
        if cause == Cause::Resize {
            container.last = Some(exit);
            container.restarts = container.restarts.saturating_add(1);
            return self.begin(step, index, spec, role);
        }
        if is_ending || !container::restarts(step.pod, spec, role, code) {
            container.phase = Phase::Exited(exit);
            return;
        }
        container.last = Some(exit);
        match container.back_off(now.instant) {
            None => {
                container.begin_again(now.instant);
                self.begin(step, index, spec, role);
            }
            Some(wait) => {
                container.phase = Phase::BackOff { wait, until: after(now.instant, wait) };
                let message =
                    format!("Back-off restarting failed container {} in pod {}", spec.name, described(step.pod));
                step.container_event(spec, role, EventType::Warning, "BackOff", message);
            }
        }
    }

    /// Stops the sidecars once the other containers have ended for good, and then ends the Pod.
    fn finish(&mut self, step: &mut Step<'_>) {
        let with_roles = || container::all(step.pod).map(|(_, role)| role).zip(&self.containers);
        let has_ended = |one: &Container| matches!(one.phase, Phase::Exited(_));
        let is_done = with_roles().all(|(role, one)| role != Role::Main || has_ended(one));
        let is_failed = with_roles().any(|(role, one)| role == Role::Init && has_ended(one) && !one.has_succeeded());
        if !is_done && !is_failed {
            return;
        }
        let grace =
            step.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).map_or(GRACE, seconds);
        let is_first = !std::mem::replace(&mut self.is_finishing, true);
        for (index, (spec, role)) in container::all(step.pod).enumerate() {
            if is_first {
                self.stop(step, index, spec, role, grace);
            }
            self.advance_container(step, index, spec, role);
        }
        if !self.containers.iter().any(Container::is_running) {
            self.end_ephemeral(step.now.time);
            self.verdict = match self.phase_of_containers(step.pod, step.now.instant) {
                "Succeeded" => Some(Verdict::Succeeded),
                "Failed" => Some(Verdict::Failed),
                _ => None,
            };
        }
    }

    /// The phase that follows from the containers, as in kubelet's `getPhase`.
    fn phase_of_containers(&self, pod: &Pod, now: Instant) -> &'static str {
        let (mut pending_init, mut pending_sidecars, mut has_failed_init) = (0, 0, false);
        let (mut running, mut waiting, mut stopped, mut restarting, mut succeeded) = (0, 0, 0, 0, 0);
        let mut has_begun = false;
        for ((_, role), container) in container::all(pod).zip(&self.containers) {
            let has_run = container.has_run();
            match (role, &container.phase) {
                (Role::Init, Phase::Exited(exit)) => has_failed_init |= exit.code != 0,
                (Role::Init, Phase::Running(_)) => pending_init += 1,
                (Role::Init, _) if has_run => {}
                (Role::Init, _) => pending_init += 1,
                (Role::Sidecar, Phase::Running(_)) => {
                    pending_sidecars += usize::from(!container.is_started(now));
                    running += 1;
                }
                (Role::Sidecar, _) if has_run => {}
                (Role::Sidecar, _) => {
                    pending_sidecars += 1;
                    waiting += 1;
                }
                (Role::Main, Phase::Running(_)) => {
                    running += 1;
                    has_begun = true;
                }
                (Role::Main, Phase::Exited(exit)) => {
                    stopped += 1;
                    succeeded += usize::from(exit.code == 0);
                    has_begun = true;
                }
                (Role::Main, _) if has_run => {
                    stopped += 1;
                    restarting += 1;
                }
                (Role::Main, _) => waiting += 1,
            }
        }
        match () {
            () if has_failed_init && running == 0 => "Failed",
            () if pending_init > 0 || (pending_sidecars > 0 && !has_begun) || waiting > 0 => "Pending",
            () if running > 0 || restarting > 0 => "Running",
            () if stopped == 0 => "Pending",
            () if stopped == succeeded => "Succeeded",
            () => "Failed",
        }
    }

    fn container_id(&self, spec: &core::Container, index: usize) -> String {
        let restarts = self.containers.get(index).map_or(0, |container| container.restarts);
        container_id(&self.uid, &spec.name, restarts)
    }
}

fn container_id(uid: &str, name: &str, restarts: i32) -> String {
    let part = |n: u8| seed((uid, name, restarts, n));
    format!("containerd://{:016x}{:016x}{:016x}{:016x}", part(0), part(1), part(2), part(3))
}

fn image(spec: &core::Container) -> &str {
    spec.image.as_deref().unwrap_or_default()
}

/// The error of a container runtime when the registry does not have the image.
fn pull_error(image: &str) -> String {
    let reference = crate::kubelet::node::images::reference(image);
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image {reference:?}: failed to resolve reference {reference:?}: {reference}: not found"
    )
}

/// The form of a Pod in messages.
fn described(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

impl Step<'_> {
    /// Records the Event of a container that runs and is never ready.
    fn unready_event(&mut self, spec: &core::Container, role: Role) {
        if spec.readiness_probe.is_some() && role != Role::Init {
            let message = "Readiness probe failed: the simulation never lets it succeed".to_owned();
            self.container_event(spec, role, EventType::Warning, "Unhealthy", message);
        }
    }

    fn container_event(
        &mut self,
        spec: &core::Container,
        role: Role,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let list = if role == Role::Main { "containers" } else { "initContainers" };
        let field_path = Some(format!("spec.{list}{{{}}}", spec.name));
        self.effects.events.push(PodEvent { event_type, reason: reason.to_owned(), message, field_path });
    }
}

impl PodEvent {
    pub(crate) fn about_pod(event_type: EventType, reason: &str, message: String) -> PodEvent {
        PodEvent { event_type, reason: reason.to_owned(), message, field_path: None }
    }
}

#[cfg(test)]
mod tests;
