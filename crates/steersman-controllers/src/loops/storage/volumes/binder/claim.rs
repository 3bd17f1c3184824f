//! Reconciles a claim: finds a volume, requests one from a provisioner, and checks the binding.
//!
//! Follows upstream's `syncClaim`: its phases, Events and messages.

use crate::loops::storage::volumes::binder::{Context, Error, Outdated};
use crate::loops::storage::volumes::matching::{self, Choice};
use crate::loops::storage::volumes::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA, annotation,
    class_of_claim, names_class, volume_name,
};
use crate::shared::stale;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use std::sync::Arc;
use steersman::{Action, LookupError, ObjectKey};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const DEFAULT_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// The prefix of in-tree provisioners. The only one left provisions nothing.
const IN_TREE: &str = "kubernetes.io/";
const STORAGE: &str = "storage";

/// The result of a pass, unless the server refused a request.
type Pass<T> = Result<Result<T, Outdated>, Error>;

pub(super) async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.of_claims, &key) {
        return Ok(action);
    }
    let Some(claim) = cx.claims.find(&key)? else { return Ok(Action::AwaitChange) };
    let is_bound = annotation(&claim.metadata.annotations, BIND_COMPLETED).is_some();
    let pass = if is_bound { keep(cx, &key, &claim).await? } else { bind_somehow(cx, &key, &claim).await? };
    Ok(match pass {
        Ok(()) => Action::AwaitChange,
        Err(Outdated) => Action::Requeue,
    })
}

/// Handles a claim that has not been bound yet.
async fn bind_somehow(cx: &Context, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Pass<()> {
    if !volume_name(claim).is_empty() {
        return bind_to_named(cx, key, claim).await;
    }
    let class = cx.classes.find(&ObjectKey::cluster(class_of_claim(claim)))?;
    let waits =
        class.as_ref().is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    let choice = if waits { Choice::ReservedOnly } else { Choice::Any };
    let mut volumes = cx.volumes_by_claim.get(key)?;
    if choice == Choice::Any {
        volumes.extend(cx.free_volumes.get(class_of_claim(claim))?);
    }
    if let Some(volume) = matching::find(claim, &volumes, choice) {
        return bind(cx, key, volume, claim).await;
    }
    if let Some(default) = (!names_class(claim)).then(|| default_class(cx)).transpose()?.flatten() {
        let mut claim = claim.clone();
        claim.spec.get_or_insert_default().storage_class_name = default.metadata.name.clone();
        return Ok(cx.update_claim(&claim).await?.map(|claim| cx.of_claims.wrote_at(key, &claim)));
    }
    if waits && annotation(&claim.metadata.annotations, SELECTED_NODE).is_none() {
        let (reason, note) = waiting_note(cx, key)?;
        cx.say(claim, reason, &note);
    } else if !class_of_claim(claim).is_empty() {
        return provision(cx, key, claim, class.as_deref()).await;
    } else {
        let note = "no persistent volumes available for this claim and no storage class is set";
        cx.say(claim, "FailedBinding", note);
    }
    set_status(cx, key, claim, "Pending", None).await.map(|written| written.map(|_| ()))
}

/// The reason why a claim waits whose class waits for its first consumer.
fn waiting_note(cx: &Context, key: &ObjectKey) -> Result<(&'static str, String), Error> {
    let mut pods: Vec<String> = cx.waiting_pods.keys(key)?.iter().map(|pod| pod.name().to_owned()).collect();
    pods.sort();
    Ok(match pods.as_slice() {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
    })
}

/// Handles a claim whose user has chosen the volume.
async fn bind_to_named(cx: &Context, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Pass<()> {
    let name = volume_name(claim);
    let pending = |cx, key, claim| async move {
        set_status(cx, key, claim, "Pending", None).await.map(|written| written.map(|_| ()))
    };
    let Some(volume) = cx.volumes.find(&ObjectKey::cluster(name))? else { return pending(cx, key, claim).await };
    let is_free = volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none());
    if is_free {
        let Some(fault) = matching::fault(&volume, claim) else { return bind(cx, key, &volume, claim).await };
        cx.warn(claim, "VolumeMismatch", &format!("Cannot bind to requested volume {name:?}: {fault}"));
        return pending(cx, key, claim).await;
    }
    if matching::is_bound_to(&volume, claim) {
        return bind(cx, key, &volume, claim).await;
    }
    cx.warn(claim, "FailedBinding", &format!("volume {name:?} already bound to a different claim."));
    pending(cx, key, claim).await
}

/// Handles a claim that has been bound before: it stays bound, or has lost its volume for good.
async fn keep(cx: &Context, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Pass<()> {
    let lost = |reason: &'static str, note: &'static str| async move {
        if phase(claim) == "Lost" {
            return Ok(Ok(()));
        }
        let written = set_status(cx, key, claim, "Lost", None).await?;
        Ok(written.map(|claim| cx.warn(&claim, reason, note)))
    };
    let name = volume_name(claim);
    if name.is_empty() {
        let note = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost("ClaimLost", note).await;
    }
    let Some(volume) = cx.volumes.find(&ObjectKey::cluster(name))? else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!").await;
    };
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match reference {
        Some(reference) if reference.uid != claim.metadata.uid => {
            let note = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost("ClaimMisbound", note).await
        }
        _ => bind(cx, key, &volume, claim).await,
    }
}

/// Writes the binding to the volume, its phase, the claim and its status, as far as they lack it.
async fn bind(cx: &Context, key: &ObjectKey, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Pass<()> {
    let mut volume = volume.clone();
    if let Some(bound) = bound_to(&volume, claim) {
        match cx.update_volume(&bound).await? {
            Ok(written) => volume = written,
            Err(Outdated) => return Ok(Err(Outdated)),
        }
        cx.of_claims.wrote_at(key, &volume);
    }
    match cx.set_phase(&volume, "Bound", None).await? {
        Ok(written) => volume = written,
        Err(Outdated) => return Ok(Err(Outdated)),
    }
    cx.of_claims.wrote_at(key, &volume);
    let mut claim = claim.clone();
    if let Some(bound) = bound_by(&claim, &volume) {
        match cx.update_claim(&bound).await? {
            Ok(written) => claim = written,
            Err(Outdated) => return Ok(Err(Outdated)),
        }
        cx.of_claims.wrote_at(key, &claim);
    }
    set_status(cx, key, &claim, "Bound", Some(&volume)).await.map(|written| written.map(|_| ()))
}

/// The volume with the claimRef of the claim; `None` if it has it already.
fn bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let known = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_whole = known.is_some_and(|known| {
        known.name == claim.metadata.name
            && known.namespace == claim.metadata.namespace
            && known.uid == claim.metadata.uid
    });
    let is_own_choice = !matching::is_bound_to(volume, claim);
    let is_marked = annotation(&volume.metadata.annotations, BOUND_BY_CONTROLLER).is_some();
    if is_whole && (is_marked || !is_own_choice) {
        return None;
    }
    let mut volume = volume.clone();
    volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        uid: claim.metadata.uid.clone(),
        field_path: None,
    });
    if is_own_choice && !is_marked {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(volume)
}

/// The claim with the name of the volume; `None` if it has it already.
fn bound_by(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let is_named = volume_name(claim) == name;
    if is_named && annotation(&claim.metadata.annotations, BIND_COMPLETED).is_some() {
        return None;
    }
    let mut claim = claim.clone();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    if !is_named {
        annotations.entry(BOUND_BY_CONTROLLER.to_owned()).or_insert_with(|| "yes".to_owned());
    }
    annotations.entry(BIND_COMPLETED.to_owned()).or_insert_with(|| "yes".to_owned());
    claim.spec.get_or_insert_default().volume_name = Some(name.to_owned());
    Some(claim)
}

/// Requests a volume from the provisioner of the claim's class.
async fn provision(
    cx: &Context,
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
) -> Pass<()> {
    let Some(class) = class else {
        let note = format!("storageclass.storage.k8s.io {:?} not found", class_of_claim(claim));
        cx.warn(claim, "ProvisioningFailed", &note);
        return Ok(Ok(()));
    };
    if class.provisioner.starts_with(IN_TREE) {
        let note = format!("no volume plugin matched name: {}", class.provisioner);
        cx.warn(claim, "ProvisioningFailed", &note);
        return Ok(Ok(()));
    }
    let wanted = [STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA];
    let mut claim = claim.clone();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    if wanted.iter().any(|name| annotations.get(*name) != Some(&class.provisioner)) {
        annotations.extend(wanted.map(|name| (name.to_owned(), class.provisioner.clone())));
        match cx.update_claim(&claim).await? {
            Ok(written) => claim = written,
            Err(Outdated) => return Ok(Err(Outdated)),
        }
        cx.of_claims.wrote_at(key, &claim);
    }
    let note = format!(
        "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
        class.provisioner
    );
    cx.say(&claim, "ExternalProvisioning", &note);
    Ok(Ok(()))
}

/// Writes the phase of a claim, with the access modes and the capacity of its volume, unless they are up to date.
async fn set_status(
    cx: &Context,
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
    phase_wanted: &str,
    volume: Option<&PersistentVolume>,
) -> Pass<PersistentVolumeClaim> {
    let mut status = claim.status.clone().unwrap_or_default();
    let is_change = phase(claim) != phase_wanted;
    let was_pending = phase(claim) == "Pending";
    status.phase = Some(phase_wanted.to_owned());
    match volume.and_then(|volume| Some((volume, volume.spec.as_ref()?))) {
        None => {
            (status.access_modes, status.capacity, status.current_volume_attributes_class_name) = (None, None, None);
        }
        Some((volume, spec)) => {
            status.access_modes = spec.access_modes.clone();
            // The capacity of a claim that is bound already may differ, while its volume is being resized.
            if is_change {
                let volume = volume.metadata.name.clone().unwrap_or_default();
                let has_capacity = spec.capacity.as_ref().is_some_and(|capacity| capacity.contains_key(STORAGE));
                if !has_capacity {
                    return Err(Error::NoCapacity { volume });
                }
                status.capacity = spec.capacity.clone();
            }
            if was_pending && is_change {
                status.current_volume_attributes_class_name = spec.volume_attributes_class_name.clone();
            }
        }
    }
    if claim.status.as_ref() == Some(&status) {
        return Ok(Ok(claim.clone()));
    }
    let claim = PersistentVolumeClaim { status: Some(status), ..claim.clone() };
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let api = kube::Api::namespaced(cx.client.clone(), namespace);
    let written = crate::shared::refusal::replace_status(&api, &claim).await?;
    if let Some(claim) = &written {
        cx.of_claims.wrote_at(key, claim);
    }
    Ok(written.ok_or(Outdated))
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The default class: the newest if there are several, and of those the first by name.
fn default_class(cx: &Context) -> Result<Option<Arc<StorageClass>>, LookupError> {
    let is_default = |class: &StorageClass| {
        let says = |name| annotation(&class.metadata.annotations, name) == Some("true");
        says(DEFAULT_CLASS) || says(DEFAULT_CLASS_BETA)
    };
    let classes = cx.classes.list()?.into_iter().filter(|class| is_default(class));
    Ok(classes.min_by(|a, b| {
        let created = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        created(b).cmp(&created(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
    }))
}
