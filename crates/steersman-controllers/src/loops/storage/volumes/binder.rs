//! Binds PersistentVolumeClaims to PersistentVolumes, and releases or deletes volumes whose claims are gone.
//!
//! Follows upstream's `pkg/controller/volume/persistentvolume`: a binding is written to the volume first, then to the
//! claim, so that the next pass completes a binding that a crash interrupted. There are no in-tree plugins: external
//! provisioners, such as CSI's, provision and delete the storage of volumes by watching claims and volumes.

mod claim;
mod volume;

use crate::loops::storage::volumes::{class_of_claim, class_of_volume, volume_name};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Change, Index};
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::queue::RateLimiter;
use steersman::{Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

const CLAIMS: &str = "persistentvolume-binder-claims";
const VOLUMES: &str = "persistentvolume-binder-volumes";
const COMPONENT: &str = "persistentvolume-controller";
const WORKERS: usize = 4;
/// The first and the longest pause before a key runs again whose objects had changed since they were read.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

struct Context {
    client: Client,
    events: EventRecorder,
    claims: Lister<PersistentVolumeClaim>,
    volumes: Lister<PersistentVolume>,
    /// Volumes without a claimRef, by class.
    free_volumes: Index<PersistentVolume, String>,
    /// Volumes by the claim that they are reserved for or bound to.
    volumes_by_claim: Index<PersistentVolume, ObjectKey>,
    classes: Lister<StorageClass>,
    /// Pods without a node, by the claims that they refer to.
    waiting_pods: Index<Pod, ObjectKey>,
    /// Writes by reconciles of claims.
    of_claims: ConsistencyStore,
    /// Writes by reconciles of volumes.
    of_volumes: ConsistencyStore,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the cache")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the volume {volume:?} has no storage capacity")]
    NoCapacity { volume: String },
}

impl ReconcileError for Error {}

/// A write was refused because the object has changed or is gone: the key runs again.
struct Outdated;

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let claims = informers.informer::<PersistentVolumeClaim>(Scope::All);
    let volumes = informers.informer::<PersistentVolume>(Scope::All);
    let classes = informers.informer::<StorageClass>(Scope::All);
    let pods = informers.informer::<Pod>(Scope::All);
    let waiting_pods = pods.add_index(|pod| {
        if crate::shared::pods::node_name(pod).is_none() {
            crate::loops::storage::volumes::claims_of_pod(pod)
        } else {
            Vec::new()
        }
    });
    // Claims that wait for a volume, by class.
    let pending = claims.add_index(|claim| is_pending(claim).then(|| class_of_claim(claim).to_owned()));
    // Volumes by the claim in their claimRef.
    let by_claim = volumes.add_index(crate::loops::storage::volumes::claim_key);
    // Volumes without a claimRef, by class.
    let free = volumes.add_index(|volume| {
        let is_free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        is_free.then(|| class_of_volume(volume).to_owned())
    });
    // Claims by the volume that they name.
    let by_volume = claims.add_index(|claim| Some(volume_name(claim).to_owned()).filter(|name| !name.is_empty()));
    let context = Arc::new(Context {
        events: EventRecorder::new(client.clone(), COMPONENT),
        client,
        claims: claims.lister(),
        volumes: volumes.lister(),
        free_volumes: free,
        volumes_by_claim: by_claim.clone(),
        classes: classes.lister(),
        waiting_pods,
        of_claims: ConsistencyStore::new().covers(&claims.lister()).covers(&volumes.lister()),
        of_volumes: ConsistencyStore::new().covers(&volumes.lister()).covers(&claims.lister()),
    });
    let known = claims.lister();
    let keys_of = |index: &Index<PersistentVolumeClaim, String>, value: &str| index.keys(value).unwrap_or_default();
    let claim_controller = Controller::of(&claims, claim::reconcile, Arc::clone(&context))
        .name(CLAIMS)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1))
        .watches(&volumes, {
            let pending = pending.clone();
            move |volume: &PersistentVolume| {
                let named = volume.metadata.name.as_deref().map(|name| keys_of(&by_volume, name)).unwrap_or_default();
                let wanted = match crate::loops::storage::volumes::claim_key(volume) {
                    Some(key) => vec![key],
                    None => keys_of(&pending, class_of_volume(volume)),
                };
                named.into_iter().chain(wanted).collect()
            }
        })
        .watches(&classes, {
            // A class that has become the default applies to claims that name no class.
            move |class: &StorageClass| {
                let named = class.metadata.name.as_deref().map(|name| keys_of(&pending, name)).unwrap_or_default();
                named.into_iter().chain(keys_of(&pending, "")).collect()
            }
        })
        .watches_changes(&pods, move |change: &Change<'_, Pod>| {
            // A pending claim reports the Pod that it waits for.
            let claims = change.object().map(crate::loops::storage::volumes::claims_of_pod).unwrap_or_default();
            let waits = |key: &ObjectKey| known.find(key).ok().flatten().is_some_and(|claim| is_pending(&claim));
            claims.into_iter().filter(waits).collect()
        });
    let volume_controller = Controller::of(&volumes, volume::reconcile, context)
        .name(VOLUMES)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1))
        .watches(&claims, move |claim: &PersistentVolumeClaim| {
            let named = Some(volume_name(claim)).filter(|name| !name.is_empty()).map(ObjectKey::cluster);
            by_claim.keys(&ObjectKey::of(claim)).unwrap_or_default().into_iter().chain(named).collect()
        });
    manager.controller(claim_controller).controller(volume_controller)
}

fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    crate::loops::storage::volumes::annotation(
        &claim.metadata.annotations,
        crate::loops::storage::volumes::BIND_COMPLETED,
    )
    .is_none()
}

// === impl Context ===

impl Context {
    /// Replaces a claim.
    async fn update_claim(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Result<PersistentVolumeClaim, Outdated>, Refused> {
        let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
        let api = Api::namespaced(self.client.clone(), namespace.unwrap_or_default());
        outdated("claim", api.replace(name.unwrap_or_default(), &PostParams::default(), claim).await)
    }

    async fn update_volume(&self, volume: &PersistentVolume) -> Result<Result<PersistentVolume, Outdated>, Refused> {
        let api = Api::all(self.client.clone());
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        outdated("volume", api.replace(name, &PostParams::default(), volume).await)
    }

    /// Sets the phase of a volume, unless the volume has it.
    async fn set_phase(
        &self,
        volume: &PersistentVolume,
        phase: &str,
        message: Option<&str>,
    ) -> Result<Result<PersistentVolume, Outdated>, Refused> {
        if phase_of(volume) == phase {
            return Ok(Ok(volume.clone()));
        }
        let mut volume = volume.clone();
        let status = volume.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.message = message.map(str::to_owned);
        let written = refusal::replace_status(&Api::all(self.client.clone()), &volume).await?;
        Ok(written.ok_or(Outdated))
    }

    fn warn<K: kube::Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: &str) {
        self.events.event(object, EventType::Warning, reason, note);
    }

    fn say<K: kube::Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: &str) {
        self.events.event(object, EventType::Normal, reason, note);
    }
}

fn phase_of(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn outdated<K>(what: &str, written: Result<K, kube::Error>) -> Result<Result<K, Outdated>, Refused> {
    match written {
        Ok(object) => Ok(Ok(object)),
        Err(error) if refusal::is_outdated(&error) => Ok(Err(Outdated)),
        Err(error) => Err(Refused::to(format!("write the {what}"))(error)),
    }
}
