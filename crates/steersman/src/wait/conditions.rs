//! Conditions that many programs wait for. Follows kube-runtime's `wait::conditions`; write others as closures.
//!
//! Read the conditions of a custom kind with [`crate::writing::conditions`]:
//!
//! ```
//! # use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
//! # struct Network { conditions: Vec<MetaCondition> }
//! use steersman::conditions::is_true;
//!
//! let is_ready = |network: Option<&Network>| network.is_some_and(|network| is_true(&network.conditions, "Ready"));
//! # assert!(!is_ready(None));
//! ```

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::wait::condition::Condition;

/// The object exists.
pub fn exists<K>() -> impl Condition<K> {
    |object: Option<&K>| object.is_some()
}

/// The object with this uid is gone: no object has its name, or another one does.
pub fn is_deleted<K: Resource>(uid: &str) -> impl Condition<K> + use<K> {
    let uid = uid.to_owned();
    let is_gone = move |object: Option<&K>| object.is_none_or(|object| object.meta().uid.as_ref() != Some(&uid));
    is_gone.described_by(|object: &K| {
        let metadata = object.meta();
        match (&metadata.deletion_timestamp, metadata.finalizers.as_deref()) {
            (None, _) => "not being deleted".to_owned(),
            (Some(_), None | Some([])) => "being deleted".to_owned(),
            (Some(_), Some(finalizers)) => format!("being deleted, held by the finalizers {}", finalizers.join(", ")),
        }
    })
}

/// The definition's kind is served: its condition `Established` is true.
pub fn is_crd_established() -> impl Condition<CustomResourceDefinition> {
    let conditions =
        |definition: &CustomResourceDefinition| reported(&definition.status.as_ref().map(|status| &status.conditions));
    of_conditions(conditions, |conditions| has(conditions, "Established"))
}

/// The pod's phase is `Running`: it has a node, and a container has been started. It need not be ready.
pub fn is_pod_running() -> impl Condition<Pod> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let is_running = move |pod: Option<&Pod>| pod.and_then(phase).as_deref() == Some("Running");
    is_running.described_by(move |pod: &Pod| match phase(pod) {
        None => "without a phase".to_owned(),
        Some(phase) => format!("in phase {phase}"),
    })
}

/// The job has succeeded: its condition `Complete` is true. A job that fails never meets this; the error of the wait
/// says so.
pub fn is_job_completed() -> impl Condition<Job> {
    let conditions = |job: &Job| reported(&job.status.as_ref().map(|status| &status.conditions));
    of_conditions(conditions, |conditions| has(conditions, "Complete"))
}

/// The deployment's newest generation is rolled out, as its controller reports it: the condition `Progressing` is true because
/// the new replica set is available.
pub fn is_deployment_completed() -> impl Condition<Deployment> {
    let conditions = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        if status.and_then(|status| status.observed_generation) < deployment.metadata.generation {
            // The status is about an earlier generation.
            return Vec::new();
        }
        reported(&status.map(|status| &status.conditions))
    };
    of_conditions(conditions, |conditions| {
        let mut progress = conditions.iter().filter(|condition| condition.type_ == "Progressing");
        progress.any(|condition| condition.status == "True" && condition.reason == "NewReplicaSetAvailable")
    })
}

/// A condition of a status, independent of the kind's type for it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reported {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
}

/// Reads a list of conditions by its JSON, because the kind and the version of Kubernetes decide which of their fields
/// are `Option`.
fn reported(conditions: &impl Serialize) -> Vec<Reported> {
    let tree = serde_json::to_value(conditions).unwrap_or_default();
    let each = tree.as_array().into_iter().flatten();
    each.filter_map(|condition| Reported::deserialize(condition).ok()).collect()
}

fn has(conditions: &[Reported], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Met when the conditions that `read` returns pass; the description has all of them.
fn of_conditions<K>(
    read: impl Fn(&K) -> Vec<Reported> + Copy + Send + Sync,
    passes: impl Fn(&[Reported]) -> bool + Send + Sync,
) -> impl Condition<K> {
    let is_met = move |object: Option<&K>| object.is_some_and(|object| passes(&read(object)));
    is_met.described_by(move |object: &K| {
        let conditions = read(object).into_iter().map(|Reported { type_, status, reason }| match &*reason {
            "" => format!("{type_}={status}"),
            reason => format!("{type_}={status} ({reason})"),
        });
        let conditions: Vec<String> = conditions.collect();
        if conditions.is_empty() {
            return "without conditions about its generation".to_owned();
        }
        format!("with the conditions {}", conditions.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check<K: serde::de::DeserializeOwned>(condition: &impl Condition<K>, object: Value, met: bool, described: &str) {
        let object: K = serde_json::from_value(object).unwrap();
        assert_eq!((condition.is_met(Some(&object)), condition.describe(&object).as_deref()), (met, Some(described)));
    }

    #[test]
    fn an_object_is_deleted_when_its_name_is_free_or_taken_by_another() {
        let condition = is_deleted::<Pod>("u1");
        assert!(condition.is_met(None));
        let held = json!({"uid": "u1", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]});
        let described = "being deleted, held by the finalizers a/b, c/d";
        check(&condition, json!({"metadata": held}), false, described);
        check(&condition, json!({"metadata": {"uid": "u1"}}), false, "not being deleted");
        check(&condition, json!({"metadata": {"uid": "u2"}}), true, "not being deleted");
    }

    #[test]
    fn a_definition_is_established_when_its_condition_says_so() {
        let condition = is_crd_established();
        let spec = json!({"group": "g", "names": {"kind": "K", "plural": "ks"}, "scope": "Cluster", "versions": []});
        let with = |status: &str, reason: &str| {
            let conditions = json!([{"type": "Established", "status": status, "reason": reason}]);
            json!({"metadata": {}, "spec": spec, "status": {"conditions": conditions}})
        };
        assert!(!condition.is_met(None));
        check(&condition, with("False", "Installing"), false, "with the conditions Established=False (Installing)");
        check(&condition, with("True", ""), true, "with the conditions Established=True");
    }

    #[test]
    fn a_deployment_is_completed_in_its_newest_generation_only() {
        let with = |observed: i64, reason: &str| {
            let conditions = json!([{"type": "Progressing", "status": "True", "reason": reason}]);
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed, "conditions": conditions}})
        };
        let condition = is_deployment_completed();
        let done = "NewReplicaSetAvailable";
        check(&condition, with(1, done), false, "without conditions about its generation");
        check(&condition, with(2, "Updated"), false, "with the conditions Progressing=True (Updated)");
        check(&condition, with(2, done), true, "with the conditions Progressing=True (NewReplicaSetAvailable)");
    }

    #[test]
    fn a_job_that_failed_is_not_completed_and_says_why() {
        let conditions = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]);
        let failed = json!({"metadata": {}, "status": {"conditions": conditions}});
        check(&is_job_completed(), failed, false, "with the conditions Failed=True (BackoffLimitExceeded)");
        let complete = json!({"metadata": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        check(&is_job_completed(), complete, true, "with the conditions Complete=True");
    }

    #[test]
    fn combinations_describe_what_is_missing() {
        let pod = |phase: &str| json!({"metadata": {"uid": "u"}, "status": {"phase": phase}});
        let on_a_node = |pod: Option<&Pod>| pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some();
        let both = is_pod_running().and(on_a_node.described_by(|_: &Pod| "without a node".to_owned()));
        check(&both, pod("Pending"), false, "in phase Pending, without a node");
        check(&both, pod("Running"), false, "without a node");
        check(&is_pod_running().or(exists()), pod("Pending"), true, "in phase Pending");
        let gone = is_pod_running().not().and(exists::<Pod>().not());
        assert!(gone.is_met(None));
        check(&gone, pod("Running"), false, "in phase Running");
    }
}
