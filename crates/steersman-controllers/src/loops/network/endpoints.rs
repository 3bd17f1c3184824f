//! Keeps the Endpoints of Services that select Pods: the older API, beside EndpointSlices.
//!
//! Follows kube-controller-manager's Endpoints controller. An Endpoints object has the name of its Service, and is
//! deleted with it.

mod plan;
mod subsets;

use crate::loops::network::endpoints::plan::Change as Planned;
use crate::loops::network::service_pods::pace::Pace;
use crate::loops::network::service_pods::triggers::TriggerTimes;
use crate::loops::network::service_pods::{self, ServicePods};
use crate::settings::Parts;
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::stale;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use std::sync::Arc;
use steersman::cache::{Arrival, Change};
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name of the loop in logs, and in the label of its objects.
const NAME: &str = "endpoint-controller";

const WORKERS: usize = 5;
const N_FAILURES_MAX: u32 = 15;
/// Endpoints with this annotation are leader election locks, and not endpoints of a Service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

struct Context {
    client: Client,
    events: EventRecorder,
    services: Lister<Service>,
    endpoints: Lister<Endpoints>,
    service_pods: ServicePods,
    written: ConsistencyStore,
    triggers: TriggerTimes,
    pace: Pace,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let (services, pods) = (informers.informer::<Service>(Scope::All), informers.informer::<Pod>(Scope::All));
    let endpoints = informers.informer::<Endpoints>(Scope::All);
    let context = Arc::new(Context {
        events: EventRecorder::new(client.clone(), NAME),
        services: services.lister(),
        endpoints: endpoints.lister(),
        service_pods: ServicePods::of(&services, &pods),
        written: ConsistencyStore::new().covers(&endpoints.lister()),
        triggers: TriggerTimes::default(),
        pace: Pace::default(),
        client,
    });
    let of_pods = Arc::clone(&context);
    let controller = Controller::of(&services, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .give_up_after(N_FAILURES_MAX, |key, error| {
            tracing::warn!(service = %key, error = error as &dyn std::error::Error, "the endpoints stay as they are");
        })
        .watches_changes(&pods, move |change| of_pods.service_pods.concerned(change))
        .watches_changes(&endpoints, |change| match change {
            // Endpoints that exist at the start may belong to a Service that was deleted in the meantime.
            Change::Added(endpoints, Arrival::Initial) if !is_lock(endpoints) => vec![ObjectKey::of(&***endpoints)],
            Change::Deleted(deleted) => vec![deleted.key()],
            _ => Vec::new(),
        });
    manager.controller(controller)
}

fn is_lock(endpoints: &Endpoints) -> bool {
    endpoints.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER))
}

async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    let api = Api::<Endpoints>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    let Some(service) = cx.services.find(&key)? else {
        match api.delete(key.name(), &DeleteParams::default()).await {
            Err(error) if !refusal::is_gone(&error) => {
                return Err(Refused::to(format!("delete the endpoints {key}"))(error).into());
            }
            _ => {}
        }
        cx.triggers.forget(&key);
        cx.written.clear(&key);
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
    let time = cx.triggers.next(&key, &service, &pods);
    let present = cx.endpoints.find(&key)?;
    let (result, reason, note, about) = match plan::plan(&service, &pods, present.as_deref(), time) {
        Planned::Nothing => {
            cx.pace.ran(&key, began);
            return Ok(Action::AwaitChange);
        }
        Planned::Create(endpoints) => {
            let note = format!("Failed to create endpoint for service {key}");
            (api.create(&PostParams::default(), &endpoints).await, "FailedToCreateEndpoint", note, endpoints)
        }
        Planned::Update(endpoints) => {
            let written = api.replace(key.name(), &PostParams::default(), &endpoints).await;
            (written, "FailedToUpdateEndpoint", format!("Failed to update endpoint {key}"), endpoints)
        }
    };
    cx.pace.ran(&key, began);
    match result {
        Ok(endpoints) => {
            cx.written.wrote_at(&key, &endpoints);
            Ok(Action::AwaitChange)
        }
        Err(error) if refusal::is_namespace_ending(&error) => Ok(Action::AwaitChange),
        // Somebody else has written the object. Its events do not bring the Service back, so the key is requeued.
        Err(error) if refusal::is_conflict(&error) || refusal::exists_already(&error) || refusal::is_gone(&error) => {
            Ok(Action::Requeue)
        }
        Err(error) => {
            let note = format!("{note}: {}", refusal::message(&error));
            cx.events.event(&*about, EventType::Warning, reason, &note);
            Err(Refused::to(format!("write the endpoints {key}"))(error).into())
        }
    }
}
