//! The deletion of a definition: first its instances, then the definition itself.

use crate::crd::status::condition::{self, Condition, ConditionStatus};
use crate::crd::texts;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::object_at;

/// The finalizer that keeps a definition until its instances are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The progress of deleting a definition's instances.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Deletion {
    /// All instances are deleted; the finalizer is removed.
    Completed,
    /// It failed, for this reason, and will be retried.
    Failed(String),
    /// The instances are being deleted.
    InProgress,
    /// The definition was never established and has no instances; the finalizer is removed.
    NeverEstablished,
    /// Its objects are those of a built-in resource and are kept; the finalizer is removed.
    OverlappingBuiltIn,
    /// This many instances remain, held by their own finalizers.
    Remaining(usize),
}

/// Prepares a definition for its deletion: sets the deletion timestamp, the finalizer and a condition. A definition
/// that is already being deleted is not changed.
pub fn begin_deletion(definition: &mut Value, now: Timestamp) {
    let Some(metadata) = object_at(definition, &["metadata"]) else { return };
    if metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return;
    }
    metadata.insert("deletionTimestamp".to_owned(), json!(condition::time(now)));
    let mut finalizers: Vec<String> =
        texts(definition, &["metadata", "finalizers"]).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    definition["metadata"]["finalizers"] = json!(finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let pending = Condition::new("Terminating", ConditionStatus::True, "InstanceDeletionPending", message);
    set_status(definition, &pending, now);
}

/// Sets the condition with the progress of the deletion, and removes the finalizer when it is done.
pub fn set_deletion(definition: &mut Value, deletion: &Deletion, now: Timestamp) {
    let of = |status, reason, message: String| Condition::new("Terminating", status, reason, message);
    let (condition, is_done) = match deletion {
        Deletion::Completed => {
            (of(ConditionStatus::False, "InstanceDeletionCompleted", "removed all instances".to_owned()), true)
        }
        Deletion::Failed(why) => (of(ConditionStatus::True, "InstanceDeletionFailed", why.clone()), false),
        Deletion::InProgress => (
            of(
                ConditionStatus::True,
                "InstanceDeletionInProgress",
                "CustomResource deletion is in progress".to_owned(),
            ),
            false,
        ),
        Deletion::NeverEstablished => {
            (of(ConditionStatus::False, "NeverEstablished", "resource was never established".to_owned()), true)
        }
        Deletion::OverlappingBuiltIn => {
            let message = "instances overlap with built-in resources in storage".to_owned();
            (of(ConditionStatus::False, "OverlappingBuiltInResource", message), true)
        }
        Deletion::Remaining(count) => {
            let message = format!("could not confirm zero CustomResources remaining: {count} are left");
            (of(ConditionStatus::True, "InstanceDeletionCheck", message), false)
        }
    };
    set_status(definition, &condition, now);
    if is_done && let Some(metadata) = object_at(definition, &["metadata"]) {
        let finalizers = metadata.get_mut("finalizers").and_then(Value::as_array_mut);
        if let Some(finalizers) = finalizers {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }
}

fn set_status(definition: &mut Value, condition: &Condition, now: Timestamp) {
    if object_at(definition, &["status"]).is_some() {
        condition::set(&mut definition["status"], condition, now);
    }
}
