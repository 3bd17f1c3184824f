//! Keeps the EndpointSlices of Services that select Pods.
//!
//! Follows kube-controller-manager's EndpointSlice controller: `plan` decides on the writes, and this file on their
//! time. A change of a Pod wakes the Services whose selector matches it; a Service is written at once after a quiet
//! time, and at most ten times a second.

mod hints;
mod plan;
mod topology;

use crate::loops::network::endpoint_slices::hints::Hinting;
use crate::loops::network::endpoint_slices::plan::{Changes, LABEL_MANAGED_BY, LABEL_SERVICE_NAME, MANAGED_BY, Nodes};
use crate::loops::network::service_pods::pace::Pace;
use crate::loops::network::service_pods::triggers::{self, TriggerTimes};
use crate::loops::network::service_pods::{self, ServicePods};
use crate::settings::Parts;
use crate::shared::refusal;
use crate::shared::stale;
use hashbrown::{HashMap, HashSet};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Change, Index};
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::queue::RateLimiter;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use tokio::time::Instant;

pub(crate) use crate::loops::network::endpoint_slices::plan::ports_key;

/// The name of the loop in logs.
const NAME: &str = "endpoint-slice-controller";

const WORKERS: usize = 5;
const N_FAILURES_MAX: u32 = 15;
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1000));

struct Context {
    client: Client,
    events: EventRecorder,
    services: Lister<Service>,
    nodes: Lister<Node>,
    service_pods: ServicePods,
    /// The slices that this loop manages, by the key of the Service.
    slices: Index<EndpointSlice, ObjectKey>,
    written: ConsistencyStore,
    triggers: TriggerTimes,
    pace: Pace,
    divided: Divided,
}

/// The Services whose endpoints were divided among zones, with the address families.
type Divided = Arc<Mutex<HashMap<ObjectKey, HashSet<String>>>>;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read what the slices are made of")]
    Read(#[from] LookupError),
    #[error("cannot bring the slices up to date: {0}")]
    Update(String),
}

impl ReconcileError for Error {}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let (services, pods) = (informers.informer::<Service>(Scope::All), informers.informer::<Pod>(Scope::All));
    let (slices, nodes) = (informers.informer::<EndpointSlice>(Scope::All), informers.informer::<Node>(Scope::All));
    let divided = Divided::default();
    let context = Arc::new(Context {
        events: EventRecorder::new(client.clone(), NAME),
        services: services.lister(),
        nodes: nodes.lister(),
        service_pods: ServicePods::of(&services, &pods),
        slices: slices.add_metadata_index(service_of),
        written: ConsistencyStore::new().covers(&slices.lister()),
        triggers: TriggerTimes::default(),
        pace: Pace::default(),
        divided: Arc::clone(&divided),
        client,
    });
    let of_pods = Arc::clone(&context);
    let controller = Controller::of(&services, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1).bucket(10.0, 100))
        .give_up_after(N_FAILURES_MAX, |key, error| {
            tracing::warn!(service = %key, error = error as &dyn std::error::Error, "the slices stay as they are");
        })
        .watches_changes(&pods, move |change| of_pods.service_pods.concerned(change))
        .watches(&slices, |slice| service_of(&slice.metadata).into_iter().collect())
        .watches_changes(&nodes, move |change| {
            if moves_shares(change) { divided.lock().keys().cloned().collect() } else { Vec::new() }
        });
    manager.controller(controller)
}

/// The Service of a slice, if this loop manages it.
fn service_of(metadata: &ObjectMeta) -> Option<ObjectKey> {
    let labels = metadata.labels.as_ref()?;
    let service = labels.get(LABEL_SERVICE_NAME).filter(|name| !name.is_empty())?;
    let is_managed = labels.get(LABEL_MANAGED_BY).is_some_and(|manager| manager == MANAGED_BY);
    is_managed.then(|| ObjectKey::namespaced(metadata.namespace.as_deref().unwrap_or_default(), service))
}

/// Whether a change of a node may affect the shares of the zones.
fn moves_shares(change: &Change<'_, Node>) -> bool {
    let facts = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
        (node.metadata.labels.clone(), ready.map(|ready| ready.status), allocatable.get("cpu").cloned())
    };
    match change {
        Change::Updated { old, new } => old.object().is_none_or(|old| facts(old) != facts(new)),
        Change::Added(..) | Change::Deleted(_) => true,
        Change::Undecodable(_) => false,
    }
}

async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    let Some(service) = cx.services.find(&key)? else {
        cx.triggers.forget(&key);
        cx.written.clear(&key);
        cx.divided.lock().remove(&key);
        return Ok(Action::AwaitChange);
    };
    if service_pods::selector(&service).is_none() {
        return Ok(Action::AwaitChange);
    }
    if let Some(wait) = cx.pace.wait(&key) {
        return Ok(Action::RequeueAfter(wait));
    }
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let began = Instant::now();
    let pods = cx.service_pods.of_service(&service)?;
    let mut slices = cx.slices.get(&key)?;
    slices.retain(|slice| slice.metadata.deletion_timestamp.is_none());
    slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let time = cx.triggers.next(&key, &service, &pods);
    let nodes = cx.nodes_of(&pods)?;
    let zones = if hints::is_divided(&service) { topology::zones(&cx.nodes.list()?) } else { None };
    let mut divided = cx.divided.lock().remove(&key).unwrap_or_default();
    let mut hinting = Hinting { zones, divided: &mut divided };
    let plan = plan::plan(&service, &pods, &slices, &nodes, &mut hinting);
    if !divided.is_empty() {
        cx.divided.lock().insert(key.clone(), divided);
    }
    let mut faults = plan.skipped;
    for changes in plan.changes {
        if let Err(fault) = cx.execute(&key, &service, changes, time).await {
            faults.push(fault);
        }
    }
    cx.pace.ran(&key, began);
    for note in plan.events {
        note.record(&cx.events, &*service);
    }
    let fault = match &*faults {
        [] => return Ok(Action::AwaitChange),
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let note = format!("Error updating Endpoint Slices for Service {key}: {fault}");
    cx.events.event(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", &note);
    Err(Error::Update(fault))
}

impl Context {
    /// The nodes of Pods, with their zones.
    fn nodes_of(&self, pods: &[Arc<Pod>]) -> Result<Nodes, LookupError> {
        let mut nodes = Nodes::new();
        let mut missing = HashSet::new();
        for name in
            pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).filter(|name| !name.is_empty())
        {
            if nodes.contains_key(name) || missing.contains(name) {
                continue;
            }
            let Some(node) = self.nodes.find(&ObjectKey::cluster(name))? else {
                missing.insert(name);
                continue;
            };
            let zone = node.metadata.labels.as_ref();
            let zone = zone.and_then(|labels| labels.get("topology.kubernetes.io/zone")).cloned();
            nodes.insert(name.to_owned(), zone.filter(|zone| !zone.is_empty()));
        }
        Ok(nodes)
    }

    /// Executes the writes. Objects that somebody else has changed meanwhile are left alone: their events bring the
    /// Service back.
    async fn execute(
        &self,
        key: &ObjectKey,
        service: &Service,
        changes: Changes,
        time: Option<Timestamp>,
    ) -> Result<(), String> {
        let api = Api::<EndpointSlice>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let Changes { create, update, delete } = changes;
        // A Service that is being deleted gets no new slices: the garbage collector would have to delete them.
        for mut slice in create.into_iter().filter(|_| service.metadata.deletion_timestamp.is_none()) {
            annotate(&mut slice, time);
            match api.create(&PostParams::default(), &slice).await {
                Ok(slice) => self.written.wrote_at(key, &slice),
                Err(error) if refusal::is_namespace_ending(&error) => return Ok(()),
                Err(error) => {
                    refusal::hold_if_unanswered(&self.written, key, &error);
                    let why = refusal::message(&error);
                    return Err(format!("failed to create EndpointSlice for Service {key}: {why}"));
                }
            }
        }
        for mut slice in update {
            annotate(&mut slice, time);
            let name = slice.metadata.name.clone().unwrap_or_default();
            match api.replace(&name, &PostParams::default(), &slice).await {
                Ok(slice) => self.written.wrote_at(key, &slice),
                Err(error) if refusal::is_outdated(&error) => {}
                Err(error) => {
                    let why = refusal::message(&error);
                    return Err(format!("failed to update {name} EndpointSlice for Service {key}: {why}"));
                }
            }
        }
        for slice in delete {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let preconditions = Preconditions { uid: slice.metadata.uid.clone(), resource_version: None };
            match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
                Ok(_) => self.written.deleted(key, &*slice),
                Err(error) if refusal::is_outdated(&error) => {}
                Err(error) => {
                    let why = refusal::message(&error);
                    return Err(format!("failed to delete {name} EndpointSlice for Service {key}: {why}"));
                }
            }
        }
        Ok(())
    }
}

fn annotate(slice: &mut EndpointSlice, time: Option<Timestamp>) {
    let annotations = slice.metadata.annotations.get_or_insert_default();
    match time {
        Some(time) => drop(annotations.insert(triggers::ANNOTATION.to_owned(), time.to_string())),
        None => drop(annotations.remove(triggers::ANNOTATION)),
    }
}
