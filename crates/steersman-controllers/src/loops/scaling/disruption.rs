//! Keeps the status of PodDisruptionBudgets: the expected and the healthy number of Pods, and how many may be evicted.
//!
//! Follows kube-controller-manager's disruption controller. The server's eviction subresource decides by this status
//! and records in it the Pods that it evicts (`disruptedPods`), which count as gone for two minutes. `scale` finds out
//! how many Pods their owners want. In addition, `stale_target` resets the condition `DisruptionTarget` of Pods that
//! were to be deleted and were not.

mod overlaps;
mod plan;
mod scale;
mod stale_target;

use crate::loops::network::service_pods::pace::Pace;
use crate::loops::scaling::disruption::overlaps::{Budgets, Overlaps};
use crate::loops::scaling::disruption::plan::{Expected, Limit};
use crate::loops::scaling::disruption::scale::{Scales, Unknown};
use crate::settings::Parts;
use crate::shared::pods;
use crate::shared::pods::by_label::{self, ByLabel};
use crate::shared::refusal::{self, Error};
use crate::shared::stale;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Change;
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name of the loop in logs.
const NAME: &str = "disruption-controller";
/// The source of Events.
const COMPONENT: &str = "controllermanager";

const WORKERS: usize = 4;

struct Context {
    client: Client,
    events: EventRecorder,
    budgets: Lister<PodDisruptionBudget>,
    overlaps: Overlaps,
    pods: ByLabel<Pod>,
    scales: Scales,
    written: ConsistencyStore,
    pace: Pace,
    clock: fn() -> Timestamp,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let pods = informers.informer::<Pod>(Scope::All);
    let budgets = informers.informer::<PodDisruptionBudget>(Scope::All);
    let selecting = Arc::new(Budgets::of(&budgets));
    let context = Context {
        overlaps: Overlaps::new(Arc::clone(&selecting)),
        events: EventRecorder::new(client.clone(), COMPONENT),
        budgets: budgets.lister(),
        pods: ByLabel::of(&pods),
        scales: Scales::new(informers, client.clone()),
        written: ConsistencyStore::new().covers(&budgets.lister()),
        pace: Pace::default(),
        clock: settings.clock,
        client: client.clone(),
    };
    let controller = Controller::of(&budgets, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .watches_changes(&pods, move |change| concerned(change, &selecting));
    stale_target::add(manager.controller(controller), client, settings.clock)
}

/// The budgets that a change of a Pod affects.
fn concerned(change: &Change<'_, Pod>, budgets: &Budgets) -> Vec<ObjectKey> {
    let Some(pod) = change.object() else { return Vec::new() };
    // Most namespaces have no budgets, and then the previous state is not decoded.
    if !budgets.are_in(pod.metadata.namespace.as_deref().unwrap_or_default()) {
        return Vec::new();
    }
    let mut labels = vec![&pod.metadata];
    if let Change::Updated { old, .. } = change
        && !change.is_resync()
    {
        match old.object() {
            Some(old) if !is_changed(old, pod) => return Vec::new(),
            _ => {}
        }
        labels.extend(old.metadata().filter(|old| old.labels != pod.metadata.labels));
    }
    let keys = labels.into_iter().flat_map(|metadata| budgets.of_pod(metadata).unwrap_or_default());
    keys.collect::<BTreeSet<ObjectKey>>().into_iter().collect()
}

/// Whether a change of a Pod affects the counts of budgets.
fn is_changed(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels != new.metadata.labels
        || old.metadata.owner_references != new.metadata.owner_references
        || pods::is_terminating(old) != pods::is_terminating(new)
        || pods::is_ready(old) != pods::is_ready(new)
        || pods::phase(old) != pods::phase(new)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(budget) = cx.budgets.find(&key)? else {
        cx.overlaps.forget(&key);
        cx.written.clear(&key);
        return Ok(Action::AwaitChange);
    };
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    if let Some(wait) = cx.pace.wait(&key) {
        return Ok(Action::RequeueAfter(wait));
    }
    let began = Instant::now();
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let pods = match selector {
        Some(selector) => cx.pods.selected(key.namespace().unwrap_or_default(), selector)?,
        None => Vec::new(),
    };
    if pods.is_empty() {
        cx.events.event(&*budget, EventType::Normal, "NoPods", "No matching pods found");
    }
    for (pod, note) in cx.overlaps.new_ones(&key, &pods)? {
        cx.events.event(&*pod, EventType::Warning, "MultiplePodDisruptionBudgets", &note);
    }
    let now = (cx.clock)();
    let expected = cx.expected(&budget, &pods).await;
    cx.pace.ran(&key, began);
    let expected = match expected {
        Ok(expected) => expected,
        Err(Unknown::Read(error)) => return Err(error.into()),
        Err(Unknown::Owner(why)) => {
            let note = format!("Failed to calculate the number of expected pods: {why}");
            cx.events.event(&*budget, EventType::Warning, "CalculateExpectedPodCountFailed", &note);
            return cx.write(&key, plan::failed(&budget, &why, now)).await.map(|()| Action::AwaitChange);
        }
    };
    if !expected.unmanaged.is_empty() {
        let note = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the \
             PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
             \".spec.minAvailable\" field of the PDB to an integer value.",
            by_label::go_text(selector)
        );
        cx.events.event(&*budget, EventType::Warning, "UnmanagedPods", &note);
    }
    let planned = plan::plan(&budget, &pods, &expected, now);
    for pod in planned.not_deleted {
        let namespace = key.namespace().unwrap_or_default();
        // Upstream names the namespace twice.
        let note = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        cx.events.event(&*pod, EventType::Warning, "NotDeleted", &note);
    }
    if let Some(status) = planned.status {
        cx.write(&key, status).await?;
    }
    Ok(planned.recheck_in.map_or(Action::AwaitChange, Action::RequeueAfter))
}

impl Context {
    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Expected, Unknown> {
        let wanted = Limit::of(budget);
        if !wanted.needs_scale() {
            return wanted.of_pods(pods.len()).map_err(Unknown::Owner);
        }
        let scale = self.scales.of_pods(pods).await?;
        let (count, healthy) = wanted.of_scale(scale.count).map_err(Unknown::Owner)?;
        Ok(Expected { count, healthy, unmanaged: scale.unmanaged })
    }

    /// Writes a status. After a conflict, the event of the other write brings the budget back.
    async fn write(&self, key: &ObjectKey, budget: PodDisruptionBudget) -> Result<(), Error> {
        let api = Api::<PodDisruptionBudget>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        if let Some(written) = refusal::replace_status(&api, &budget).await? {
            self.written.wrote_at(key, &written);
        }
        Ok(())
    }
}

/// How long an evicted Pod counts as gone although it still exists, and how long the condition `DisruptionTarget` stays
/// on a Pod that is not deleted.
const PATIENCE: Duration = Duration::from_mins(2);
