//! The resources allocated to the containers of a Pod, and their in-place resize (`/resize`).
//!
//! A spec states the desired resources. If the node has them, it allocates them, and the resize is in progress for a
//! moment; otherwise the resize is deferred until the node has room. No resize is infeasible here: admission rejects
//! one that exceeds the node as a whole. Conditions, Events and their texts are those of kubernetes'
//! `pkg/kubelet/allocation` and `pkg/kubelet/events`.

use crate::kubelet::pod::container::{self, Role, after};
use crate::kubelet::pod::event::{Now, PodEvent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use steersman::events::EventType;
use steersman_machinery::quantity::Quantity;
use tokio::time::Instant;

/// How long a container runtime takes to apply other resources.
const TAKES: Duration = Duration::from_millis(250);
const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";
const DEFERRED: &str = "Deferred";
/// The conditions that are present only during a resize.
pub(crate) const CONDITIONS: [&str; 2] = [PENDING, IN_PROGRESS];

/// The resources of a Pod's containers, in the order of [`container::all`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocation {
    /// The resources that the node has allocated.
    given: Vec<Option<ResourceRequirements>>,
    /// The resources in force.
    actual: Vec<Option<ResourceRequirements>>,
    pending: Option<Pending>,
    in_progress: Option<InProgress>,
    /// Whether the server may have one of the conditions, which then has to be removed.
    has_conditions: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    message: String,
    generation: Option<i64>,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct InProgress {
    until: Instant,
    generation: Option<i64>,
    since: Timestamp,
}

/// The resources of a Pod in an Event, with the fields in Go's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Resources<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Resources<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Resources<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

fn said(what: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    let of_role = |is_main: bool| {
        let all = container::all(pod).filter(|(_, role)| (*role == Role::Main) == is_main);
        all.map(|(spec, _)| Resources { name: &spec.name, resources: spec.resources.clone().unwrap_or_default() })
            .collect()
    };
    let generation = generation.unwrap_or_default();
    let summary = Summary { init_containers: of_role(false), containers: of_role(true), generation, error };
    format!("{what}: {}", serde_json::to_string(&summary).unwrap_or_default())
}

/// Requests and limits as amounts, which compare equal however they are written.
fn amounts(resources: Option<&ResourceRequirements>) -> [BTreeMap<&str, i128>; 2] {
    let lists = resources.map(|resources| [&resources.requests, &resources.limits]);
    lists.map_or_else(Default::default, |lists| lists.map(|list| nanos(list.as_ref())))
}

fn nanos(list: Option<&BTreeMap<String, k8s::Quantity>>) -> BTreeMap<&str, i128> {
    let nanos = |text: &str| Quantity::parse(text).map_or(0, Quantity::nanos);
    list.into_iter().flatten().map(|(name, quantity)| (name.as_str(), nanos(&quantity.0))).collect()
}

/// Whether a resize from one set of resources to another restarts the container.
fn needs_restart(
    spec: &core::Container,
    before: Option<&ResourceRequirements>,
    after: Option<&ResourceRequirements>,
) -> bool {
    let (before, after) = (amounts(before), amounts(after));
    let mut restarting =
        spec.resize_policy.iter().flatten().filter(|policy| policy.restart_policy == "RestartContainer");
    restarting.any(|policy| {
        let name = policy.resource_name.as_str();
        before.iter().zip(&after).any(|(before, after)| before.get(name) != after.get(name))
    })
}

// === impl Allocation ===

impl Allocation {
    /// The allocation of a Pod that is admitted: everything it requests.
    pub(crate) fn new(pod: &Pod) -> Allocation {
        let asked: Vec<_> = container::all(pod).map(|(spec, _)| spec.resources.clone()).collect();
        Allocation { given: asked.clone(), actual: asked, ..Allocation::default() }
    }

    /// Takes over the status of a Pod that was on the node before this process started.
    pub(crate) fn adopt(&mut self, pod: &Pod, known: &PodStatus) {
        let statuses = || known.init_container_statuses.iter().chain(&known.container_statuses).flatten();
        for ((index, (spec, _)), given) in container::all(pod).enumerate().zip(&mut self.given) {
            let Some(status) = statuses().find(|status| status.name == spec.name) else { continue };
            let Some(known) = &status.resources else { continue };
            let requests = status.allocated_resources.clone().or_else(|| known.requests.clone());
            *given = Some(ResourceRequirements { requests, ..known.clone() });
            if let Some(actual) = self.actual.get_mut(index) {
                actual.clone_from(given);
            }
        }
        let conditions = known.conditions.iter().flatten();
        self.has_conditions = conditions.into_iter().any(|one| CONDITIONS.contains(&one.type_.as_str()));
    }

    pub(crate) fn given(&self, index: usize) -> Option<&ResourceRequirements> {
        self.given.get(index)?.as_ref()
    }

    pub(crate) fn actual(&self, index: usize) -> Option<&ResourceRequirements> {
        self.actual.get(index)?.as_ref()
    }

    /// The Pod with the allocated resources in place of the desired ones.
    pub(crate) fn applied<'a>(&self, pod: &'a Pod) -> Cow<'a, Pod> {
        if !self.differs(pod) {
            return Cow::Borrowed(pod);
        }
        let mut pod = pod.clone();
        let Some(spec) = &mut pod.spec else { return Cow::Owned(pod) };
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        for (container, given) in containers.zip(&self.given) {
            container.resources.clone_from(given);
        }
        Cow::Owned(pod)
    }

    /// Whether a Pod's desired resources differ from the allocated ones.
    pub(crate) fn differs(&self, pod: &Pod) -> bool {
        let mut all = container::all(pod).zip(&self.given);
        all.any(|((spec, _), given)| amounts(spec.resources.as_ref()) != amounts(given.as_ref()))
    }

    /// Allocates the desired resources to the Pod.
    pub(crate) fn allocate(&mut self, pod: &Pod, now: Now) -> PodEvent {
        self.given = container::all(pod).map(|(spec, _)| spec.resources.clone()).collect();
        self.pending = None;
        let generation = pod.metadata.generation;
        self.in_progress = Some(InProgress { until: after(now.instant, TAKES), generation, since: now.time });
        self.has_conditions = true;
        PodEvent::about_pod(EventType::Normal, "ResizeStarted", said("Pod resize started", pod, generation, ""))
    }

    /// Defers the resize, because the node has no room for it. Returns one Event for each change of the spec.
    pub(crate) fn defer(&mut self, pod: &Pod, message: &str, now: Now) -> Option<PodEvent> {
        let generation = pod.metadata.generation;
        let known = self.pending.replace(Pending { message: message.to_owned(), generation, since: now.time });
        if let (Some(known), Some(pending)) = (&known, &mut self.pending) {
            pending.since = known.since;
        }
        self.has_conditions = true;
        let text = || said("Pod resize Deferred", pod, generation, message);
        let is_new = known.is_none_or(|known| known.generation != generation);
        is_new.then(|| PodEvent::about_pod(EventType::Warning, "ResizeDeferred", text()))
    }

    pub(crate) fn is_deferred(&self) -> bool {
        self.pending.is_some()
    }

    /// Since when the resize has been deferred.
    pub(crate) fn deferred_since(&self) -> Option<Timestamp> {
        self.pending.as_ref().map(|pending| pending.since)
    }

    /// Ends a deferral, because the desired resources are the allocated ones.
    pub(crate) fn withdraw(&mut self) {
        self.pending = None;
    }

    /// Ends all resizes of a Pod that has terminated.
    pub(crate) fn close(&mut self) {
        (self.pending, self.in_progress) = (None, None);
        self.actual.clone_from(&self.given);
    }

    /// Completes a resize that is due. Returns the Event, and the containers that restart.
    pub(crate) fn complete(&mut self, pod: &Pod, now: Now) -> Option<(PodEvent, Vec<usize>)> {
        let generation = self.in_progress.take_if(|change| change.until <= now.instant)?.generation;
        let text = said("Pod resize completed", &self.applied(pod), generation, "");
        let changed = container::all(pod).zip(self.actual.iter().zip(&self.given)).enumerate();
        let restarting = changed
            .filter(|(_, ((spec, _), (before, after)))| needs_restart(spec, before.as_ref(), after.as_ref()))
            .map(|(index, _)| index)
            .collect();
        self.actual.clone_from(&self.given);
        Some((PodEvent::about_pod(EventType::Normal, "ResizeCompleted", text), restarting))
    }

    /// When the resize in progress completes.
    pub(crate) fn wakes(&self) -> Option<Instant> {
        self.in_progress.as_ref().map(|change| change.until)
    }

    /// The conditions that are true; others of [`CONDITIONS`] are to be removed.
    pub(crate) fn conditions(&self) -> Vec<PodCondition> {
        let condition = |type_: &str, reason: Option<&str>, message: Option<&str>, generation, since| PodCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: reason.map(str::to_owned),
            message: message.map(str::to_owned),
            observed_generation: generation,
            last_transition_time: Some(Time(since)),
            ..PodCondition::default()
        };
        let pending = self
            .pending
            .as_ref()
            .map(|one| condition(PENDING, Some(DEFERRED), Some(&one.message), one.generation, one.since));
        let in_progress =
            self.in_progress.as_ref().map(|one| condition(IN_PROGRESS, None, None, one.generation, one.since));
        pending.into_iter().chain(in_progress).collect()
    }

    /// Whether the server may have conditions that are to be removed.
    pub(crate) fn has_conditions(&self) -> bool {
        self.has_conditions
    }
}
