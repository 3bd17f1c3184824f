//! Runs a Pod of each DaemonSet on each Node that should have one, and replaces the Pods when the template changes.
//!
//! Follows kube-controller-manager's DaemonSet controller. A Pod is assigned to its Node by a required node affinity on
//! the name, and the scheduler binds it. `plan` decides, on Nodes in the form of `placement`; this file reads, executes
//! the plan and writes the status. A Node that changes wakes the DaemonSets that the change may affect. A Node that is
//! deleted wakes none, as upstream.

mod failures;
mod placement;
mod plan;
mod revisions;

use crate::loops::workloads::daemonset::failures::{BackoffKey, Failures};
use crate::loops::workloads::daemonset::placement::{NodeFacts, Placement, Verdict};
use crate::loops::workloads::daemonset::plan::{Change, View};
use crate::loops::workloads::daemonset::revisions::Keeper;
use crate::loops::workloads::history;
use crate::settings::Parts;
use crate::shared::dependents::{Claim, Dependents};
use crate::shared::pods::control::{self, PodControl};
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::selectors::Selectors;
use crate::shared::stale;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::Selector;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Change as Happened, Index, Informer};
use steersman::consistency::ConsistencyStore;
use steersman::events::EventType;

use steersman::owners::OwnedBy;
use steersman::write::slow_start;
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "daemonset-controller";
const WORKERS: usize = 2;
/// The most Pods that one pass creates, and also the most that it deletes.
const BURST: usize = 250;
/// The number of concurrent requests to delete Pods.
const DELETIONS_AT_ONCE: usize = 50;

pub(crate) struct Context {
    client: Client,
    control: PodControl,
    sets: Lister<DaemonSet>,
    pods: Dependents<Pod>,
    revisions: Dependents<ControllerRevision>,
    /// All Nodes. The key of each is the reduced form of the Node that plans use.
    sites: Index<Node, Arc<NodeFacts>>,
    failures: Failures,
    written: ConsistencyStore,
    clock: fn() -> Timestamp,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let sets = informers.informer::<DaemonSet>(Scope::All);
    let pods = informers.informer::<Pod>(Scope::All);
    let nodes = informers.informer::<Node>(Scope::All);
    let revisions = informers.informer::<ControllerRevision>(Scope::All);
    let written = ConsistencyStore::new().covers(&sets.lister()).covers(&pods.lister()).covers(&revisions.lister());
    let selectors = Selectors::of(&sets, |set: &DaemonSet| set.spec.selector.clone());
    let context = Context {
        control: PodControl::new(informers, client.clone(), NAME),
        client,
        sets: sets.lister(),
        pods: Dependents::of(&pods),
        revisions: Dependents::of(&revisions),
        sites: nodes.add_index(|node: &Node| [Arc::new(NodeFacts::of(node))]),
        failures: Failures::default(),
        written,
        clock: settings.clock,
    };
    let controller = Controller::of(&sets, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .owns_with(&pods, OwnedBy::Controller)
        .owns_with(&revisions, OwnedBy::Controller)
        .watches_metadata(&pods, selectors.into_adopters())
        .watches_changes(&nodes, concerned_by(&sets));
    manager.controller(controller)
}

/// The DaemonSets that a change of a Node affects: they get a Pod there now, lose one, or have one there that was
/// counted as misplaced.
fn concerned_by(sets: &Informer<DaemonSet>) -> impl Fn(&Happened<'_, Node>) -> Vec<ObjectKey> + Send + Sync + 'static {
    let sets = sets.lister();
    move |happened| {
        let (old, new) = match happened {
            Happened::Added(node, _) => (None, NodeFacts::of(node)),
            Happened::Updated { old, new } => (old.object().map(|old| NodeFacts::of(old)), NodeFacts::of(new)),
            Happened::Deleted(_) | Happened::Undecodable(_) => return Vec::new(),
        };
        if old.as_ref() == Some(&new) {
            return Vec::new();
        }
        let sets = sets.list().unwrap_or_default();
        let concerned = sets.iter().filter(|set| is_concerned(set, old.as_ref(), &new));
        concerned.map(|set| ObjectKey::of(&**set)).collect()
    }
}

fn is_concerned(set: &DaemonSet, old: Option<&NodeFacts>, new: &NodeFacts) -> bool {
    let Some(pod) = set.spec.template.spec.as_ref() else { return false };
    let placement = Placement::of(pod);
    let had_misplaced = set.status.as_ref().is_some_and(|status| status.number_misscheduled > 0);
    match (old.map(|old| placement.on(old)), placement.on(new)) {
        _ if had_misplaced => true,
        (Some(Verdict::Run), Verdict::Run) | (Some(Verdict::Leave), Verdict::Leave) | (_, Verdict::Stay) => false,
        (_, Verdict::Run | Verdict::Leave) => true,
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
    if selector.selects_all() {
        let note = "This daemon set is selecting all pods. A non-empty selector is required.";
        cx.control.events.event(&*set, EventType::Warning, "SelectingAll", note);
        return Ok(Action::AwaitChange);
    }
    // Pods of a deleted DaemonSet may have been released or deleted by now, so its counts would be uncertain.
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let claim = Claim { client: &cx.client, owner: &*set, selector: &selector };
    let mut pods = claim.of(&cx.pods).await?;
    let keeper = Keeper { cx, key: &key, set: &set };
    let revisions = keeper.read(&claim, &pods).await?;
    let sites = cx.sites.values()?;
    let now = (cx.clock)();

    let place = |node: &str| BackoffKey {
        uid: set.metadata.uid.clone().unwrap_or_default(),
        generation: set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0),
        node: node.to_owned(),
    };
    let view = View::new(&set, &sites, &pods, &revisions.hash, now);
    let mut change = plan::manage(&view, |node| cx.failures.may_replace(place(node), now));
    if change.is_nothing() {
        let again = change.again;
        change = Change { again, ..plan::roll(&view) };
    }
    let (created, mut outcome) = execute(cx, &key, &set, &revisions.hash, &change).await;
    pods.extend(created);
    if outcome.is_ok() {
        outcome = keeper.truncate(&revisions.old, &pods).await;
    }
    let again = write_status(cx, &key, &View::new(&set, &sites, &pods, &revisions.hash, now), &set).await;
    outcome?;
    let again = [again?, change.again].into_iter().flatten().min();
    Ok(again.map_or(Action::AwaitChange, Action::RequeueAfter))
}

/// Executes a plan, within the bounds of a pass. Returns the created Pods, even if a request was refused.
async fn execute(
    cx: &Context,
    key: &ObjectKey,
    set: &Arc<DaemonSet>,
    hash: &str,
    change: &Change,
) -> (Vec<Arc<Pod>>, Result<(), Error>) {
    change.notes.iter().for_each(|note| note.record(&cx.control.events, &**set));
    let n_created_max = if cx.control.namespaces.is_ending(&set.metadata) { 0 } else { BURST };
    let nodes = &change.create[..change.create.len().min(n_created_max)];
    let created = parking_lot::Mutex::new(Vec::new());
    let create = async |at: usize| {
        let Some(pod) = nodes.get(at).and_then(|node| pod_for(set, hash, node)) else { return Ok(()) };
        let pod = refusal::record_creation(&cx.written, key, cx.control.create(&**set, &pod).await)?;
        created.lock().push(Arc::new(pod));
        Ok(())
    };
    let (_, refused): (_, Option<Refused>) = slow_start(nodes.len(), create).await;
    // The cache does not show yet that the namespace is being deleted. The existing Pods are deleted with it.
    let mut refused = refused.filter(|refused| !refusal::is_namespace_ending(refused.error()));
    let delete = async |pod: &Arc<Pod>| {
        cx.control.delete(&**set, pod).await?;
        cx.written.deleted(key, &**pod);
        Ok::<(), Refused>(())
    };
    let mut deletions =
        futures::stream::iter(change.delete.iter().take(BURST).map(delete)).buffer_unordered(DELETIONS_AT_ONCE);
    while let Some(deleted) = deletions.next().await {
        refused = refused.or(deleted.err());
    }
    drop(deletions);
    (created.into_inner(), refused.map_or(Ok(()), |refused| Err(refused.into())))
}

/// The Pod for a Node.
fn pod_for(set: &DaemonSet, hash: &str, node: &str) -> Option<Pod> {
    let mut template = set.spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    if let Some(generation) = plan::generation(set) {
        labels.insert(plan::GENERATION_LABEL.to_owned(), generation.to_string());
    }
    labels.insert(history::POD_LABEL.to_owned(), hash.to_owned());
    let spec = template.spec.as_mut()?;
    spec.tolerations = Some(placement::tolerations(spec));
    placement::pin(&mut spec.affinity, node);
    Some(control::from_template(set, &template))
}

/// Writes the status if it differs. Returns when it will change by itself.
async fn write_status(
    cx: &Context,
    key: &ObjectKey,
    view: &View<'_>,
    set: &Arc<DaemonSet>,
) -> Result<Option<Duration>, Error> {
    let (status, again) = plan::status(view);
    if set.status.as_ref() != Some(&status) {
        let api = Api::<DaemonSet>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
        let changed = DaemonSet { status: Some(status), ..(**set).clone() };
        if let Some(written) = refusal::replace_status(&api, &changed).await? {
            cx.written.wrote_at(key, &written);
        }
    }
    Ok(again)
}
