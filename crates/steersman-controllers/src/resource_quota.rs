//! Counts what namespaces use of what their ResourceQuotas hold.
//!
//! Follows kube-controller-manager's resource quota controller. The server's admission adds to a quota's status what is created; this
//! counts anew when a quota is made or changed, when something that it counts is deleted or needs less, and every five minutes. What an
//! object uses, both know from `steersman_machinery::quota`. Objects that only their number counts of are watched, by their metadata,
//! from when a quota holds their kind to when none does or the kind is gone.

mod counters;
mod plan;

use crate::refusal::{self, Refused};
use crate::resource_quota::counters::{Counters, Definition, Uncounted};
use crate::resource_quota::plan::{Held, Usage};
use crate::service_pods::pace::Pace;
use crate::settings::Parts;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use tokio::time::Instant;

/// The name under which the loop appears in logs.
const NAME: &str = "resource-quota-controller";

const WORKERS: usize = 5;
const RESYNC: Duration = Duration::from_mins(5);
/// How soon a quota is counted once more after its status was written: what admission has counted meanwhile may not have been there
/// yet.
const AGAIN: Duration = Duration::from_secs(1);

struct Context {
    client: Client,
    quotas: Lister<ResourceQuota>,
    claims: Lister<PersistentVolumeClaim>,
    pods: Lister<Pod>,
    services: Lister<Service>,
    counters: Counters,
    pace: Pace,
    clock: fn() -> Timestamp,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read what the quota counts")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Uncounted(#[from] Uncounted),
    #[error("cannot tell what a quota is")]
    Encode(#[from] serde_json::Error),
}

impl ReconcileError for Error {}

/// Puts the loop into a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let quotas = informers.informer::<ResourceQuota>(Scope::All);
    let (pods, services) = (informers.informer::<Pod>(Scope::All), informers.informer::<Service>(Scope::All));
    let claims = informers.informer::<PersistentVolumeClaim>(Scope::All);
    let definitions = informers.informer::<PartialObjectMeta<Definition>>(Scope::All);
    let context = Arc::new(Context {
        quotas: quotas.lister(),
        claims: claims.lister(),
        pods: pods.lister(),
        services: services.lister(),
        counters: Counters::new(client.clone(), quotas.lister()),
        pace: Pace::default(),
        clock: settings.clock,
        client,
    });
    let of = |held: Held| {
        let quotas = quotas.lister();
        move |namespace: Option<&str>| counters::concerned(&quotas, namespace, |name| held.counts(name))
    };
    let (of_pod, of_claim, of_service) = (of(Held::Pod), of(Held::Claim), of(Held::Service));
    let of_definitions = Arc::clone(&context);
    let queue_of = Arc::clone(&context);
    let controller = Controller::of(&quotas, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .resync(RESYNC)
        .when(is_about_limits)
        .watches_changes(&pods, move |change| keys(change, plan::frees_pod, &of_pod))
        .watches_changes(&claims, move |change| keys(change, plan::frees_claim, &of_claim))
        .watches_changes(&services, move |change| keys(change, plan::frees_service, &of_service))
        .watches_changes(&definitions, move |change| of_definitions.counters.definition_changed(change));
    queue_of.counters.wakes(controller.queue());
    manager.controller(controller)
}

/// Whether a change of a quota makes it worth counting. What admission adds does not.
fn is_about_limits(change: &Change<'_, ResourceQuota>) -> bool {
    let hard = |quota: &ResourceQuota| quota.spec.as_ref().and_then(|spec| spec.hard.clone());
    match change {
        Change::Updated { old, new } => {
            let is_counted = new.status.as_ref().is_some_and(|status| status.hard.is_some() && status.used.is_some());
            change.is_resync() || !is_counted || old.object().is_none_or(|old| hard(old) != hard(new))
        }
        Change::Added(..) | Change::Deleted(_) => true,
        Change::Undecodable(_) => false,
    }
}

/// The quotas to count after a change of an object: after its deletion, and after an update that `frees` something.
fn keys<K: kube::Resource>(
    change: &Change<'_, K>,
    frees: impl Fn(&K, &K) -> bool,
    concerned: impl Fn(Option<&str>) -> Vec<ObjectKey>,
) -> Vec<ObjectKey> {
    if matches!(change, Change::Added(..) | Change::Undecodable(_)) || change.is_resync() {
        return Vec::new();
    }
    // Most namespaces have no quota: then nothing else is looked at.
    let quotas = change.key().map(|key| concerned(key.namespace())).unwrap_or_default();
    let is_worth_it = match change {
        _ if quotas.is_empty() => false,
        Change::Deleted(_) => true,
        Change::Updated { old, new } => old.object().is_some_and(|old| frees(old, new)),
        Change::Added(..) | Change::Undecodable(_) => false,
    };
    if is_worth_it { quotas } else { Vec::new() }
}

async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    let Some(quota) = cx.quotas.find(&key)? else {
        cx.counters.drop_unused()?;
        return Ok(Action::AwaitChange);
    };
    if let Some(wait) = cx.pace.wait(&key) {
        return Ok(Action::RequeueAfter(wait));
    }
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    if quota.status.as_ref().and_then(|status| status.hard.as_ref()) != hard {
        cx.counters.drop_unused()?;
    }
    let began = Instant::now();
    let (usage, next) = cx.count(&quota).await?;
    cx.pace.ran(&key, began);
    let after = next.map_or(Action::AwaitChange, Action::RequeueAfter);
    let Some(counted) = plan::counted(&quota, usage) else { return Ok(after) };
    let api = Api::<ResourceQuota>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    match refusal::replace_status(&api, &counted).await? {
        Some(_) => Ok(Action::RequeueAfter(next.map_or(AGAIN, |next| next.min(AGAIN)))),
        // Admission has counted meanwhile, which is no change that wakes this.
        None => Ok(Action::Requeue),
    }
}

impl Context {
    /// Counts what a quota holds, with the time after which that changes by itself.
    async fn count(&self, quota: &ResourceQuota) -> Result<(Usage, Option<Duration>), Error> {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let scoped = serde_json::to_value(quota)?;
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
        let names: Vec<&str> = hard.into_iter().flat_map(|hard| hard.keys()).map(String::as_str).collect();
        let mut usage = Usage::new();
        let mut next = None;
        for held in names.iter().map(|name| Held::of(name)).collect::<BTreeSet<Held>>() {
            let names: Vec<&str> = names.iter().copied().filter(|name| held.counts(name)).collect();
            match &held {
                Held::Claim => {
                    let claims = self.claims.list_in(namespace)?;
                    let claims = claims.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
                    usage.add(&held, &names, &scoped, &claims);
                }
                Held::Pod => {
                    let now = (self.clock)();
                    let pods = self.pods.list_in(namespace)?;
                    next = pods.iter().filter_map(|pod| plan::time_left(pod, now)).min();
                    let pods = pods.iter().map(|pod| plan::brief(pod, now)).collect::<Result<Vec<_>, _>>()?;
                    usage.add(&held, &names, &scoped, &pods);
                }
                Held::Service => {
                    let services = self.services.list_in(namespace)?;
                    let services = services.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
                    usage.add(&held, &names, &scoped, &services);
                }
                Held::Object { group, resource } => {
                    if let Some(n) = self.counters.count(group, resource, namespace).await? {
                        usage.add_number(&held, &names, &scoped, n);
                    }
                }
                Held::Unknown => {}
            }
        }
        Ok((usage, next))
    }
}
