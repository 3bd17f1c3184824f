//! Creates the claims of Pods' generic ephemeral volumes, owned by the Pods.
//!
//! Follows upstream's `pkg/controller/volume/ephemeral`. A claim of that name with another owner is left alone, and
//! reported by an Event.

use crate::settings::Parts;
use crate::shared::dependents;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use steersman::cache::Change;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

const NAME: &str = "ephemeral-volume-controller";
const COMPONENT: &str = "ephemeral_volume";
const WORKERS: usize = 4;

struct Context {
    client: Client,
    events: EventRecorder,
    pods: Lister<Pod>,
    claims: Lister<PersistentVolumeClaim>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the cache")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOurs { claim: ObjectKey, pod: ObjectKey },
}

impl ReconcileError for Error {}

/// The name of the claim of an ephemeral volume.
pub(crate) fn claim_name(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", pod.metadata.name.as_deref().unwrap_or_default())
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let (pods, claims) =
        (informers.informer::<Pod>(Scope::All), informers.informer::<PersistentVolumeClaim>(Scope::All));
    let by_claim = pods.add_index(|pod| ephemeral_claims(pod).map(|(key, _)| key).collect::<Vec<_>>());
    let context = Context {
        events: EventRecorder::new(client.clone(), COMPONENT),
        client,
        pods: pods.lister(),
        claims: claims.lister(),
    };
    let controller = Controller::of(&pods, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .when(|change: &Change<'_, Pod>| change.object().is_some_and(|pod| ephemeral_claims(pod).next().is_some()))
        .watches_changes(&claims, move |change: &Change<'_, PersistentVolumeClaim>| match change {
            Change::Deleted(deleted) => by_claim.keys(&deleted.key()).unwrap_or_default(),
            _ => Vec::new(),
        });
    manager.controller(controller)
}

fn ephemeral_claims(pod: &Pod) -> impl Iterator<Item = (ObjectKey, &Volume)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let ephemeral = volumes.filter(|volume| volume.ephemeral.is_some());
    ephemeral.map(move |volume| (ObjectKey::namespaced(namespace, &claim_name(pod, &volume.name)), volume))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(pod) = cx.pods.find(&key)? else { return Ok(Action::AwaitChange) };
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    for (claim, volume) in ephemeral_claims(&pod) {
        if let Err(error) = ensure(cx, &key, &pod, claim, volume).await {
            let why = match &error {
                Error::Refused(refused) => refusal::message(refused.error()),
                error => error.to_string(),
            };
            let note = format!("ephemeral volume {}: {why}", volume.name);
            cx.events.event(&*pod, EventType::Warning, "FailedBinding", &note);
            return Err(error);
        }
    }
    Ok(Action::AwaitChange)
}

async fn ensure(cx: &Context, pod_key: &ObjectKey, pod: &Pod, key: ObjectKey, volume: &Volume) -> Result<(), Error> {
    match cx.claims.find(&key)? {
        Some(claim) if dependents::is_controlled_by(&*claim, pod.metadata.uid.as_deref()) => return Ok(()),
        Some(_) => return Err(Error::NotOurs { claim: key, pod: pod_key.clone() }),
        None => {}
    }
    let template = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
    let Some(template) = template else { return Ok(()) };
    let described = template.metadata.clone().unwrap_or_default();
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            annotations: described.annotations,
            labels: described.labels,
            name: Some(key.name().to_owned()),
            owner_references: dependents::reference_to(pod).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    };
    let claims = Api::<PersistentVolumeClaim>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    match claims.create(&PostParams::default(), &claim).await {
        Ok(_) => Ok(()),
        // The cache lags behind. If the claim is somebody else's, the event of its deletion wakes the Pod again.
        Err(error) if refusal::exists_already(&error) => {
            let found = claims.get_opt(key.name()).await.map_err(Refused::to(format!("read the claim {key}")))?;
            let is_ours = found.is_none_or(|found| dependents::is_controlled_by(&found, pod.metadata.uid.as_deref()));
            if is_ours { Ok(()) } else { Err(Error::NotOurs { claim: key, pod: pod_key.clone() }) }
        }
        Err(error) => Err(Refused::to(format!("create PVC {}", key.name()))(error).into()),
    }
}
