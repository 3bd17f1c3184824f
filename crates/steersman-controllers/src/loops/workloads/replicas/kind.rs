//! The differences between ReplicaSets and ReplicationControllers.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Resource, Selector};
use serde::Serialize;
use std::fmt::Debug;
use steersman::cache::CachedResource;

/// A kind that keeps replicas of a Pod.
pub(crate) trait Kind:
    CachedResource + Debug + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize
{
    /// The source of Events, and the name of the controller in logs.
    const COMPONENT: &'static str;
    /// Whether the status has the number of terminating Pods.
    const COUNTS_TERMINATING: bool;

    fn label_selector(&self) -> LabelSelector;
    /// `None` if there is no template or the selector is invalid.
    fn wanted(&self) -> Option<Desired<'_>>;
    fn status(&self) -> ReplicaSetStatus;
    /// The same object with this status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

/// The desired state in a spec.
pub(crate) struct Desired<'a> {
    pub(crate) replicas: i32,
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: Selector,
    pub(crate) template: &'a PodTemplateSpec,
}

// === impl Kind for ReplicaSet ===

impl Kind for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const COUNTS_TERMINATING: bool = true;

    fn label_selector(&self) -> LabelSelector {
        self.spec.selector.clone()
    }

    fn wanted(&self) -> Option<Desired<'_>> {
        let spec = &self.spec;
        Some(Desired {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: Selector::try_from(spec.selector.clone()).ok()?,
            template: spec.template.as_ref()?,
        })
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicaSet {
        ReplicaSet { metadata: self.metadata.clone(), spec: self.spec.clone(), status: Some(status) }
    }
}

// === impl Kind for ReplicationController ===

impl Kind for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const COUNTS_TERMINATING: bool = false;

    fn label_selector(&self) -> LabelSelector {
        let labels = self.spec.as_ref().and_then(|spec| spec.selector.clone());
        LabelSelector { match_expressions: None, match_labels: labels }
    }

    fn wanted(&self) -> Option<Desired<'_>> {
        let spec = self.spec.as_ref()?;
        Some(Desired {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: Selector::try_from(self.label_selector()).ok()?,
            template: spec.template.as_ref()?,
        })
    }

    fn status(&self) -> ReplicaSetStatus {
        let ReplicationControllerStatus {
            available_replicas,
            conditions,
            fully_labeled_replicas,
            observed_generation,
            ready_replicas,
            replicas,
        } = self.status.clone().unwrap_or_default();
        let condition = |condition: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: Some(condition.status),
            type_: Some(condition.type_),
        };
        ReplicaSetStatus {
            available_replicas,
            conditions: conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas,
            observed_generation,
            ready_replicas,
            replicas,
            terminating_replicas: None,
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicationController {
        let condition = |condition: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: condition.status.unwrap_or_default(),
            type_: condition.type_.unwrap_or_default(),
        };
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        ReplicationController { metadata: self.metadata.clone(), spec: self.spec.clone(), status: Some(status) }
    }
}
