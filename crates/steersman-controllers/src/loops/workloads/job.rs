//! Runs the Pods of Jobs, counts how they finish, and marks Jobs as finished.
//!
//! Follows upstream's `pkg/controller/job`. A Pod is created with the finalizer `batch.kubernetes.io/job-tracking`, so
//! that none is lost uncounted. `pass` decides and counts; this file sends the requests. `orphans` removes the
//! finalizer from Pods that no Job counts, because their Job is gone or has finished. Upstream collects the events of
//! Pods for a second before it reconciles their Job; here the Job is reconciled at once.

mod backoff;
mod index;
mod intervals;
mod orphans;
mod pass;
mod policy;
mod removal;
mod template;

use crate::loops::workloads::job::backoff::Backoff;
use crate::loops::workloads::job::pass::{Done, Pass, PodAction, Stage, Suspension};
use crate::settings::Parts;
use crate::shared::dependents::{Claim, Dependents};
use crate::shared::pods;
use crate::shared::pods::control::PodControl;
use crate::shared::refusal::{self, Refused};
use crate::shared::stale;
use futures::StreamExt as _;
use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Selector;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::consistency::ConsistencyStore;
use steersman::controller::Watch;
use steersman::events::EventType;
use steersman::queue::RateLimiter;
use steersman::write::slow_start;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope, owners};
use tokio::time::Instant;

/// The source of Events, and the name of the loop in logs. `managedBy` may name it too.
const NAME: &str = "job-controller";
const MANAGED_BY: &str = "kubernetes.io/job-controller";
/// Upstream's default.
const WORKERS: usize = 5;

/// Keeps a Pod until it is counted.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A Job with at least this many Pods is reconciled less often.
const MANY: usize = 100;
const REST_MAX: Duration = Duration::from_secs(1);
/// The most concurrent requests about the Pods of one Job.
const REQUESTS_MAX: usize = 50;

struct Context {
    clock: fn() -> Timestamp,
    control: PodControl,
    jobs: Lister<Job>,
    memory: Mutex<HashMap<ObjectKey, Memory>>,
    pods: Dependents<Pod>,
    written: ConsistencyStore,
}

/// State of an unfinished Job that is not in its status.
#[derive(Clone, Default)]
struct Memory {
    /// The uid of the Job: for another Job of the same name the state starts over.
    uid: Option<String>,
    backoff: Backoff,
    /// Uids of Pods whose finalizer was removed and that the cache still showed with it at the last reconcile.
    released: HashSet<String>,
    /// A Job of many Pods is not reconciled before this time, so that it takes at most half of a worker's time while
    /// all its Pods change.
    rest_until: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot find the pods of the job")]
    Claim(#[source] refusal::Error),
    #[error("cannot read the job")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the selector of the job cannot be read")]
    Selector(#[source] kube::core::ParseExpressionError),
}

impl ReconcileError for Error {}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let (jobs, pods) = {
        let informers = manager.informers();
        (informers.informer::<Job>(Scope::All), informers.informer::<Pod>(Scope::All))
    };
    let control = PodControl::new(manager.informers(), client.clone(), NAME);
    let manager = orphans::add(manager, client, &jobs, &pods);
    let context = Context {
        clock: settings.clock,
        control,
        jobs: jobs.lister(),
        memory: Mutex::default(),
        pods: Dependents::of(&pods),
        written: ConsistencyStore::new().covers(&jobs.lister()).covers(&pods.lister()),
    };
    // A Job may adopt a Pod without a controller.
    let selecting = jobs.add_index(selected_places);
    let free = Watch::of(&pods).when(|change: &Change<'_, Pod>| match change {
        Change::Added(pod, _) => owners::controller_of(&***pod).is_none(),
        Change::Updated { old, new } => {
            let is_same = old.metadata().is_some_and(|old| {
                old.labels == new.metadata.labels && old.owner_references == new.metadata.owner_references
            });
            owners::controller_of(&***new).is_none() && !is_same
        }
        Change::Deleted(_) | Change::Undecodable(_) => false,
    });
    let controller = Controller::of(&jobs, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .rate_limiter(RateLimiter::exponential(RETRY, RETRY_MAX))
        .owns_with(Watch::of(&pods), owners::OwnedBy::Controller)
        .watches(free, move |pod| {
            let places =
                [Some(AdoptionKey::Manual(pod.metadata.namespace.clone().unwrap_or_default())), uid_label(pod)];
            let keys = places.into_iter().flatten().filter_map(|place| selecting.keys(&place).ok());
            keys.flatten().collect()
        });
    manager.controller(controller)
}

/// The index keys of Jobs that may adopt a Pod.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum AdoptionKey {
    /// Jobs in this namespace with a selector that a user wrote.
    Manual(String),
    /// The Job with this uid, with the selector that the server generates.
    Uid(String),
}

fn selected_places(job: &Job) -> Vec<AdoptionKey> {
    let is_manual = job.spec.as_ref().is_some_and(|spec| spec.manual_selector == Some(true));
    let uid = job.metadata.uid.clone().map(AdoptionKey::Uid);
    let manual = is_manual.then(|| AdoptionKey::Manual(job.metadata.namespace.clone().unwrap_or_default()));
    uid.into_iter().chain(manual).collect()
}

fn uid_label(pod: &Pod) -> Option<AdoptionKey> {
    let labels = pod.metadata.labels.as_ref()?;
    let uid = labels.get("batch.kubernetes.io/controller-uid").or_else(|| labels.get("controller-uid"))?;
    Some(AdoptionKey::Uid(uid.clone()))
}

/// The condition that says how a Job has finished, if it has.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|one| matches!(&*one.type_, "Complete" | "Failed") && one.status == "True")
}

/// Whether a Job has completed successfully.
pub(crate) fn is_complete(job: &Job) -> bool {
    let mut conditions = job.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.any(|one| one.type_ == "Complete" && one.status == "True")
}

/// Whether another controller manages the Job.
fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != MANAGED_BY)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    if let Some(rest) = cx.rest(&key) {
        return Ok(Action::RequeueAfter(rest));
    }
    let Some(job) = cx.jobs.find(&key)? else {
        cx.forget(&key);
        return Ok(Action::AwaitChange);
    };
    if is_managed_elsewhere(&job) || finished(&job).is_some() {
        cx.forget(&key);
        return Ok(Action::AwaitChange);
    }
    let Some(spec) = &job.spec else { return Ok(Action::AwaitChange) };
    if !matches!(spec.completion_mode.as_deref(), None | Some("Indexed" | "NonIndexed")) {
        let note = "Skipped Job sync because completion mode is unknown";
        cx.control.events.event(&*job, EventType::Warning, "UnknownCompletionMode", note);
        return Ok(Action::AwaitChange);
    }
    let selector = Selector::try_from(spec.selector.clone().unwrap_or_default()).map_err(Error::Selector)?;
    let claim = Claim { client: &cx.control.client, owner: &*job, selector: &selector };
    let adopted = |pod: &Pod| cx.written.wrote_at(&key, pod);
    let pods = claim.of_held(&cx.pods, FINALIZER, adopted).await.map_err(Error::Claim)?;
    let (begun, n_pods) = (Instant::now(), pods.len());
    let mut memory = cx.recall(&key, &job, &pods);
    let released = memory.released.clone();
    let Some(mut pass) = Pass::new(&job, pods, &released, memory.backoff, (cx.clock)()) else {
        return Ok(Action::AwaitChange);
    };
    let todo = pass.todo();
    let (done, refused) = carry_out(cx, &key, &job, todo).await;
    pass.done(done);
    let release = pass.account();
    let mut status = Writer { cx, key: &key, job: &job, written: None };
    if !status.write(&pass.status).await? {
        return refused.map_or(Ok(Action::RequeueAfter(RETRY)), |refused| Err(refused.into()));
    }
    memory.backoff = pass.backoff;
    say_suspension(cx, &job, pass.suspension);
    let (released_now, not_released) = release_all(cx, &key, release).await;
    memory.released.extend(released_now.iter().cloned());
    memory.rest_until = (n_pods >= MANY).then(|| Instant::now() + begun.elapsed().min(REST_MAX));
    cx.memory.lock().insert(key.clone(), memory);
    let finish = pass.count_and_finish(|pod| released_now.contains(pass::uid(pod)));
    if let Some(refused) = not_released {
        return Err(refused.into());
    }
    if !status.write(&pass.status).await? {
        return Ok(Action::RequeueAfter(RETRY));
    }
    if let Some(finish) = finish {
        let event = |type_, reason: &str, note: &str| cx.control.events.event(&*job, type_, reason, note);
        if matches!(finish.stage, Stage::Complete | Stage::SuccessCriteriaMet) {
            if pass.has_too_many_successes() {
                let note = "Too many succeeded pods running after completion count reached";
                event(EventType::Warning, "TooManySucceededPods", note);
            }
            event(EventType::Normal, "Completed", "Job completed");
        } else {
            event(EventType::Warning, &finish.reason, &finish.message);
        }
    }
    match refused {
        Some(refused) => Err(refused.into()),
        None => Ok(pass.wait.map_or(Action::AwaitChange, Action::RequeueAfter)),
    }
}

// === impl Context ===

impl Context {
    fn forget(&self, key: &ObjectKey) {
        self.memory.lock().remove(key);
        self.written.clear(key);
    }

    /// How long the Job is not to be reconciled yet.
    fn rest(&self, key: &ObjectKey) -> Option<Duration> {
        let until = self.memory.lock().get(key)?.rest_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// The state of the Job, without uids that the cache shows as released by now.
    fn recall(&self, key: &ObjectKey, job: &Job, pods: &[Arc<Pod>]) -> Memory {
        let known = self.memory.lock().get(key).filter(|known| known.uid == job.metadata.uid).cloned();
        let mut memory = known.unwrap_or_else(|| Memory { uid: job.metadata.uid.clone(), ..Memory::default() });
        if !memory.released.is_empty() {
            let held = pods.iter().filter(|pod| pass::has_finalizer(pod)).map(|pod| pass::uid(pod));
            let held: HashSet<&str> = held.collect();
            memory.released.retain(|uid| held.contains(&**uid));
        }
        memory
    }
}

// === Pods ===

/// Creates and deletes Pods. Returns how many, and the first refusal.
async fn carry_out(cx: &Context, key: &ObjectKey, job: &Job, todo: PodAction) -> (Done, Option<Refused>) {
    match todo {
        PodAction::Create(_) if cx.control.namespaces.is_ending(&job.metadata) => (Done::default(), None),
        PodAction::Create(orders) => {
            let template = template::Template::of(job);
            let create = |at: usize| {
                let pod = template.pod(&orders[at]);
                async move { refusal::record_creation(&cx.written, key, cx.control.create(job, &pod).await).map(drop) }
            };
            let (n_created, refused): (_, Option<Refused>) = slow_start(orders.len(), create).await;
            let refused = refused.filter(|refused| !refusal::is_namespace_ending(refused.error()));
            (Done { n_created, ..Done::default() }, refused)
        }
        PodAction::End(pods) => delete_all(cx, key, job, pods, Releasing::No).await,
        PodAction::Nothing => (Done::default(), None),
        PodAction::Remove(pods) => delete_all(cx, key, job, pods, Releasing::Yes).await,
    }
}

/// Whether Pods lose the finalizer before they are deleted.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Releasing {
    No,
    Yes,
}

async fn delete_all(
    cx: &Context,
    key: &ObjectKey,
    job: &Job,
    pods: Vec<Arc<Pod>>,
    releasing: Releasing,
) -> (Done, Option<Refused>) {
    let delete = async |pod: Arc<Pod>| {
        if releasing == Releasing::Yes && pass::has_finalizer(&pod) {
            release(cx, key, &pod).await?;
        }
        cx.control.delete(job, &pod).await?;
        cx.written.deleted(key, &*pod);
        Ok::<bool, Refused>(pods::is_ready(&pod))
    };
    let mut results = futures::stream::iter(pods).map(delete).buffer_unordered(REQUESTS_MAX);
    let (mut done, mut refused) = (Done::default(), None);
    while let Some(result) = results.next().await {
        match result {
            Ok(is_ready) => {
                done.n_deleted += 1;
                done.n_ready += usize::from(is_ready);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    (done, refused)
}

/// Removes the finalizer from Pods. Returns the uids of the Pods that no longer have it, and the first refusal.
async fn release_all(cx: &Context, key: &ObjectKey, pods: Vec<Arc<Pod>>) -> (HashSet<String>, Option<Refused>) {
    let release = async |pod: Arc<Pod>| release(cx, key, &pod).await.map(|()| pass::uid(&pod).to_owned());
    let mut results = futures::stream::iter(pods).map(release).buffer_unordered(REQUESTS_MAX);
    let (mut released, mut refused) = (HashSet::new(), None);
    while let Some(result) = results.next().await {
        match result {
            Ok(uid) => drop(released.insert(uid)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    (released, refused)
}

/// Removes the finalizer from a Pod. A Pod that is gone counts as released.
async fn release(cx: &Context, key: &ObjectKey, pod: &Pod) -> Result<(), Refused> {
    let api = Api::<Pod>::namespaced(cx.control.client.clone(), key.namespace().unwrap_or_default());
    release_in(&api, pod).await
}

async fn release_in(api: &Api<Pod>, pod: &Pod) -> Result<(), Refused> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let metadata = json!({"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
    let patch = Patch::Strategic(json!({"metadata": metadata}));
    match api.patch_metadata(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(error) if refusal::is_gone(&error) => Ok(()),
        Err(error) => Err(Refused::to(format!("take the finalizer from the pod {name:?}"))(error)),
    }
}

// === status ===

/// Writes the status of a Job, several times in a pass.
struct Writer<'a> {
    cx: &'a Context,
    key: &'a ObjectKey,
    job: &'a Job,
    /// The Job as the server has it since the last write.
    written: Option<Job>,
}

impl Writer<'_> {
    /// Writes the status. Returns whether the server has it now: it does not if the Job has changed since it was read.
    async fn write(&mut self, status: &JobStatus) -> Result<bool, Refused> {
        let known = self.written.as_ref().unwrap_or(self.job);
        if known.status.as_ref() == Some(status) {
            return Ok(true);
        }
        let changed = Job { status: Some(status.clone()), ..known.clone() };
        let api = Api::<Job>::namespaced(self.cx.control.client.clone(), self.key.namespace().unwrap_or_default());
        let Some(written) = refusal::replace_status(&api, &changed).await? else { return Ok(false) };
        self.cx.written.wrote_at(self.key, &written);
        // The server truncates times to whole seconds, so the status is kept as it was intended.
        self.written = Some(Job { status: Some(status.clone()), ..written });
        Ok(true)
    }
}

fn say_suspension(cx: &Context, job: &Job, suspension: Option<Suspension>) {
    let (reason, note) = match suspension {
        None => return,
        Some(Suspension::Resumed) => ("Resumed", "Job resumed"),
        Some(Suspension::Suspended) => ("Suspended", "Job suspended"),
    };
    cx.control.events.event(job, EventType::Normal, reason, note);
}
