//! Plans the writes for a DaemonSet from the current state. Pure.
//!
//! Follows upstream's `podsShouldBeOnNode`, `rollingUpdate` and `updateDaemonSetStatus`. [`manage`] gives every Node
//! its Pod and deletes surplus Pods; when that leaves nothing to do, [`roll`] replaces Pods of older templates.

use crate::loops::scaling::scaled::{self, Round};
use crate::loops::workloads::daemonset::placement::{NodeFacts, Placement, Verdict, target};
use crate::loops::workloads::history;
use crate::shared::note::Note;
use crate::shared::pods::{self, Availability};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
pub(crate) const GENERATION_LABEL: &str = "pod-template-generation";

/// A DaemonSet with the input of all decisions.
pub(crate) struct View<'a> {
    spec: &'a DaemonSetSpec,
    set: &'a DaemonSet,
    /// The hash of the current template's revision.
    hash: &'a str,
    now: Timestamp,
    /// The verdict for each Node, by name.
    sites: BTreeMap<&'a str, Verdict>,
    /// Pods by the Node that they are on or assigned to, without terminated Pods that are being deleted.
    by_node: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
}

/// The actions due.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The Nodes that get a Pod.
    pub(crate) create: Vec<String>,
    pub(crate) delete: Vec<Arc<Pod>>,
    /// Events to record about the DaemonSet.
    pub(crate) notes: Vec<Note>,
    /// When to reconcile again because a failed Pod may then be replaced.
    pub(crate) again: Option<Duration>,
}

/// The Pods of a Node, without those being deleted, when there is at most one of each template.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// How many Nodes may lack an available Pod, or have two Pods, during an update.
struct Limits {
    surge: i64,
    unavailable: i64,
    desired: i64,
}

// === impl Change ===

impl Change {
    pub(crate) fn is_nothing(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

// === impl View ===

impl<'a> View<'a> {
    pub(crate) fn new(
        set: &'a DaemonSet,
        sites: &'a [Arc<NodeFacts>],
        pods: &'a [Arc<Pod>],
        hash: &'a str,
        now: Timestamp,
    ) -> View<'a> {
        let spec = &set.spec;
        let sites = match &spec.template.spec {
            Some(pod) => {
                let placement = Placement::of(pod);
                sites.iter().map(|site| (&*site.name, placement.on(site))).collect()
            }
            None => BTreeMap::new(),
        };
        let mut by_node = BTreeMap::<&str, Vec<&Arc<Pod>>>::new();
        for pod in pods.iter().filter(|pod| !(pods::is_terminal(pod) && pods::is_terminating(pod))) {
            if let Some(node) = pod.spec.as_ref().and_then(target) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| oldest_first(pod));
        }
        View { spec, set, hash, now, sites, by_node }
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
        let is_of_hash = !self.hash.is_empty() && history::pod_revision(pod) == Some(self.hash);
        let is_of_generation =
            || generation(self.set).is_some_and(|number| label(GENERATION_LABEL) == Some(&number.to_string()));
        is_of_hash || is_of_generation()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.availability(pod) == Availability::Available
    }

    fn availability(&self, pod: &Pod) -> Availability {
        pods::availability(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// The pair of Pods of a Node; `None` if there is more than one Pod of a template.
    fn pair(&self, pods: &[&'a Arc<Pod>]) -> Option<Pair<'a>> {
        let mut pair = Pair { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pods::is_terminating(pod)) {
            let place = if self.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }

    fn limits(&self) -> Limits {
        let desired = self.sites.values().filter(|verdict| **verdict == Verdict::Run).count();
        let desired = i64::try_from(desired).unwrap_or(i64::MAX);
        let surge = surge(self.spec, desired);
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let unavailable = strategy.and_then(|rolling| rolling.max_unavailable.as_ref());
        let unavailable = unavailable.and_then(|value| scaled::number(value, desired, Round::Up)).unwrap_or(1);
        // With both at zero, no Pod would ever be replaced.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Limits { surge, unavailable, desired }
    }
}

/// The template generation in the annotation, if it is a number.
pub(crate) fn generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(GENERATION_ANNOTATION)?.parse().ok()
}

fn is_rolling(spec: &DaemonSetSpec) -> bool {
    spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate")
}

/// How many Nodes may have a Pod of the new template besides one of an old one.
fn surge(spec: &DaemonSetSpec, desired: i64) -> i64 {
    let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let value = rolling.filter(|_| is_rolling(spec)).and_then(|rolling| rolling.max_surge.as_ref());
    value.and_then(|value| scaled::number(value, desired, Round::Up)).unwrap_or(0)
}

/// The order in which the Pods of a Node are kept: bound Pods first, then the oldest.
fn oldest_first(pod: &Pod) -> (bool, Option<Timestamp>, Option<String>) {
    (
        pods::node_name(pod).is_none(),
        pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        pod.metadata.name.clone(),
    )
}

/// Gives every Node that should have a Pod one, and deletes Pods that have terminated, are surplus, or are on the wrong
/// Node.
///
/// `may_replace` says whether the failed Pod of a Node may be deleted now, or how long not.
pub(crate) fn manage(view: &View<'_>, mut may_replace: impl FnMut(&str) -> Result<(), Duration>) -> Change {
    let mut change = Change::default();
    for (&node, &verdict) in &view.sites {
        match (verdict, view.by_node.get(node)) {
            (Verdict::Run, None) => change.create.push(node.to_owned()),
            (Verdict::Run | Verdict::Stay, Some(pods)) => {
                manage_node(view, (node, verdict), pods, &mut may_replace, &mut change);
            }
            (Verdict::Leave, Some(pods)) => {
                change.delete.extend(pods.iter().filter(|pod| !pods::is_terminating(pod)).map(|pod| Arc::clone(pod)));
            }
            (Verdict::Stay | Verdict::Leave, None) => {}
        }
    }
    // When a Node is gone, the Pod garbage collector deletes its Pods, except those that were never bound to it.
    for (_, pods) in view.by_node.iter().filter(|(node, _)| !view.sites.contains_key(**node)) {
        let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        change.delete.extend(pods.iter().filter(|pod| !is_bound(pod)).map(|pod| Arc::clone(pod)));
    }
    change
}

fn manage_node(
    view: &View<'_>,
    (node, verdict): (&str, Verdict),
    pods: &[&Arc<Pod>],
    may_replace: &mut impl FnMut(&str) -> Result<(), Duration>,
    change: &mut Change,
) {
    let mut running = Vec::new();
    for &pod in pods.iter().filter(|pod| !pods::is_terminating(pod)) {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let what = format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
        match pods::phase(pod) {
            "Failed" => match may_replace(node) {
                Ok(()) => {
                    let text = format!("Found failed daemon pod {what} on node {node}, will try to kill it");
                    change.notes.push(Note::warning("FailedDaemonPod", text));
                    change.delete.push(Arc::clone(pod));
                }
                Err(left) => change.again = Some(change.again.map_or(left, |known| known.min(left))),
            },
            "Succeeded" => {
                let text = format!("Found succeeded daemon pod {what} on node {node}, will try to delete it");
                change.notes.push(Note::normal("SucceededDaemonPod", text));
                change.delete.push(Arc::clone(pod));
            }
            _ => running.push(pod),
        }
    }
    if surge(view.spec, 1) == 0 {
        change.delete.extend(running.into_iter().skip(1).map(Arc::clone));
        return;
    }
    if running.is_empty() && verdict == Verdict::Run {
        change.create.push(node.to_owned());
    }
    if running.len() <= 1 {
        return;
    }
    let is_new = |pod: &Pod| history::pod_revision(pod) == Some(view.hash);
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| is_new(pod));
    if let ([new, ..], [old, ..]) = (&*new, &*old)
        && (!pods::is_ready(old) || view.is_available(new))
    {
        change.delete.push(Arc::clone(old));
    }
    change.delete.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)).map(Arc::clone));
}

/// Replaces Pods of older templates, as the strategy allows.
pub(crate) fn roll(view: &View<'_>) -> Change {
    if !is_rolling(view.spec) {
        return Change::default();
    }
    let limits = view.limits();
    if limits.surge == 0 { roll_in_place(view, &limits) } else { roll_with_surge(view, &limits) }
}

/// The Nodes that have Pods or should have one, with their Pods.
fn nodes<'v, 'a>(view: &'v View<'a>) -> BTreeMap<&'v str, &'v [&'a Arc<Pod>]> {
    let wanted = view.sites.iter().filter(|(_, verdict)| **verdict == Verdict::Run);
    let mut nodes: BTreeMap<&str, &[&Arc<Pod>]> = wanted.map(|(node, _)| (*node, &[][..])).collect();
    nodes.extend(view.by_node.iter().map(|(node, pods)| (*node, &**pods)));
    nodes
}

/// Deletes Pods of old templates while few enough Nodes lack an available Pod; new Pods follow on the same Nodes.
fn roll_in_place(view: &View<'_>, limits: &Limits) -> Change {
    let mut n_unavailable: i64 = 0;
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    for pods in nodes(view).into_values() {
        match view.pair(pods) {
            None | Some(Pair { new: None, old: None } | Pair { new: Some(_), old: Some(_) }) => n_unavailable += 1,
            Some(Pair { new: Some(new), old: None }) => n_unavailable += i64::from(!view.is_available(new)),
            Some(Pair { new: None, old: Some(old) }) if view.is_available(old) => candidates.push(old),
            Some(Pair { new: None, old: Some(old) }) => {
                broken.push(old);
                n_unavailable += 1;
            }
        }
    }
    let n_left = usize::try_from(limits.unavailable.saturating_sub(n_unavailable)).unwrap_or(0);
    let delete = broken.into_iter().chain(candidates.into_iter().take(n_left)).map(Arc::clone).collect();
    Change { delete, ..Change::default() }
}

/// Creates Pods of the new template beside old ones, which are deleted when the new ones are available.
fn roll_with_surge(view: &View<'_>, limits: &Limits) -> Change {
    let mut change = Change::default();
    let (mut n_surging, mut n_available): (i64, i64) = (0, 0);
    let (mut misplaced, mut candidates) = (Vec::new(), Vec::new());
    for (node, pods) in nodes(view) {
        let Some(pair) = view.pair(pods) else {
            n_surging += 1;
            continue;
        };
        n_available += i64::from(pair.old.or(pair.new).is_some_and(|pod| view.is_available(pod)));
        match pair {
            Pair { old: None, .. } => {}
            Pair { old: Some(old), new: Some(new) } => {
                if view.is_available(new) {
                    change.delete.push(Arc::clone(old));
                } else {
                    n_surging += 1;
                }
            }
            Pair { old: Some(old), new: None } => match (view.sites.get(node), view.is_available(old)) {
                // The Node is gone, and its Pod will be deleted too.
                (None, _) => {}
                (Some(Verdict::Run), true) => candidates.push(node),
                (Some(Verdict::Run), false) => change.create.push(node.to_owned()),
                (Some(Verdict::Stay | Verdict::Leave), true) => misplaced.push(old),
                (Some(Verdict::Stay | Verdict::Leave), false) => change.delete.push(Arc::clone(old)),
            },
        }
    }
    let n_spare = usize::try_from(n_available.saturating_sub(limits.desired)).unwrap_or(0);
    change.delete.extend(misplaced.into_iter().take(n_spare).map(Arc::clone));
    let n_left = usize::try_from(limits.surge.saturating_sub(n_surging)).unwrap_or(0);
    change.create.extend(candidates.into_iter().take(n_left).map(str::to_owned));
    change
}

/// The status, and when the next ready Pod becomes available.
pub(crate) fn status(view: &View<'_>) -> (DaemonSetStatus, Option<Duration>) {
    let mut status = DaemonSetStatus {
        collision_count: view.set.status.as_ref().and_then(|status| status.collision_count),
        conditions: view.set.status.as_ref().and_then(|status| status.conditions.clone()),
        observed_generation: view.set.metadata.generation,
        ..DaemonSetStatus::default()
    };
    let (mut n_updated, mut n_available) = (0, 0);
    for (node, verdict) in &view.sites {
        let oldest = view.by_node.get(node).and_then(|pods| pods.first());
        if *verdict != Verdict::Run {
            status.number_misscheduled += i32::from(oldest.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = oldest else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pods::is_ready(pod));
        n_updated += i32::from(view.is_updated(pod));
        n_available += i32::from(view.is_available(pod));
    }
    let unless_none = |number: i32| Some(number).filter(|&number| number != 0);
    status.updated_number_scheduled = unless_none(n_updated);
    status.number_available = unless_none(n_available);
    status.number_unavailable = unless_none(status.desired_number_scheduled - n_available);
    (status, soonest(view))
}

fn soonest(view: &View<'_>) -> Option<Duration> {
    let pods = view.by_node.values().flatten();
    pods.filter_map(|pod| match view.availability(pod) {
        Availability::In(left) => Some(left),
        Availability::Available | Availability::NotReady => None,
    })
    .min()
}

#[cfg(test)]
mod tests;
