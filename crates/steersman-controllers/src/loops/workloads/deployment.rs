//! Keeps the ReplicaSets of Deployments: one for each template, each with as many Pods as the update strategy allows.
//!
//! Follows upstream's `pkg/controller/deployment`. [`plan`] decides on the writes, [`bounds`] has the arithmetic,
//! [`revision`] the annotations and [`status`] the status; this file reads and writes. Upstream writes from caches that
//! may lag behind, and runs into conflicts; here a key is held back until the caches have the writes that were made for
//! it.

mod bounds;
mod plan;
mod revision;
mod status;

use crate::loops::workloads::deployment::bounds::Strategy;
use crate::loops::workloads::deployment::plan::{DeploymentWrite, Plan, SetWrite, State};
use crate::settings::Parts;
use crate::shared::dependents::{Claim, Dependents};
use crate::shared::note::Note;
use crate::shared::pods;
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::selectors::Selectors;
use crate::shared::stale;
use hashbrown::HashSet;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Selector;
use kube::{Api, Client};
use std::sync::Arc;
use steersman::consistency::ConsistencyStore;
use steersman::events::EventRecorder;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, Scope};

/// The source of Events, and the name of the controller in logs.
const COMPONENT: &str = "deployment-controller";

/// The concurrent reconciles.
const WORKERS: usize = 16;

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    deployments: Lister<Deployment>,
    events: EventRecorder,
    pods: Dependents<Pod>,
    sets: Dependents<ReplicaSet>,
    written: ConsistencyStore,
}

/// Whether the rest of a plan is carried out.
enum Outcome {
    Done,
    /// The plan's input is outdated. An event about the change follows, or has arrived already.
    Outdated,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let deployments = manager.informers().informer::<Deployment>(Scope::All);
    let sets = manager.informers().informer::<ReplicaSet>(Scope::All);
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let selectors = Selectors::of(&deployments, |deployment: &Deployment| deployment.spec.selector.clone());
    let context = Context {
        clock: settings.clock,
        events: EventRecorder::new(client.clone(), COMPONENT),
        client,
        pods: Dependents::of(&pods),
        sets: Dependents::of(&sets),
        written: ConsistencyStore::new().covers(&deployments.lister()).covers(&sets.lister()),
        deployments: deployments.lister(),
    };
    let controller = Controller::of(&deployments, reconcile, context)
        .name(COMPONENT)
        .workers(WORKERS)
        // The strategy `Recreate` waits for the end of Pods, which the status of their ReplicaSet shows.
        .owns::<ReplicaSet>()
        .watches_metadata(&sets, selectors.into_adopters());
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(later) = stale::action(&cx.written, &key) {
        return Ok(later);
    }
    let Some(deployment) = cx.deployments.find(&key)? else {
        cx.written.clear(&key);
        return Ok(Action::AwaitChange);
    };
    let Ok(selector) = Selector::try_from(deployment.spec.selector.clone()) else { return Ok(Action::AwaitChange) };
    let sets = Claim { client: &cx.client, owner: &*deployment, selector: &selector }.of(&cx.sets).await?;
    let running = match bounds::strategy(&deployment) {
        Strategy::Recreate => running(cx, &sets)?,
        Strategy::RollingUpdate => HashSet::new(),
    };
    let state = State {
        deployment: Arc::unwrap_or_clone(deployment),
        sets: sets.into_iter().map(Arc::unwrap_or_clone).collect(),
        running,
        now: (cx.clock)(),
    };
    execute(&key, cx, &state, plan::plan(&state)).await
}

/// The uids of the ReplicaSets with Pods that have not terminated, whether they are being deleted or not.
fn running(cx: &Context, sets: &[Arc<ReplicaSet>]) -> Result<HashSet<String>, LookupError> {
    let mut running = HashSet::new();
    for uid in sets.iter().filter_map(|set| set.metadata.uid.as_deref()) {
        if cx.pods.controlled_by(uid)?.iter().any(|pod| !pods::is_terminal(pod)) {
            running.insert(uid.to_owned());
        }
    }
    Ok(running)
}

async fn execute(key: &ObjectKey, cx: &Context, state: &State, plan: Plan) -> Result<Action, Error> {
    for write in plan.sets {
        let outcome = match write {
            SetWrite::Create(set) => create(key, cx, state, &set).await?,
            SetWrite::Delete(set) => delete(key, cx, &set).await?,
            SetWrite::Update(set, notes) => {
                let outcome = update(key, cx, &set).await?;
                if matches!(outcome, Outcome::Done) {
                    record(cx, &state.deployment, &notes);
                }
                outcome
            }
        };
        if matches!(outcome, Outcome::Outdated) {
            return Ok(Action::AwaitChange);
        }
    }
    match plan.deployment {
        DeploymentWrite::Nothing => {}
        DeploymentWrite::Status(deployment) => write_status(key, cx, &deployment).await?,
        DeploymentWrite::Whole(deployment) => {
            let api = Api::<Deployment>::namespaced(cx.client.clone(), namespace(key));
            match api.replace(key.name(), &PostParams::default(), &deployment).await {
                Ok(written) => cx.written.wrote_at(key, &written),
                Err(error) if refusal::is_outdated(&error) => {
                    return Ok(Action::AwaitChange);
                }
                Err(error) => return Err(Refused::to("roll back")(error).into()),
            }
        }
    }
    record(cx, &state.deployment, &plan.events);
    Ok(plan.next_look.map_or(Action::AwaitChange, Action::RequeueAfter))
}

fn namespace(key: &ObjectKey) -> &str {
    key.namespace().unwrap_or_default()
}

fn record(cx: &Context, deployment: &Deployment, notes: &[Note]) {
    notes.iter().for_each(|note| note.record(&cx.events, deployment));
}

async fn write_status(key: &ObjectKey, cx: &Context, deployment: &Deployment) -> Result<(), Refused> {
    let api = Api::<Deployment>::namespaced(cx.client.clone(), namespace(key));
    if let Some(written) = refusal::replace_status(&api, deployment).await? {
        cx.written.wrote_at(key, &written);
    }
    Ok(())
}

async fn update(key: &ObjectKey, cx: &Context, set: &ReplicaSet) -> Result<Outcome, Refused> {
    let api = Api::<ReplicaSet>::namespaced(cx.client.clone(), namespace(key));
    let name = set.metadata.name.as_deref().unwrap_or_default();
    match api.replace(name, &PostParams::default(), set).await {
        Ok(written) => {
            cx.written.wrote_at(key, &written);
            Ok(Outcome::Done)
        }
        Err(error) if refusal::is_outdated(&error) => Ok(Outcome::Outdated),
        Err(error) => Err(Refused::to(format!("change the replica set {name:?}"))(error)),
    }
}

async fn delete(key: &ObjectKey, cx: &Context, set: &ReplicaSet) -> Result<Outcome, Refused> {
    let api = Api::<ReplicaSet>::namespaced(cx.client.clone(), namespace(key));
    let name = set.metadata.name.as_deref().unwrap_or_default();
    // Deletes only the version that was found to be empty.
    let preconditions =
        Preconditions { resource_version: set.metadata.resource_version.clone(), uid: set.metadata.uid.clone() };
    match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
        Ok(_) => {
            cx.written.deleted(key, set);
            Ok(Outcome::Done)
        }
        Err(error) if refusal::is_gone(&error) => Ok(Outcome::Done),
        Err(error) if refusal::is_conflict(&error) => Ok(Outcome::Outdated),
        Err(error) => Err(Refused::to(format!("delete the replica set {name:?}"))(error)),
    }
}

async fn create(key: &ObjectKey, cx: &Context, state: &State, set: &ReplicaSet) -> Result<Outcome, Refused> {
    let api = Api::<ReplicaSet>::namespaced(cx.client.clone(), namespace(key));
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let error = match api.create(&PostParams::default(), set).await {
        Ok(written) => {
            cx.written.wrote_at(key, &written);
            return Ok(Outcome::Done);
        }
        Err(error) => error,
    };
    if refusal::exists_already(&error) {
        let found = api.get_opt(name).await.map_err(Refused::to(format!("read the replica set {name:?}")))?;
        let Some(found) = found else { return Err(Refused::to(format!("create the replica set {name:?}"))(error)) };
        let is_own = crate::shared::dependents::is_controlled_by(&found, state.deployment.metadata.uid.as_deref());
        let is_same = found
            .spec
            .template
            .as_ref()
            .is_some_and(|template| revision::is_same_template(template, &state.deployment.spec.template));
        if is_own && is_same {
            // The cache must have the ReplicaSet before the next decision.
            cx.written.wrote_at(key, &found);
            return Ok(Outcome::Outdated);
        }
        write_status(key, cx, &plan::count_collision(&state.deployment)).await?;
        return Ok(Outcome::Outdated);
    }
    // Nothing can be created in the namespace any more.
    if refusal::is_namespace_ending(&error) {
        return Ok(Outcome::Outdated);
    }
    let (changed, note) = plan::creation_failed(&state.deployment, name, &refusal::message(&error), state.now);
    if let Some(changed) = changed {
        // The missing ReplicaSet is the more important failure, so only that is returned.
        if let Err(error) = write_status(key, cx, &changed).await {
            tracing::debug!(%error, "the failure could not be written");
        }
    }
    record(cx, &state.deployment, &[note]);
    Err(Refused::to(format!("create the replica set {name:?}"))(error))
}
