//! Ephemeral containers, which `kubectl debug` adds: each starts once its Pod runs, and runs until the Pod ends.
//!
//! They affect neither the phase nor the readiness of the Pod, and are never restarted.

use crate::kubelet::node::images;
use crate::kubelet::pod::event::PodEvent;
use crate::kubelet::pod::{PodState, Step, container_id};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman::events::EventType;

/// A started ephemeral container.
#[derive(Clone, Debug)]
pub(crate) struct Ephemeral {
    name: String,
    began: Timestamp,
    ended: Option<Timestamp>,
}

fn specs(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let all = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.map(|one| (one.name.as_str(), one.image.as_deref().unwrap_or_default()))
}

impl PodState {
    /// Starts the ephemeral containers that were added.
    pub(super) fn begin_ephemeral(&mut self, step: &mut Step<'_>) {
        for (name, image) in specs(step.pod) {
            if self.ephemeral.iter().any(|one| one.name == name) {
                continue;
            }
            let pulled = match step.images.has(image) {
                true => format!("Container image {image:?} already present on machine and can be accessed by the pod"),
                false => format!("Successfully pulled image {image:?}"),
            };
            step.images.add(image);
            for (reason, message) in [
                ("Pulled", pulled),
                ("Created", "Container created".to_owned()),
                ("Started", "Container started".to_owned()),
            ] {
                let field_path = Some(format!("spec.ephemeralContainers{{{name}}}"));
                let (event_type, reason) = (EventType::Normal, reason.to_owned());
                step.effects.events.push(PodEvent { event_type, reason, message, field_path });
            }
            self.ephemeral.push(Ephemeral { name: name.to_owned(), began: step.now.time, ended: None });
        }
    }

    /// Ends all of them.
    pub(super) fn end_ephemeral(&mut self, now: Timestamp) {
        for one in &mut self.ephemeral {
            one.ended.get_or_insert(now);
        }
    }

    /// Takes over the ephemeral containers that ran before this process started.
    pub(super) fn adopt_ephemeral(&mut self, known: &PodStatus) {
        let statuses = known.ephemeral_container_statuses.iter().flatten();
        let states = statuses.filter_map(|one| Some((&one.name, one.state.as_ref()?)));
        let begun = states.filter_map(|(name, state)| {
            let running = state.running.as_ref().and_then(|running| Some((running.started_at.as_ref()?.0, None)));
            let ended = state
                .terminated
                .as_ref()
                .and_then(|ended| Some((ended.started_at.as_ref()?.0, ended.finished_at.as_ref().map(|time| time.0))));
            let (began, ended) = running.or(ended)?;
            Some(Ephemeral { name: name.clone(), began, ended })
        });
        self.ephemeral = begun.collect();
    }

    pub(super) fn ephemeral_statuses(&self, pod: &Pod) -> Option<Vec<ContainerStatus>> {
        let statuses: Vec<ContainerStatus> =
            specs(pod).map(|(name, image)| self.ephemeral_status(name, image)).collect();
        (!statuses.is_empty()).then_some(statuses)
    }

    fn ephemeral_status(&self, name: &str, image: &str) -> ContainerStatus {
        let status = ContainerStatus { name: name.to_owned(), ..ContainerStatus::default() };
        let Some(one) = self.ephemeral.iter().find(|one| one.name == name) else {
            let waiting = ContainerStateWaiting { reason: Some("ContainerCreating".to_owned()), message: None };
            let state = ContainerState { waiting: Some(waiting), ..ContainerState::default() };
            return ContainerStatus { image: image.to_owned(), state: Some(state), ..status };
        };
        let id = container_id(&self.uid, name, 0);
        let state = match one.ended {
            None => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(one.began)) }),
                ..ContainerState::default()
            },
            Some(ended) => ContainerState {
                terminated: Some(ContainerStateTerminated {
                    container_id: Some(id.clone()),
                    finished_at: Some(Time(ended)),
                    reason: Some("Completed".to_owned()),
                    started_at: Some(Time(one.began)),
                    ..ContainerStateTerminated::default()
                }),
                ..ContainerState::default()
            },
        };
        ContainerStatus {
            container_id: Some(id),
            image: images::reference(image),
            image_id: images::id(image),
            last_state: Some(ContainerState::default()),
            state: Some(state),
            ..status
        }
    }
}
