//! Reconciles a volume: its phase, and its reclaim policy when its claim is gone.
//!
//! Follows upstream's `syncVolume`.

use crate::loops::storage::volumes::binder::{Context, Error, Outdated, phase_of};
use crate::loops::storage::volumes::{
    BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, claim_key, matching, volume_name,
};
use crate::shared::refusal::Refused;
use crate::shared::stale;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use std::sync::Arc;
use steersman::{Action, ObjectKey};

type Pass = Result<Result<(), Outdated>, Error>;

pub(super) async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.of_volumes, &key) {
        return Ok(action);
    }
    let Some(volume) = cx.volumes.find(&key)? else { return Ok(Action::AwaitChange) };
    Ok(match reconcile_volume(cx, &key, &volume).await? {
        Ok(()) => Action::AwaitChange,
        Err(Outdated) => Action::Requeue,
    })
}

async fn reconcile_volume(cx: &Context, key: &ObjectKey, volume: &PersistentVolume) -> Pass {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let uid = reference.and_then(|reference| reference.uid.as_deref()).unwrap_or_default();
    let (Some(claim_key), false) = (claim_key(volume), uid.is_empty()) else {
        // The volume has no claim, or is reserved for a claim that has not been bound yet.
        return set_phase(cx, key, volume, "Available").await;
    };
    let Some(claim) = claim_of(cx, volume, &claim_key, uid).await? else { return release(cx, key, volume).await };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume_name(&claim).is_empty() {
        // The claim's own pass binds it, unless it cannot.
        if matching::modes_differ(volume, &claim) {
            let of_claim = claim.metadata.name.as_deref().unwrap_or_default();
            let note = format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim {of_claim:?} due to incompatible volumeMode."
            );
            cx.warn(volume, "VolumeMismatch", &note);
            let note = format!(
                "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
            );
            cx.warn(&*claim, "VolumeMismatch", &note);
        }
        return Ok(Ok(()));
    }
    if volume_name(&claim) == name {
        return set_phase(cx, key, volume, "Bound").await;
    }
    // The claim has got another volume.
    let is_provisioned = annotation(&volume.metadata.annotations, PROVISIONED_BY).is_some();
    if is_provisioned && reclaim_policy(volume) == "Delete" {
        return release(cx, key, volume).await;
    }
    unbind(cx, key, volume).await
}

/// The claim that a volume is bound to: from the cache, or from the server if the cache does not have it or has another
/// one of its name.
async fn claim_of(
    cx: &Context,
    volume: &PersistentVolume,
    key: &ObjectKey,
    uid: &str,
) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
    let is_meant = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_deref() == Some(uid);
    match cx.claims.find(key)? {
        Some(claim) if is_meant(&claim) => return Ok(Some(claim)),
        None if matches!(phase_of(volume), "Released" | "Failed") => return Ok(None),
        Some(_) | None => {}
    }
    let claims = Api::<PersistentVolumeClaim>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    let found = claims.get_opt(key.name()).await.map_err(Refused::to(format!("read the claim {key}")))?;
    Ok(found.filter(is_meant).map(Arc::new))
}

/// Handles a volume whose claim is gone, according to its reclaim policy.
async fn release(cx: &Context, key: &ObjectKey, volume: &PersistentVolume) -> Pass {
    if !matches!(phase_of(volume), "Released" | "Failed") {
        // The event of this write continues the work.
        return set_phase(cx, key, volume, "Released").await;
    }
    let fault = match reclaim_policy(volume) {
        "Retain" => None,
        "Recycle" => Some(("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned())),
        "Delete" => deletion_fault(volume).map(|fault| ("VolumeFailedDelete", fault)),
        _ => {
            let note = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            Some(("VolumeUnknownReclaimPolicy", note.to_owned()))
        }
    };
    let Some((reason, note)) = fault.filter(|_| phase_of(volume) != "Failed") else { return Ok(Ok(())) };
    match cx.set_phase(volume, "Failed", Some(&note)).await? {
        Ok(volume) => {
            cx.of_volumes.wrote_at(key, &volume);
            cx.warn(&volume, reason, &note);
            Ok(Ok(()))
        }
        Err(Outdated) => Ok(Err(Outdated)),
    }
}

/// Why the storage of a volume will not be deleted: it has neither a provisioner nor a CSI driver.
fn deletion_fault(volume: &PersistentVolume) -> Option<String> {
    let provisioner = annotation(&volume.metadata.annotations, PROVISIONED_BY).unwrap_or_default();
    if !provisioner.is_empty() {
        let is_in_tree = provisioner.starts_with("kubernetes.io/");
        return is_in_tree.then(|| format!("no volume plugin matched name: {provisioner}"));
    }
    let is_csi = volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    (!is_csi).then(|| format!("error getting deleter volume plugin for volume {name:?}: no volume plugin matched"))
}

/// Removes the claim from a volume, because the claim has got another volume.
async fn unbind(cx: &Context, key: &ObjectKey, volume: &PersistentVolume) -> Pass {
    let mut volume = volume.clone();
    let is_own_choice = annotation(&volume.metadata.annotations, BOUND_BY_CONTROLLER).is_some();
    if let Some(annotations) = &mut volume.metadata.annotations {
        annotations.remove(BOUND_BY_CONTROLLER);
    }
    let spec = volume.spec.get_or_insert_default();
    if is_own_choice {
        spec.claim_ref = None;
    } else if let Some(reference) = &mut spec.claim_ref {
        // The user reserved the volume for this claim.
        reference.uid = None;
    }
    match cx.update_volume(&volume).await? {
        Ok(volume) => {
            cx.of_volumes.wrote_at(key, &volume);
            set_phase(cx, key, &volume, "Available").await
        }
        Err(Outdated) => Ok(Err(Outdated)),
    }
}

async fn set_phase(cx: &Context, key: &ObjectKey, volume: &PersistentVolume, phase: &str) -> Pass {
    if phase_of(volume) == phase {
        return Ok(Ok(()));
    }
    Ok(cx.set_phase(volume, phase, None).await?.map(|volume| cx.of_volumes.wrote_at(key, &volume)))
}

fn reclaim_policy(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
}
