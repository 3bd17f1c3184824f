//! A provisioner for simulated nodes: its volumes are objects without storage.
//!
//! Works like CSI's external provisioner: a claim whose annotation names it gets a volume that is reserved for it,
//! after a node was selected if the class waits for that. A released volume of its own is deleted if its reclaim policy
//! says so. The storage class is created at the start unless one of that name exists. It is marked as the default class
//! only if no other class is.

use crate::loops::storage::volumes::{
    PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER, annotation, class_of_claim, volume_name,
};
use crate::shared::refusal::{self, Error, Refused};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use steersman::cache::Change;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};
use tokio_util::sync::CancellationToken;

/// The name of the provisioner, in classes and annotations.
pub(crate) const PROVISIONER: &str = "simulate.steersman.dev/provisioner";
/// The name of the created class.
pub(crate) const CLASS: &str = "simulated";
/// The annotations of a default class.
const MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The first and the longest pause before the creation of the class is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

struct Claims {
    client: Client,
    events: EventRecorder,
    claims: Lister<PersistentVolumeClaim>,
    classes: Lister<StorageClass>,
}

struct Volumes {
    client: Client,
    volumes: Lister<PersistentVolume>,
}

/// Adds the provisioner to a manager. The client needs the permissions for it.
pub(crate) fn add(manager: Manager, client: Client) -> Manager {
    let informers = manager.informers();
    let claims = informers.informer::<PersistentVolumeClaim>(Scope::All);
    let volumes = informers.informer::<PersistentVolume>(Scope::All);
    let classes = informers.informer::<StorageClass>(Scope::All);
    let making = Claims {
        events: EventRecorder::new(client.clone(), PROVISIONER),
        client: client.clone(),
        claims: claims.lister(),
        classes: classes.lister(),
    };
    let deleting = Volumes { client: client.clone(), volumes: volumes.lister() };
    let making = Controller::of(&claims, provision, making)
        .name("simulated-provisioner")
        .workers(4)
        .when(|change: &Change<'_, PersistentVolumeClaim>| change.object().is_some_and(is_ours));
    let deleting = Controller::of(&volumes, delete, deleting).name("simulated-deleter").workers(4).when(
        |change: &Change<'_, PersistentVolume>| {
            change.object().is_some_and(|volume| provisioner_of(volume) == PROVISIONER)
        },
    );
    let make_class = move |stop: CancellationToken| async move {
        // A cancelled request has created the class or not; the next start checks that.
        stop.run_until_cancelled(make_class(&client)).await;
        Ok::<(), Infallible>(())
    };
    manager.controller(making).controller(deleting).run_leading("simulated-class", make_class)
}

/// Creates the class, with retries: without it no claim gets a volume, but everything else works.
async fn make_class(client: &Client) {
    let mut wait = RETRY.0;
    while let Err(refused) = try_make_class(client).await {
        let error = refusal::message(refused.error());
        tracing::warn!(error, ?wait, "the class of simulated volumes cannot be made");
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(RETRY.1);
    }
}

/// Creates the class, unless one of its name exists.
async fn try_make_class(client: &Client) -> Result<(), Refused> {
    let classes = Api::<StorageClass>::all(client.clone());
    // Listed first, because a webhook may refuse to create what exists already.
    let known = classes.list(&ListParams::default()).await.map_err(Refused::to("list the storage classes"))?.items;
    if known.iter().any(|class| class.metadata.name.as_deref() == Some(CLASS)) {
        return Ok(());
    }
    match classes.create(&PostParams::default(), &class(&known)).await {
        Ok(_) => Ok(()),
        Err(error) if refusal::exists_already(&error) => Ok(()),
        Err(error) => Err(Refused::to("make the simulated storage class")(error)),
    }
}

/// The class to create beside the existing ones.
fn class(known: &[StorageClass]) -> StorageClass {
    let is_default = |class: &StorageClass| {
        MARKS.into_iter().any(|mark| annotation(&class.metadata.annotations, mark) == Some("true"))
    };
    let mark = (!known.iter().any(is_default)).then(|| BTreeMap::from([(MARKS[0].to_owned(), "true".to_owned())]));
    StorageClass {
        metadata: ObjectMeta { annotations: mark, name: Some(CLASS.to_owned()), ..ObjectMeta::default() },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
}

fn is_ours(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata.annotations, STORAGE_PROVISIONER) == Some(PROVISIONER)
        && volume_name(claim).is_empty()
        && claim.metadata.deletion_timestamp.is_none()
}

fn provisioner_of(volume: &PersistentVolume) -> &str {
    annotation(&volume.metadata.annotations, PROVISIONED_BY).unwrap_or_default()
}

async fn provision(key: ObjectKey, cx: &Claims) -> Result<Action, Error> {
    let Some(claim) = cx.claims.find(&key)?.filter(|claim| is_ours(claim)) else { return Ok(Action::AwaitChange) };
    let Some(class) = cx.classes.find(&ObjectKey::cluster(class_of_claim(&claim)))? else {
        return Ok(Action::AwaitChange);
    };
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    if waits && annotation(&claim.metadata.annotations, SELECTED_NODE).is_none() {
        return Ok(Action::AwaitChange);
    }
    let volume = volume_for(&claim, &class);
    let name = volume.metadata.name.clone().unwrap_or_default();
    match Api::<PersistentVolume>::all(cx.client.clone()).create(&PostParams::default(), &volume).await {
        Ok(_) => {
            let note = format!("Successfully provisioned volume {name}");
            cx.events.event(&*claim, EventType::Normal, "ProvisioningSucceeded", &note);
        }
        Err(error) if refusal::exists_already(&error) => {}
        Err(error) => {
            let note = format!(
                "failed to provision volume with StorageClass {:?}: {}",
                class_of_claim(&claim),
                refusal::message(&error)
            );
            cx.events.event(&*claim, EventType::Warning, "ProvisioningFailed", &note);
            return Err(Refused::to(format!("create the volume {name:?}"))(error).into());
        }
    }
    Ok(Action::AwaitChange)
}

/// The volume for a claim, named by the claim's uid, so that a second attempt does not create a second one.
fn volume_for(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
    let path = format!("/simulated/{name}");
    PersistentVolume {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: claim.metadata.name.clone(),
                namespace: claim.metadata.namespace.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                uid: claim.metadata.uid.clone(),
                field_path: None,
            }),
            host_path: Some(HostPathVolumeSource { path, type_: None }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or_else(|| Some("Delete".to_owned())),
            storage_class_name: class.metadata.name.clone(),
            volume_attributes_class_name: spec.volume_attributes_class_name,
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// Deletes a released volume of this provisioner.
async fn delete(key: ObjectKey, cx: &Volumes) -> Result<Action, Error> {
    let Some(volume) = cx.volumes.find(&key)? else { return Ok(Action::AwaitChange) };
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_to_go = provisioner_of(&volume) == PROVISIONER && policy == Some("Delete") && phase == Some("Released");
    if !is_to_go || volume.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let preconditions = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    match Api::<PersistentVolume>::all(cx.client.clone()).delete(key.name(), &params).await {
        Ok(_) => Ok(Action::AwaitChange),
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to(format!("delete the volume {:?}", key.name()))(error).into()),
    }
}
