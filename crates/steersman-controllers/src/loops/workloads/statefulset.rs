//! Gives each StatefulSet Pods with stable names, in order, with their own claims, and replaces the Pods when the
//! template changes.
//!
//! Follows kube-controller-manager's StatefulSet controller. `plan` decides, and `execute` carries out the plan; this
//! file reads the input and writes the status. Unlike upstream, a deleted claim wakes the set, because a Pod may have
//! waited for that.

mod claims;
mod execute;
mod identity;
mod plan;
mod revisions;

use crate::loops::workloads::history;
use crate::loops::workloads::statefulset::execute::Executor;
use crate::loops::workloads::statefulset::plan::{Revision, State};
use crate::loops::workloads::statefulset::revisions::Keeper;
use crate::settings::Parts;
use crate::shared::dependents::{self, Claim, Dependents};
use crate::shared::namespaces::Namespaces;
use crate::shared::refusal::{self, Refused};
use crate::shared::stale;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Selector;
use kube::{Api, Client};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use steersman::cache::{Change as Happened, Deleted, Informer};
use steersman::consistency::ConsistencyStore;
use steersman::events::EventRecorder;
use steersman::owners::OwnedBy;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

/// The name of the loop in logs and Events.
const NAME: &str = "statefulset-controller";
const WORKERS: usize = 5;

pub(crate) struct Context {
    client: Client,
    events: EventRecorder,
    namespaces: Namespaces,
    sets: Lister<StatefulSet>,
    claims: Lister<PersistentVolumeClaim>,
    pods: Dependents<Pod>,
    revisions: Dependents<ControllerRevision>,
    written: ConsistencyStore,
    clock: fn() -> Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Claim(#[from] refusal::Error),
    #[error("{0}")]
    Claims(String),
    #[error("all names for a new revision are taken")]
    Collisions,
    #[error(transparent)]
    NoTemplate(#[from] history::NoTemplate),
    #[error("cannot read what the StatefulSet is decided from")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ReconcileError for Error {}

impl Error {
    fn is_namespace_ending(&self) -> bool {
        matches!(self, Error::Refused(refused) if refusal::is_namespace_ending(refused.error()))
    }

    /// The message of the Event about the error.
    fn message(&self) -> String {
        match self {
            Error::Refused(refused) => refusal::message(refused.error()),
            Error::Claim(_) | Error::Claims(_) | Error::Collisions | Error::NoTemplate(_) | Error::Read(_) => {
                self.to_string()
            }
        }
    }
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let sets = informers.informer::<StatefulSet>(Scope::All);
    let pods = informers.informer::<Pod>(Scope::All);
    let claims = informers.informer::<PersistentVolumeClaim>(Scope::All);
    let revisions = informers.informer::<ControllerRevision>(Scope::All);
    let written = ConsistencyStore::new()
        .covers(&sets.lister())
        .covers(&pods.lister())
        .covers(&claims.lister())
        .covers(&revisions.lister());
    let context = Context {
        events: EventRecorder::new(client.clone(), NAME),
        namespaces: Namespaces::of(informers),
        client,
        sets: sets.lister(),
        claims: claims.lister(),
        pods: Dependents::of(&pods),
        revisions: Dependents::of(&revisions),
        written,
        clock: settings.clock,
    };
    let controller = Controller::of(&sets, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .owns_with(&pods, OwnedBy::Controller)
        .watches_metadata(&pods, wanted_by(&sets))
        .watches_changes(&claims, waited_for_by(&sets));
    manager.controller(controller)
}

/// The StatefulSet that may adopt a Pod: the one whose name the Pod's name begins with, if the Pod has no controller.
fn wanted_by(sets: &Informer<StatefulSet>) -> impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync + 'static {
    let sets = sets.lister();
    move |metadata| {
        if !dependents::is_adoptable(metadata) {
            return Vec::new();
        }
        let Some((parent, _)) = identity::parse(metadata.name.as_deref().unwrap_or_default()) else {
            return Vec::new();
        };
        let key = ObjectKey::namespaced(metadata.namespace.as_deref().unwrap_or_default(), parent);
        sets.contains(&key).is_ok_and(|is_there| is_there).then_some(key).into_iter().collect()
    }
}

/// The StatefulSets of which a Pod may have waited for the deletion of a claim.
fn waited_for_by(
    sets: &Informer<StatefulSet>,
) -> impl Fn(&Happened<'_, PersistentVolumeClaim>) -> Vec<ObjectKey> + Send + Sync + 'static {
    let sets = sets.lister();
    move |happened| {
        let key = match happened {
            Happened::Deleted(Deleted::Final(claim)) => ObjectKey::of(&**claim),
            Happened::Deleted(Deleted::Tombstone { key, .. }) => key.clone(),
            Happened::Added(..) | Happened::Undecodable(_) | Happened::Updated { .. } => return Vec::new(),
        };
        let keys =
            claims::sets_of(key.name()).map(|set| ObjectKey::namespaced(key.namespace().unwrap_or_default(), set));
        keys.filter(|key| sets.contains(key).is_ok_and(|is_there| is_there)).collect()
    }
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let Some(set) = cx.sets.find(&key)? else {
        cx.written.clear(&key);
        return Ok(Action::AwaitChange);
    };
    let Ok(selector) = Selector::try_from(set.spec.selector.clone()) else { return Ok(Action::AwaitChange) };
    let claim = Claim { client: &cx.client, owner: &*set, selector: &selector };
    let keeper = Keeper { cx, key: &key, set: &set };
    let pods = claim.of_those(&cx.pods, |pod| identity::is_member(&set, pod)).await?;
    let Some(revisions) = keeper.read(&claim).await? else { return Ok(Action::AwaitChange) };

    let current_template = if revisions.current.metadata.uid == revisions.update.metadata.uid {
        Cow::Borrowed(&set.spec.template)
    } else {
        Cow::Owned(history::template(&revisions.current)?)
    };
    let (plan, failure) = {
        let failure = RefCell::new(None);
        let find = |name: &str| {
            let key = ObjectKey::namespaced(key.namespace().unwrap_or_default(), name);
            cx.claims.find(&key).unwrap_or_else(|error| {
                failure.replace(Some(error));
                None
            })
        };
        let state = State {
            set: &set,
            current: Revision { name: history::name(&revisions.current), template: &current_template },
            update: Revision { name: history::name(&revisions.update), template: &set.spec.template },
            n_collisions: revisions.n_collisions,
            pods: &pods,
            claims: &find,
            now: (cx.clock)(),
        };
        (state.plan(), failure.take())
    };
    if let Some(error) = failure {
        return Err(error.into());
    }
    // Existing Pods are deleted with the namespace, and nothing can be created in it.
    let (n_deleted, done) = if cx.namespaces.is_ending(&set.metadata) {
        (0, Ok(()))
    } else {
        Executor { cx, key: &key, set: &set }.run(&plan).await
    };
    let done = done.or_else(|error| if error.is_namespace_ending() { Ok(()) } else { Err(error) });
    let mut status = plan.status.clone();
    status.current_replicas = status.current_replicas.map(|n| n.saturating_sub(n_deleted));
    let written = write_status(cx, &key, &set, plan::complete_rolling_update(&set, status)).await;
    let truncated = keeper.truncate(&revisions, &pods).await;
    done.and(written).and(truncated)?;
    Ok(plan.again.map_or(Action::AwaitChange, Action::RequeueAfter))
}

/// Writes the status if it differs.
async fn write_status(
    cx: &Context,
    key: &ObjectKey,
    set: &Arc<StatefulSet>,
    status: StatefulSetStatus,
) -> Result<(), Error> {
    if !plan::differs(set.status.as_ref(), &status) {
        return Ok(());
    }
    let api = Api::<StatefulSet>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    let changed = StatefulSet { status: Some(status), ..(**set).clone() };
    if let Some(written) = refusal::replace_status(&api, &changed).await? {
        cx.written.wrote_at(key, &written);
    }
    Ok(())
}
