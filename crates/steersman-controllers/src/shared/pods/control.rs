//! Creates and deletes the Pods of an owner, and records Events.
//!
//! Follows upstream's `RealPodControl`: its reasons and messages.

use crate::shared::dependents;
use crate::shared::namespaces::Namespaces;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Resource;
use kube::{Api, Client};
use steersman::InformerFactory;
use steersman::events::{EventRecorder, EventType};

/// Creates and deletes Pods on behalf of owners, and records Events.
#[derive(Clone)]
pub(crate) struct PodControl {
    pub(crate) client: Client,
    pub(crate) events: EventRecorder,
    pub(crate) namespaces: Namespaces,
}

impl PodControl {
    /// `component` is the source of the Events.
    pub(crate) fn new(informers: &InformerFactory, client: Client, component: &str) -> PodControl {
        let events = EventRecorder::new(client.clone(), component);
        PodControl { client, events, namespaces: Namespaces::of(informers) }
    }

    /// Creates a Pod built by [`from_template`], possibly with changes.
    ///
    /// # Errors
    /// When the server refuses; an Event reports it, unless the namespace is being deleted.
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

    /// Deletes exactly this Pod. After this the Pod is gone or being deleted, which the caches will show.
    ///
    /// # Errors
    /// When the server refuses; an Event reports it. A conflict is reported too: an admission webhook may deny with
    /// that code.
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
            Err(error) if refusal::is_gone(&error) => Ok(()),
            Err(error) => {
                let note = format!("Error deleting: {}", refusal::message(&error));
                self.events.event(owner, EventType::Warning, "FailedDelete", &note);
                Err(Refused::to(format!("delete the pod {name:?}"))(error))
            }
        }
    }
}

/// The Pod for a template, controlled by `owner` and with a generated name.
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
