//! A provisioner for simulated nodes: its volumes are objects, and nothing is behind them.
//!
//! Works as CSI's external provisioner does: a claim whose annotation names it gets a volume that is reserved for it, once a node was chosen if
//! its class waits for that; a volume of its own that was released is deleted if its reclaim policy says so. The class is made at the start
//! unless there is one of that name. It is marked as the default class only if no other class is.

use crate::refusal::{self, Error, Refused};
use crate::volumes::{PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER, annotation, class_of_claim, volume_name};
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
/// The class that is made.
pub(crate) const CLASS: &str = "simulated";
/// By either of these a class is the default one.
const MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// How long until a class that could not be made is tried again, and how long at most.
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

/// Puts the provisioner into a manager; the client may do what it takes.
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
        // A request that is cut off has made the class or not; the next start sees which.
        stop.run_until_cancelled(make_class(&client)).await;
        Ok::<(), Infallible>(())
    };
    manager.controller(making).controller(deleting).run_leading("simulated-class", make_class)
}

/// Makes the class, however often that takes: without it nobody has volumes, and everything else goes on.
async fn make_class(client: &Client) {
    let mut wait = RETRY.0;
    while let Err(refused) = try_make_class(client).await {
        let error = refusal::message(refused.error());
        tracing::warn!(error, ?wait, "the class of simulated volumes cannot be made");
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(RETRY.1);
    }
}

/// Makes the class, unless there is one of its name.
async fn try_make_class(client: &Client) -> Result<(), Refused> {
    let classes = Api::<StorageClass>::all(client.clone());
    // Looked for first: a webhook may refuse what would turn out to be there.
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

/// The class beside those that there are.
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

/// The volume for a claim, named by its uid, so that a second attempt makes no second one.
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

/// Deletes a volume of its own that was released.
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
