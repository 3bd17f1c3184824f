//! Keeps the status of PodDisruptionBudgets: how many Pods there should be, how many are healthy, and how many may be evicted.
//!
//! Follows kube-controller-manager's disruption controller. The server's eviction subresource decides by this status and notes in it the
//! Pods that it lets go (`disruptedPods`), which count as gone for two minutes. `scale` finds out how many Pods the owners want. Beside
//! it, `stale` resets the condition `DisruptionTarget` of Pods that were to be deleted and have not been.

mod plan;
mod scale;
mod stale_target;

use crate::disruption::plan::{Expected, Wanted};
use crate::disruption::scale::{Scales, Unknown};
use crate::pods::by_label::{self, ByLabel};
use crate::refusal::{self, Error};
use crate::service_pods::pace::Pace;
use crate::settings::Parts;
use crate::stale;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::Selector;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Change, EventKind};
use steersman::consistency::ConsistencyStore;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name under which the loop appears in logs.
const NAME: &str = "disruption-controller";
/// What Events are said to come from.
const COMPONENT: &str = "controllermanager";

const WORKERS: usize = 4;

struct Context {
    client: Client,
    events: EventRecorder,
    budgets: Lister<PodDisruptionBudget>,
    pods: ByLabel<Pod>,
    scales: Scales,
    written: ConsistencyStore,
    pace: Pace,
    clock: fn() -> Timestamp,
}

/// Puts the loop into a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let pods = informers.informer::<Pod>(Scope::All);
    let budgets = informers.informer::<PodDisruptionBudget>(Scope::All);
    let context = Context {
        events: EventRecorder::new(client.clone(), COMPONENT),
        budgets: budgets.lister(),
        pods: ByLabel::of(&pods),
        scales: Scales::new(informers, client.clone()),
        written: ConsistencyStore::new().covers(&budgets.lister()),
        pace: Pace::default(),
        clock: settings.clock,
        client: client.clone(),
    };
    let (of_pods, events) = (budgets.lister(), context.events.clone());
    let controller = Controller::of(&budgets, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .watches_changes(&pods, move |change| concerned(change, &of_pods, &events));
    stale_target::add(manager.controller(controller), client, settings.clock)
}

/// The budgets that a change of a Pod concerns.
fn concerned(
    change: &Change<'_, Pod>,
    budgets: &Lister<PodDisruptionBudget>,
    events: &EventRecorder,
) -> Vec<ObjectKey> {
    let Some(pod) = change.object() else { return Vec::new() };
    let budgets = budgets.list_in(pod.metadata.namespace.as_deref().unwrap_or_default()).unwrap_or_default();
    // Most namespaces have none: then the state before need not be read.
    let old = match change {
        Change::Updated { old, .. } if !budgets.is_empty() => {
            old.metadata().filter(|old| old.labels != pod.metadata.labels)
        }
        _ => None,
    };
    let (mut now, mut before) = (Vec::new(), Vec::new());
    for budget in &budgets {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let Some(selector) = selector.and_then(|selector| Selector::try_from(selector).ok()) else { continue };
        if by_label::matches(&selector, &pod.metadata) {
            now.push(ObjectKey::of(&**budget));
        } else if old.is_some_and(|old| by_label::matches(&selector, old)) {
            before.push(ObjectKey::of(&**budget));
        }
    }
    if let [first, _, ..] = &*now
        && change.kind() == EventKind::Updated
    {
        let note = format!(
            "Pod {:?}/{:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default(),
            first.name(),
        );
        events.event(pod, EventType::Warning, "MultiplePodDisruptionBudgets", &note);
    }
    now.append(&mut before);
    now
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(budget) = cx.budgets.find(&key)? else {
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
            by_label::as_go_prints(selector)
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
        let wanted = Wanted::of(budget);
        if !wanted.needs_scale() {
            return wanted.of_pods(pods.len()).map_err(Unknown::Owner);
        }
        let scale = self.scales.of_pods(pods).await?;
        let (count, healthy) = wanted.of_scale(scale.count).map_err(Unknown::Owner)?;
        Ok(Expected { count, healthy, unmanaged: scale.unmanaged })
    }

    /// Writes a status. If somebody else has written the budget meanwhile, its event brings it back.
    async fn write(&self, key: &ObjectKey, budget: PodDisruptionBudget) -> Result<(), Error> {
        let api = Api::<PodDisruptionBudget>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        if let Some(written) = refusal::replace_status(&api, &budget).await? {
            self.written.wrote_at(key, &written);
        }
        Ok(())
    }
}

/// How long a Pod that was evicted counts as gone while it is not, and one that was to be disrupted as being so.
const PATIENCE: Duration = Duration::from_mins(2);
