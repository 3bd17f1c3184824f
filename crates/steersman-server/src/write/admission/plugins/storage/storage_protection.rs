//! `StorageObjectInUseProtection`: adds a finalizer to claims, volumes and volume attributes classes, so that they are
//! not removed while in use. Control loops remove the finalizers.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review};
use futures::future::{self, BoxFuture};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::object_at;

/// Group, resource and finalizer.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

#[derive(Debug)]
pub(crate) struct StorageProtection;

impl Plugin for StorageProtection {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_creation = phase == Phase::Mutate && action == Action::Create && attributes.subresource.is_none();
        is_creation && finalizer(attributes).is_some()
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if let (Some(object), Some(finalizer)) = (new, finalizer(&review.operation.attributes)) {
            protect(object, finalizer);
        }
        Box::pin(future::ready(Ok(())))
    }
}

fn finalizer(attributes: &ResourceAttributes<'_>) -> Option<&'static str> {
    let found = PROTECTED.iter().find(|(group, resource, _)| attributes.is_about(group, resource));
    found.map(|(_, _, finalizer)| *finalizer)
}

fn protect(object: &mut Value, finalizer: &str) {
    let Some(metadata) = object_at(object, &["metadata"]) else { return };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|one| one == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_added_once() {
        let mut claim = json!({"metadata": {"finalizers": ["a"]}});
        protect(&mut claim, "b");
        protect(&mut claim, "b");
        assert_eq!(claim["metadata"]["finalizers"], json!(["a", "b"]));
    }
}
