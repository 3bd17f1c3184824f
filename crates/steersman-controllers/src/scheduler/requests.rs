//! The scheduler's requests to the API server: bindings, conditions, preemptions, and Events; and those to extenders.

mod calls;
mod extenders;
mod wire;

pub(crate) use crate::scheduler::requests::extenders::{Extenders, Objects};

use crate::scheduler::cluster::pod::PREEMPTED;
use crate::scheduler::configuration::{Configuration, Extender};
use crate::scheduler::plugins::volumes::{Provisioning, Reserved, SELECTED_NODE, VolumeBinding, VolumePlan};
use crate::scheduler::state::{Agreed, Effect, PodRef, Reason, Report, State, WasFalse};
use crate::shared::refusal;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman::ObjectKey;
use steersman::events::{EventRecorder, EventType, NewEvent};
use tokio::time::Instant;

/// The number of Pods with a request in flight.
const REQUESTS_MAX: usize = 64;
/// The same where an extender binds Pods.
const REQUESTS_WITH_BINDER_MAX: usize = 1_024;

/// The longest note of an Event.
const NOTE_BYTES_MAX: usize = 1_024;
const CUT: &str = " ...";

/// The annotation of volumes whose claimRef was not set by a user.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Sends requests as the scheduler.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    /// By the name of the profile that reports.
    events: Arc<BTreeMap<Arc<str>, EventRecorder>>,
    extenders: Arc<Extenders>,
    clock: fn() -> Timestamp,
}

/// The outcome of an effect.
#[derive(Debug)]
pub(crate) enum Answer {
    Bound(PodRef, Result<(), String>),
    Extended(PodRef, Result<Agreed, String>),
    Finished(PodRef),
    Nothing,
    /// The deleted Pods, and the failure if not all could be deleted.
    Preempted(PodRef, Vec<PodRef>, Result<(), String>),
    VolumesWritten(PodRef, Result<(), String>),
}

impl Answer {
    /// Passes the outcome to the state.
    pub(crate) fn tell(self, state: &mut State, now: Instant) {
        match self {
            Answer::Bound(pod, answer) => state.bound(&pod, answer, now),
            Answer::Extended(pod, answer) => state.extended(&pod, answer, now),
            Answer::Finished(pod) => state.finished(&pod, now),
            Answer::Nothing => {}
            Answer::Preempted(pod, deleted, answer) => state.preempted(&pod, &deleted, answer, now),
            Answer::VolumesWritten(pod, answer) => state.volumes_written(&pod, answer, now),
        }
    }
}

// === impl Requests ===

impl Requests {
    pub(crate) fn new(
        client: Client,
        configuration: &Configuration,
        extenders: Extenders,
        clock: fn() -> Timestamp,
    ) -> Requests {
        let recorder = |name: &str| (Arc::from(name), EventRecorder::with_series(client.clone(), name));
        let events = Arc::new(configuration.profile_names().map(recorder).collect());
        Requests { client, events, extenders: Arc::new(extenders), clock }
    }

    /// The current time in the format of conditions.
    fn now(&self) -> String {
        (self.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// The number of requests that may be in flight. An extender that binds may take its time for each Pod, which must not
    /// hold up the decisions about others.
    pub(crate) fn in_flight_max(&self) -> usize {
        if self.extenders.has_binder() { REQUESTS_WITH_BINDER_MAX } else { REQUESTS_MAX }
    }

    /// Waits until the Events have been sent.
    pub(crate) async fn flush(&self) {
        join_all(self.events.values().map(EventRecorder::flush)).await;
    }

    pub(crate) async fn send(&self, effect: Effect) -> Answer {
        match effect {
            Effect::Bind { pod, node, scheduler, binder } => {
                let answer = self.bind(&pod, &node, &scheduler, binder.as_deref()).await;
                Answer::Bound(pod, answer)
            }
            Effect::BindVolumes { pod, node, plan } => {
                let answer = self.bind_volumes(&pod, &node, &plan).await;
                Answer::VolumesWritten(pod, answer)
            }
            Effect::Extend(question) => {
                let pod = question.pod.clone();
                Answer::Extended(pod, self.extenders.ask(question).await)
            }
            Effect::Preempt { pod, node, victims, denominated, scheduler } => {
                for other in &denominated {
                    self.nominate(other, None).await;
                }
                let mut deleted = Vec::new();
                let answer = self.preempt(&pod, &node, &victims, &scheduler, &mut deleted).await;
                Answer::Preempted(pod, deleted, answer)
            }
            Effect::Report(report) => {
                self.report(&report).await;
                Answer::Finished(report.pod)
            }
            Effect::Skip { pod, scheduler } => {
                let note = format!("skip schedule deleting pod: {}", pod.key);
                let event = NewEvent::new(reference(&pod), EventType::Warning, "FailedScheduling", &note);
                self.record(&scheduler, event.action("Scheduling".to_owned()));
                Answer::Nothing
            }
        }
    }

    fn pods(&self, key: &ObjectKey) -> Api<Pod> {
        Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default())
    }

    /// Records an Event as a profile.
    fn record(&self, scheduler: &str, event: NewEvent) {
        match self.events.get(scheduler) {
            Some(recorder) => recorder.record(event),
            None => tracing::warn!(scheduler, "an event of a profile that is not configured is lost"),
        }
    }

    /// Binds a Pod, or has the extender bind it that does so in place of the scheduler.
    async fn bind(&self, pod: &PodRef, node: &str, scheduler: &str, binder: Option<&Extender>) -> Result<(), String> {
        let is_bound = match binder {
            Some(extender) => self.extenders.bind(extender, pod, node).await?,
            None => false,
        };
        if !is_bound {
            let written = self.write_binding(pod, node).await;
            written.map_err(|error| format!("running Bind plugin \"DefaultBinder\": {}", refusal::message(&error)))?;
        }
        let note = format!("Successfully assigned {} to {node}", pod.key);
        let event = NewEvent::new(reference(pod), EventType::Normal, "Scheduled", &note);
        self.record(scheduler, event.action("Binding".to_owned()));
        Ok(())
    }

    async fn write_binding(&self, pod: &PodRef, node: &str) -> Result<(), kube::Error> {
        let (key, name) = (&pod.key, pod.key.name());
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": key.namespace(), "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        });
        let _: Value = self.pods(key).create_subresource("binding", name, &PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Writes which volumes a Pod's claims are bound to, and the selected node of claims to provision. The volume
    /// controller does the rest. Writes fail with a conflict if an object has changed since the decision.
    async fn bind_volumes(&self, pod: &PodRef, node: &str, plan: &VolumePlan) -> Result<(), String> {
        self.nominate(pod, Some(node)).await;
        let params = PatchParams::default();
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        for binding in plan.bind.iter().filter(|binding| binding.reserved != Reserved::Yes) {
            let answer = volumes.patch(&binding.volume, &params, &Patch::Merge(claim_ref_of(binding))).await;
            answer.map_err(|error| refusal::message(&error))?;
        }
        for Provisioning { claim, .. } in plan.provision.iter().filter(|claim| !claim.is_selected) {
            let patch = json!({"metadata": {
                "annotations": {SELECTED_NODE: node},
                "resourceVersion": claim.version,
                "uid": claim.uid,
            }});
            let answer = self.claims(&claim.key).patch_metadata(claim.key.name(), &params, &Patch::Merge(&patch)).await;
            answer.map_err(|error| refusal::message(&error))?;
        }
        Ok(())
    }

    fn claims(&self, key: &ObjectKey) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default())
    }

    async fn report(&self, report: &Report) {
        let Report { pod, reason, message, condition, nominated, scheduler } = report;
        let mut note = message.clone();
        if NOTE_BYTES_MAX < note.len() {
            note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX - CUT.len()));
            note.push_str(CUT);
        }
        let event = NewEvent::new(reference(pod), EventType::Warning, "FailedScheduling", &note);
        self.record(scheduler, event.action("Scheduling".to_owned()));
        let mut status = json!({});
        if let Some(was_false) = condition {
            status["conditions"] = self.condition_of(pod, *reason, message, *was_false);
        }
        match nominated.as_deref() {
            None => {}
            Some("") => status["nominatedNodeName"] = Value::Null,
            Some(node) => status["nominatedNodeName"] = node.into(),
        }
        if status.as_object().is_some_and(|status| !status.is_empty())
            && let Err(error) = self.patch_status(pod, &status).await
        {
            tracing::warn!(pod = %pod.key, error, "cannot write why the pod has no node");
        }
    }

    fn condition_of(&self, pod: &PodRef, reason: Reason, message: &str, was_false: WasFalse) -> Value {
        let mut condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": reason.as_str(),
            "message": message,
            "observedGeneration": pod.generation,
        });
        if was_false == WasFalse::No {
            condition["lastTransitionTime"] = self.now().into();
            condition["lastProbeTime"] = Value::Null;
        }
        json!([condition])
    }

    /// Deletes Pods to make room for another on their node.
    async fn preempt(
        &self,
        pod: &PodRef,
        node: &str,
        victims: &[PodRef],
        scheduler: &str,
        deleted: &mut Vec<PodRef>,
    ) -> Result<(), String> {
        for victim in victims {
            let condition = json!({"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": PREEMPTED,
                "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
                "lastTransitionTime": self.now(),
                "observedGeneration": victim.generation,
            }]});
            if !self.patch_status(victim, &condition).await? {
                continue;
            }
            let uid = Preconditions { uid: Some(victim.uid.to_string()), resource_version: None };
            let params = DeleteParams::default().preconditions(uid);
            match self.pods(&victim.key).delete(victim.key.name(), &params).await {
                Ok(_) => deleted.push(victim.clone()),
                Err(error) if refusal::is_outdated(&error) => continue,
                Err(error) => return Err(refusal::message(&error)),
            }
            let note = format!("Preempted by pod {} on node {node}", pod.uid);
            let event = NewEvent::new(reference(victim), EventType::Normal, "Preempted", &note);
            self.record(scheduler, event.action("Preempting".to_owned()).related(reference(pod)));
        }
        Ok(())
    }

    /// Writes the nominated node of a Pod. A failure is only logged: nothing depends on the field.
    async fn nominate(&self, pod: &PodRef, node: Option<&str>) {
        let status = json!({"nominatedNodeName": node});
        if let Err(error) = self.patch_status(pod, &status).await {
            tracing::warn!(pod = %pod.key, error, "cannot write the nominated node of the pod");
        }
    }

    /// Patches the status of exactly this Pod. Returns whether it exists.
    async fn patch_status(&self, pod: &PodRef, status: &Value) -> Result<bool, String> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid}, "status": status}));
        match self.pods(&pod.key).patch_status(pod.key.name(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(error) if refusal::is_outdated(&error) => Ok(false),
            Err(error) => Err(refusal::message(&error)),
        }
    }
}

/// The patch of a volume that binds it to a claim.
pub(crate) fn claim_ref_of(binding: &VolumeBinding) -> Value {
    let claim = &binding.claim;
    let mut patch = json!({
        "metadata": {"resourceVersion": binding.volume_version},
        "spec": {"claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": claim.key.name(),
            "namespace": claim.key.namespace(),
            "resourceVersion": claim.version,
            "uid": claim.uid,
        }},
    });
    if binding.reserved == Reserved::No {
        patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    }
    patch
}

fn reference(pod: &PodRef) -> ObjectReference {
    let uid: &Arc<str> = &pod.uid;
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.key.name().to_owned()),
        namespace: pod.key.namespace().map(str::to_owned),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}
