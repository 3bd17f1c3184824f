//! The volume loops: binding, protection, ephemeral claims, and a provisioner without storage.
//!
//! - `binder` binds PersistentVolumeClaims to PersistentVolumes; `matching` decides, without requests, which volume
//!   fits.
//! - `protection` keeps both while they are in use.
//! - `ephemeral` creates the claims of Pods' generic ephemeral volumes.
//! - `attributes` keeps VolumeAttributesClasses while claims or volumes name them.
//! - `provisioner` creates volumes for the class of simulated nodes.

pub(crate) mod attributes;
pub(crate) mod binder;
pub(crate) mod ephemeral;
mod matching;
pub(crate) mod protection;
pub(crate) mod provisioner;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use std::collections::BTreeMap;
use steersman::ObjectKey;

/// The annotation of a claim that has been bound once.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a binding that the binder chose, and not the user.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation with the provisioner that created a volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The annotation with the provisioner that is to create a volume for a claim.
pub(crate) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(crate) const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The annotation with the node on which the first Pod of a claim will run.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";

type Annotations = Option<BTreeMap<String, String>>;

pub(crate) fn annotation<'a>(annotations: &'a Annotations, name: &str) -> Option<&'a str> {
    annotations.as_ref()?.get(name).map(String::as_str)
}

/// The class that a claim asks for; empty if none.
pub(crate) fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let beta = annotation(&claim.metadata.annotations, CLASS_BETA);
    let spec = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    beta.or(spec).unwrap_or_default()
}

/// Whether a claim has a class field or annotation, even an empty one.
pub(crate) fn names_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata.annotations, CLASS_BETA).is_some()
        || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

pub(crate) fn class_of_volume(volume: &PersistentVolume) -> &str {
    let beta = annotation(&volume.metadata.annotations, CLASS_BETA);
    let spec = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    beta.or(spec).unwrap_or_default()
}

/// The volume that a claim names; empty if none.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

/// The claim that a volume is reserved for or bound to.
pub(crate) fn claim_key(volume: &PersistentVolume) -> Option<ObjectKey> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::namespaced(claim.namespace.as_deref()?, claim.name.as_deref()?))
}

/// The claims that a Pod refers to in its volumes, including its ephemeral ones.
pub(crate) fn claims_of_pod(pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(ephemeral::claim_name(pod, &volume.name)),
        (None, None) => None,
    });
    names.map(|name| ObjectKey::namespaced(namespace, &name)).collect()
}
