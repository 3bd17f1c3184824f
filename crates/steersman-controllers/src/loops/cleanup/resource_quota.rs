//! Computes the usage of namespaces under their ResourceQuotas.
//!
//! Follows kube-controller-manager's resource quota controller. The server's admission adds created objects to a
//! quota's status; this loop recomputes the usage when a quota is created or changed, when an object that it counts is
//! deleted or needs less, and every five minutes. Both take the usage of an object from `steersman_machinery::quota`.
//! Objects of kinds that are only counted are watched, by their metadata, as long as a quota limits their kind and the
//! kind is served.

mod counters;
mod plan;

use crate::loops::cleanup::resource_quota::counters::{Counters, Definition, Number};
use crate::loops::cleanup::resource_quota::plan::{Held, Usage};
use crate::loops::network::service_pods::pace::Pace;
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use tokio::time::Instant;

/// The name of the loop in logs.
const NAME: &str = "resource-quota-controller";

const WORKERS: usize = 5;
const RESYNC: Duration = Duration::from_mins(5);
/// How soon a quota is computed again after its status was written: objects that admission has counted meanwhile may
/// not have been in the caches yet.
const AGAIN: Duration = Duration::from_secs(1);
/// The number of objects that are counted before other tasks get a turn.
const CHUNK: usize = 256;

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
    #[error("cannot tell what a quota is")]
    Encode(#[from] serde_json::Error),
}

impl ReconcileError for Error {}

/// The usage of a quota, as far as it could be computed.
#[derive(Default)]
struct Counted {
    usage: Usage,
    /// When the usage changes by itself.
    next: Option<Duration>,
    /// Why something was not counted; the first of several reasons.
    error: Option<Error>,
}

/// Adds the loop to a manager.
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

/// Whether a change of a quota requires a recount. Usage that admission adds does not.
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

/// The quotas to recount after a change of an object: after its deletion, and after an update that `frees` usage.
fn keys<K: kube::Resource>(
    change: &Change<'_, K>,
    frees: impl Fn(&K, &K) -> bool,
    concerned: impl Fn(Option<&str>) -> Vec<ObjectKey>,
) -> Vec<ObjectKey> {
    if change.is_resync() || matches!(change, Change::Added(..) | Change::Undecodable(_)) {
        return Vec::new();
    }
    // Most namespaces have no quota, and then nothing is compared.
    let quotas = change.key().map(|key| concerned(key.namespace())).unwrap_or_default();
    if quotas.is_empty() {
        return quotas;
    }
    match change {
        Change::Updated { old, new } if !old.object().is_some_and(|old| frees(old, new)) => Vec::new(),
        _ => quotas,
    }
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
    let Counted { usage, next, error } = cx.count(&quota).await?;
    cx.pace.ran(&key, began);
    let mut action = next.map_or(Action::AwaitChange, Action::RequeueAfter);
    if let Some(counted) = plan::counted(&quota, usage) {
        let api = Api::<ResourceQuota>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
        action = match refusal::replace_status(&api, &counted).await? {
            Some(_) => Action::RequeueAfter(next.map_or(AGAIN, |next| next.min(AGAIN))),
            // Admission has counted meanwhile, which is not a change that wakes this loop.
            None => Action::Requeue,
        };
    }
    error.map_or(Ok(action), Err)
}

impl Context {
    /// Computes the usage of a quota. Resources that cannot be counted do not prevent the count of the others.
    async fn count(&self, quota: &ResourceQuota) -> Result<Counted, Error> {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let scoped = serde_json::to_value(quota)?;
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
        let names: Vec<&str> = hard.into_iter().flat_map(|hard| hard.keys()).map(String::as_str).collect();
        let mut counted = Counted::default();
        for held in names.iter().map(|name| Held::of(name)).collect::<BTreeSet<Held>>() {
            let names: Vec<&str> = names.iter().copied().filter(|name| held.counts(name)).collect();
            match self.count_held(&held, &names, &scoped, namespace).await {
                Ok((usage, next)) => {
                    counted.next = counted.next.into_iter().chain(next).min();
                    counted.usage.extend(usage);
                }
                Err(error) => counted.error = counted.error.or(Some(error)),
            }
        }
        Ok(counted)
    }

    /// Computes the usage of one kind, and the time after which it changes by itself.
    async fn count_held(
        &self,
        held: &Held,
        names: &[&str],
        scoped: &Value,
        namespace: &str,
    ) -> Result<(Usage, Option<Duration>), Error> {
        let (mut usage, mut next) = (Usage::new(), None);
        let add = |objects: &[Value]| usage.add(held, names, scoped, objects);
        match held {
            Held::Claim => {
                in_chunks(&self.claims.list_in(namespace)?, |claim| serde_json::to_value(claim), add).await?;
            }
            Held::Pod => {
                let now = (self.clock)();
                let pods = self.pods.list_in(namespace)?;
                next = pods.iter().filter_map(|pod| plan::time_left(pod, now)).min();
                in_chunks(&pods, |pod| plan::brief(pod, now), add).await?;
            }
            Held::Service => {
                in_chunks(&self.services.list_in(namespace)?, |service| serde_json::to_value(service), add).await?;
            }
            Held::Object { group, resource } => match self.counters.count(group, resource, namespace).await? {
                Number::Known(n) => usage.add_number(held, names, scoped, n),
                Number::NotListed | Number::NotServed => {}
            },
            Held::Unknown => {}
        }
        Ok((usage, next))
    }
}

/// Passes the results of `brief` to `add` in chunks, and yields to other tasks in between.
async fn in_chunks<K>(
    objects: &[Arc<K>],
    brief: impl Fn(&K) -> Result<Value, serde_json::Error>,
    mut add: impl FnMut(&[Value]),
) -> Result<(), serde_json::Error> {
    add(&[]);
    for chunk in objects.chunks(CHUNK) {
        add(&chunk.iter().map(|object| brief(object)).collect::<Result<Vec<_>, _>>()?);
        tokio::task::yield_now().await;
    }
    Ok(())
}
