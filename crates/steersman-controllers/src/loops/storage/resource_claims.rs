//! Creates the ResourceClaims that Pods request by template, tracks who has reserved a claim, and deletes claims that
//! are no longer needed.
//!
//! Follows upstream's `pkg/controller/resourceclaim`. A claim that is created for a Pod has the names of the Pod and of
//! the entry in its own name, the annotation `resource.kubernetes.io/pod-claim-name`, and the Pod as its controller;
//! its name is written into the status of the Pod. A claim whose last Pod is done loses its allocation. PodGroups,
//! which are alpha upstream, are not supported.

mod claim;
mod pod;

use crate::settings::Parts;
use crate::shared::pods;
use crate::shared::refusal::Refused;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::Client;
use std::sync::Arc;
use steersman::cache::{Change, Index};
use steersman::consistency::ConsistencyStore;
use steersman::events::EventRecorder;
use steersman::{Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

const OF_PODS: &str = "resource-claim-controller";
const OF_CLAIMS: &str = "resource-claim-controller-claims";
const COMPONENT: &str = "resource_claim";
const WORKERS: usize = 4;
/// The annotation with the entry of the Pod's spec for which a ResourceClaim was created.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of a claim that has an allocation.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

struct Context {
    client: Client,
    events: EventRecorder,
    pods: Lister<Pod>,
    claims: Lister<ResourceClaim>,
    templates: Lister<ResourceClaimTemplate>,
    /// Claims by the uid of the Pod that controls them.
    by_owner: Index<ResourceClaim, String>,
    written: ConsistencyStore,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the cache")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{message}")]
    Claim { message: String },
}

impl ReconcileError for Error {}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let pods = informers.informer::<Pod>(Scope::All);
    let claims = informers.informer::<ResourceClaim>(Scope::All);
    let templates = informers.informer::<ResourceClaimTemplate>(Scope::All);
    let by_owner = claims.add_metadata_index(steersman::index_by::controller_uid);
    let by_claim = pods.add_index(claims_of);
    let by_template = pods.add_index(templates_of);
    let context = Arc::new(Context {
        events: EventRecorder::new(client.clone(), COMPONENT),
        client,
        pods: pods.lister(),
        claims: claims.lister(),
        templates: templates.lister(),
        by_owner,
        written: ConsistencyStore::new().covers(&claims.lister()).covers(&pods.lister()),
    });
    let of_pods = Controller::of(&pods, pod::reconcile, Arc::clone(&context))
        .name(OF_PODS)
        .workers(WORKERS)
        .when(|change: &Change<'_, Pod>| change.object().is_some_and(has_claims))
        .watches(&claims, move |claim: &ResourceClaim| by_claim.keys(&ObjectKey::of(claim)).unwrap_or_default())
        .watches(&templates, move |template: &ResourceClaimTemplate| {
            by_template.keys(&ObjectKey::of(template)).unwrap_or_default()
        });
    let of_claims = Controller::of(&claims, claim::reconcile, context)
        .name(OF_CLAIMS)
        .workers(WORKERS)
        .watches_changes(&pods, |change: &Change<'_, Pod>| {
            let Some(pod) = change.object().filter(|pod| has_claims(pod)) else { return Vec::new() };
            let is_done = matches!(change, Change::Deleted(_)) || is_done(pod);
            if is_done { claims_of(pod) } else { Vec::new() }
        });
    manager.controller(of_pods).controller(of_claims)
}

fn claims_in_spec(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

fn has_claims(pod: &Pod) -> bool {
    !claims_in_spec(pod).is_empty() || extended_claim(pod).is_some()
}

/// The claim that the scheduler created for extended resources of a Pod.
fn extended_claim(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?.extended_resource_claim_status.as_ref()?;
    Some(&status.resource_claim_name)
}

/// Whether a Pod will not run any more, or not at all.
fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || (pods::is_terminating(pod) && pods::node_name(pod).is_none())
}

/// The claim of an entry of a Pod's spec.
enum Named<'a> {
    /// The spec of the Pod names it.
    ByUser(&'a str),
    /// It was created for the Pod.
    Made(&'a str),
    /// No claim is needed for the entry.
    NotNeeded,
    /// It has not been created yet.
    Unknown,
}

fn named<'a>(pod: &'a Pod, entry: &'a PodResourceClaim) -> Named<'a> {
    if let Some(name) = &entry.resource_claim_name {
        return Named::ByUser(name);
    }
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default();
    match statuses.iter().find(|status| status.name == entry.name) {
        None => Named::Unknown,
        Some(status) => status.resource_claim_name.as_deref().map_or(Named::NotNeeded, Named::Made),
    }
}

/// The claims of a Pod whose names are known.
fn claims_of(pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let entries = claims_in_spec(pod).iter().filter_map(|entry| match named(pod, entry) {
        Named::ByUser(name) | Named::Made(name) => Some(name),
        Named::NotNeeded | Named::Unknown => None,
    });
    entries.chain(extended_claim(pod)).map(|name| ObjectKey::namespaced(namespace, name)).collect()
}

fn templates_of(pod: &Pod) -> Vec<ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let names = claims_in_spec(pod).iter().filter_map(|entry| entry.resource_claim_template_name.as_deref());
    names.map(|name| ObjectKey::namespaced(namespace, name)).collect()
}
