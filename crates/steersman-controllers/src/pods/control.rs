//! Creating and deleting the Pods of an owner, with the Events that say so.
//!
//! Follows upstream's `RealPodControl`: its reasons and sentences.

use crate::dependents;
use crate::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Resource;
use kube::{Api, Client};
use steersman::events::{EventRecorder, EventType};

/// Creates and deletes Pods in the name of owners, and records it.
#[derive(Clone)]
pub(crate) struct PodControl {
    pub(crate) client: Client,
    pub(crate) events: EventRecorder,
}

impl PodControl {
    /// `component` is what the Events are said to come from.
    pub(crate) fn new(client: Client, component: &str) -> PodControl {
        PodControl { events: EventRecorder::new(client.clone(), component), client }
    }

    /// Creates a Pod that [`from_template`] has made, or somebody has changed since.
    ///
    /// # Errors
    /// When the server refuses; an Event says so, unless the namespace is being deleted.
    pub(crate) async fn create<O: Resource<DynamicType = ()>>(&self, owner: &O, pod: &Pod) -> Result<Pod, Refused> {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        match Api::<Pod>::namespaced(self.client.clone(), namespace).create(&PostParams::default(), pod).await {
            Ok(pod) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.events.event(owner, EventType::Normal, "SuccessfulCreate", &format!("Created pod: {name}"));
                Ok(pod)
            }
            Err(error) => {
                if !refusal::is_namespace_ending(&error) {
                    let note = format!("Error creating: {}", refusal::message(&error));
                    self.events.event(owner, EventType::Warning, "FailedCreate", &note);
                }
                Err(Refused::to("create a pod")(error))
            }
        }
    }

    /// Deletes exactly this Pod. One that is gone is fine.
    ///
    /// # Errors
    /// When the server refuses; an Event says so.
    pub(crate) async fn delete<O: Resource<DynamicType = ()>>(&self, owner: &O, pod: &Pod) -> Result<(), Refused> {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match Api::<Pod>::namespaced(self.client.clone(), namespace).delete(name, &params).await {
            Ok(_) => {
                self.events.event(owner, EventType::Normal, "SuccessfulDelete", &format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) if refusal::is_outdated(&error) => Ok(()),
            Err(error) => {
                let note = format!("Error deleting: {}", refusal::message(&error));
                self.events.event(owner, EventType::Warning, "FailedDelete", &note);
                Err(Refused::to(format!("delete the pod {name:?}"))(error))
            }
        }
    }
}

/// The Pod that a template describes, controlled by `owner` and named after it by the server.
pub(crate) fn from_template<O: Resource<DynamicType = ()>>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let described = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            annotations: described.annotations,
            finalizers: described.finalizers,
            generate_name: Some(format!("{name}-")),
            labels: described.labels,
            namespace: owner.meta().namespace.clone(),
            owner_references: dependents::reference_to(owner).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
