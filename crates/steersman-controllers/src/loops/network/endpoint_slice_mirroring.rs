//! Mirrors Endpoints that users write by hand into EndpointSlices: those of Services without a selector.
//!
//! Follows kube-controller-manager's EndpointSlice mirroring controller. Endpoints with the label
//! `endpointslice.kubernetes.io/skip-mirror` and leader election locks are left alone. `plan` decides on the writes.

mod plan;

use crate::loops::network::endpoint_slice_mirroring::plan::{MANAGED_BY, Plan};
use crate::loops::network::service_pods::pace::Pace;
use crate::settings::Parts;
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::stale;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use std::time::Duration;
use steersman::cache::{Change, Index};
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::queue::RateLimiter;
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name of the loop in logs, and the source of Events.
const NAME: &str = "endpoint-slice-mirroring-controller";

const WORKERS: usize = 5;
const N_FAILURES_MAX: u32 = 15;
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(100));
/// Endpoints with this annotation are leader election locks.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";

struct Context {
    client: Client,
    events: EventRecorder,
    endpoints: Lister<Endpoints>,
    services: Lister<Service>,
    /// The slices that this loop manages, by the key of the Endpoints.
    slices: Index<EndpointSlice, ObjectKey>,
    written: ConsistencyStore,
    pace: Pace,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let endpoints = informers.informer::<Endpoints>(Scope::All);
    let services = informers.informer::<Service>(Scope::All);
    let slices = informers.informer::<EndpointSlice>(Scope::All);
    let context = Context {
        events: EventRecorder::new(client.clone(), NAME),
        endpoints: endpoints.lister(),
        services: services.lister(),
        slices: slices.add_metadata_index(endpoints_of),
        written: ConsistencyStore::new().covers(&slices.lister()),
        pace: Pace::default(),
        client,
    };
    let controller = Controller::of(&endpoints, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1).bucket(10.0, 100))
        .give_up_after(N_FAILURES_MAX, |key, error| {
            tracing::warn!(endpoints = %key, error = error as &dyn std::error::Error, "the slices stay as they are");
        })
        .when(|change| {
            let old = match change {
                Change::Updated { old, .. } => old.metadata(),
                _ => None,
            };
            change.object().is_none_or(|new| is_mirrored(&new.metadata)) || old.is_some_and(is_mirrored)
        })
        .watches_changes(&services, |change| {
            let has_selector = |service: &Service| has_selector(service);
            let is_worth_it = match change {
                Change::Updated { old, new } => old.object().is_some_and(|old| has_selector(old) != has_selector(new)),
                _ => change.object().is_none_or(|service| !has_selector(service)),
            };
            change.key().into_iter().filter(|_| is_worth_it).collect()
        })
        .watches(&slices, |slice| endpoints_of(&slice.metadata).into_iter().collect());
    manager.controller(controller)
}

/// The Endpoints of a slice, if this loop manages it.
fn endpoints_of(metadata: &ObjectMeta) -> Option<ObjectKey> {
    let labels = metadata.labels.as_ref()?;
    let name = labels.get(plan::LABEL_SERVICE_NAME).filter(|name| !name.is_empty())?;
    let is_managed = labels.get(plan::LABEL_MANAGED_BY).is_some_and(|manager| manager == MANAGED_BY);
    is_managed.then(|| ObjectKey::namespaced(metadata.namespace.as_deref().unwrap_or_default(), name))
}

fn is_mirrored(metadata: &ObjectMeta) -> bool {
    let is_skipped = metadata.labels.as_ref().and_then(|labels| labels.get(SKIP)).is_some_and(|value| value == "true");
    let is_lock = metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER));
    !is_skipped && !is_lock
}

fn has_selector(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(wait) = cx.pace.wait(&key) {
        return Ok(Action::RequeueAfter(wait));
    }
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let mut slices = cx.slices.get(&key)?;
    slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let endpoints = cx.endpoints.find(&key)?.filter(|endpoints| is_mirrored(&endpoints.metadata));
    let service = cx.services.find(&key)?.filter(|service| !has_selector(service));
    let Some((endpoints, _)) = endpoints.zip(service) else {
        return cx.execute(&key, Plan { delete: slices, ..Plan::default() }).await;
    };
    let mut plan = plan::plan(&endpoints, &slices);
    if plan.n_invalid > 0 {
        let note = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", plan.n_invalid);
        cx.events.event(&*endpoints, EventType::Warning, "InvalidIPAddress", &note);
    }
    if plan.n_skipped > plan.n_invalid {
        let note = format!(
            "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
            plan::ADDRESSES_MAX,
            plan.n_skipped
        );
        cx.events.event(&*endpoints, EventType::Warning, "TooManyAddressesToMirror", &note);
    }
    if endpoints.metadata.deletion_timestamp.is_some() {
        plan.create.clear();
    }
    cx.execute(&key, plan).await
}

impl Context {
    async fn execute(&self, key: &ObjectKey, plan: Plan) -> Result<Action, Error> {
        let api = Api::<EndpointSlice>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let Plan { create, update, delete, .. } = plan;
        if create.is_empty() && update.is_empty() && delete.is_empty() {
            return Ok(Action::AwaitChange);
        }
        self.pace.ran(key, Instant::now());
        for slice in create {
            match api.create(&PostParams::default(), &slice).await {
                Ok(slice) => self.written.wrote_at(key, &slice),
                Err(error) if refusal::is_namespace_ending(&error) => return Ok(Action::AwaitChange),
                Err(error) => {
                    refusal::hold_if_unanswered(&self.written, key, &error);
                    return Err(Refused::to(format!("create a slice for {key}"))(error).into());
                }
            }
        }
        for slice in update {
            let name = slice.metadata.name.clone().unwrap_or_default();
            match api.replace(&name, &PostParams::default(), &slice).await {
                Ok(slice) => self.written.wrote_at(key, &slice),
                Err(error) if refusal::is_outdated(&error) => {}
                Err(error) => return Err(Refused::to(format!("update the slice {name:?} of {key}"))(error).into()),
            }
        }
        for slice in delete.iter().filter(|slice| slice.metadata.deletion_timestamp.is_none()) {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let preconditions = Preconditions { uid: slice.metadata.uid.clone(), resource_version: None };
            match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
                Ok(_) => self.written.deleted(key, &**slice),
                Err(error) if refusal::is_outdated(&error) => {}
                Err(error) => return Err(Refused::to(format!("delete the slice {name:?} of {key}"))(error).into()),
            }
        }
        Ok(Action::AwaitChange)
    }
}
