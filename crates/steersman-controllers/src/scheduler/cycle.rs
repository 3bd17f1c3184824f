//! One scheduling decision: the node for a Pod, or why there is none. Pure: nothing is written or remembered.
//!
//! Follows `schedulePod` of kube-scheduler with the plugins of the Pod's profile, their order, weights and messages.

mod diagnosis;
pub(crate) mod preempt;
mod scores;

pub(crate) use crate::scheduler::cycle::diagnosis::{Diagnosis, Refusal, Rejection, Remedy};

use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::configuration::{Fit, Profile};
use crate::scheduler::plugins::affinity::{self, AffinityConflict, AffinityState};
use crate::scheduler::plugins::filters::Plugin;
use crate::scheduler::plugins::spread::{self, SpreadConflict, SpreadState};
use crate::scheduler::plugins::volumes;
use crate::scheduler::plugins::volumes::{ClaimError, ClaimsOfPod, NodeError, VolumePlan, Volumes};
use crate::shared::labels::Selector;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// Below this number, all nodes are checked.
const FEASIBLE_NODES_MIN: usize = 100;
/// The least percentage of nodes that is searched in a large cluster.
const FEASIBLE_PERCENT_MIN: usize = 5;

/// The outcome of a decision.
#[derive(Debug)]
pub(crate) enum Decision {
    Failed(String),
    Found(Choice),
    Unschedulable(Diagnosis),
}

/// The node for a Pod, and the plan for its volumes.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) node: Arc<str>,
    pub(crate) volumes: VolumePlan,
}

/// Pods nominated to a node, by the node's name.
pub(crate) type Nominations = HashMap<Arc<str>, Vec<Arc<Placed>>>;

/// A decision in progress, with the values that are computed once for all nodes.
pub(crate) struct Cycle<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) pending: &'a Pending,
    nominations: &'a Nominations,
    claims: ClaimsOfPod,
}

/// State that depends on where Pods are, and that changes while preemption tries removing Pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreFilterState {
    spread: SpreadState,
    affinity: AffinityState,
    /// The number of other Pods that use a ReadWriteOncePod claim of the Pod.
    n_other_users: i64,
}

// === impl Cycle ===

/// The number of feasible nodes after which the search ends. A percentage of 0 depends on the number of nodes.
fn n_feasible_wanted(n_nodes: usize, percent: usize) -> usize {
    if n_nodes < FEASIBLE_NODES_MIN {
        return n_nodes;
    }
    let percent = match percent {
        0 => 50_usize.saturating_sub(n_nodes / 125).max(FEASIBLE_PERCENT_MIN),
        percent => percent,
    };
    (n_nodes.saturating_mul(percent) / 100).max(FEASIBLE_NODES_MIN)
}

impl<'a> Cycle<'a> {
    /// # Errors
    /// The reason why no node is feasible.
    pub(crate) fn new(
        cluster: &'a Cluster,
        nominations: &'a Nominations,
        pending: &'a Pending,
    ) -> Result<(Cycle<'a>, PreFilterState), Diagnosis> {
        let (n_nodes, filters) = (cluster.n_nodes(), pending.profile.filters);
        if filters.contains(Plugin::NodeAffinity) && pending.nodes.names().is_some_and(<[String]>::is_empty) {
            let why = "pod affinity terms conflict".to_owned();
            return Err(Diagnosis::before(n_nodes, Plugin::NodeAffinity, why));
        }
        if filters.contains(Plugin::DynamicResources) && pending.has_resource_claims {
            let why = "the pod has resource claims, and nothing allocates devices here".to_owned();
            return Err(Diagnosis::before(n_nodes, Plugin::DynamicResources, why));
        }
        let claims = if pending.volumes.is_empty() {
            ClaimsOfPod::default()
        } else {
            cluster.volumes.of_pod(&pending.pod, &pending.volumes, filters).map_err(|error| {
                let (plugin, why) = match error {
                    ClaimError::Binding(why) => (Plugin::VolumeBinding, why),
                    ClaimError::Restrictions(why) => (Plugin::VolumeRestrictions, why),
                    ClaimError::Zone(why) => (Plugin::VolumeZone, why),
                };
                Diagnosis::before(n_nodes, plugin, why)
            })?
        };
        let around = PreFilterState {
            spread: match filters.contains(Plugin::PodTopologySpread) {
                true => SpreadState::of(cluster, pending),
                false => SpreadState::default(),
            },
            affinity: match filters.contains(Plugin::InterPodAffinity) {
                true => AffinityState::of(cluster, pending),
                false => AffinityState::default(),
            },
            n_other_users: n_users(cluster, pending, Volumes::for_one_pod(&claims)),
        };
        Ok((Cycle { cluster, pending, nominations, claims }, around))
    }

    /// Adds a Pod on a node to the counts, or removes it, depending on the sign.
    pub(crate) fn change(&self, around: &mut PreFilterState, pod: &Placed, node: &Node, sign: i64) {
        around.spread.change(self.pending, pod, node, sign);
        around.affinity.change(self.cluster, self.pending, pod, node, sign);
        if pod.identity.namespace == self.pending.pod.identity.namespace {
            let shared = Volumes::for_one_pod(&self.claims).iter().filter(|claim| pod.claims.contains(claim));
            around.n_other_users += sign * i64::try_from(shared.count()).unwrap_or_default();
        }
    }

    /// Whether the Pod fits a node both with the Pods nominated there and without them.
    pub(crate) fn allows(&self, around: &PreFilterState, node: &Node) -> Result<(), Refusal> {
        let own = &self.pending.pod;
        let nominated = self.nominations.get(&node.name).map_or(&[][..], Vec::as_slice);
        let goes_first = |other: &&Arc<Placed>| own.priority <= other.priority && other.uid != own.uid;
        let mut others = nominated.iter().filter(goes_first).peekable();
        if others.peek().is_some() {
            let (mut with, mut around_with) = (node.clone(), around.clone());
            for other in others {
                with.add(other);
                self.change(&mut around_with, other, &with, 1);
            }
            self.filter(&around_with, &with)?;
        }
        self.filter(around, node)
    }

    fn filter(&self, around: &PreFilterState, node: &Node) -> Result<(), Refusal> {
        let (pending, facts) = (self.pending, node.facts());
        let Profile { filters, fit, added_nodes, .. } = &*pending.profile;
        let is_on = |plugin| filters.contains(plugin);
        if is_on(Plugin::NodeUnschedulable) && facts.is_unschedulable && !pending.tolerations.allow_unschedulable() {
            return Err(Refusal::unresolvable(Plugin::NodeUnschedulable, "node(s) were unschedulable"));
        }
        if is_on(Plugin::TaintToleration) && !pending.tolerations.allow(&facts.taints) {
            return Err(Refusal::unresolvable(Plugin::TaintToleration, "node(s) had untolerated taint(s)"));
        }
        if is_on(Plugin::NodeAffinity) {
            if added_nodes.required.as_ref().is_some_and(|terms| !terms.matches(&node.name, &facts.labels)) {
                let reason = "node(s) didn't match scheduler-enforced node affinity";
                return Err(Refusal::unresolvable(Plugin::NodeAffinity, reason));
            }
            if !pending.nodes.is_empty() && !pending.nodes.matches(&node.name, &facts.labels) {
                let reason = "node(s) didn't match Pod's node affinity/selector";
                return Err(Refusal::unresolvable(Plugin::NodeAffinity, reason));
            }
        }
        if is_on(Plugin::NodePorts) && !node.has_free(&pending.pod.ports) {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Err(Refusal::resolvable(Plugin::NodePorts, reason));
        }
        if is_on(Plugin::NodeResourcesFit) {
            fits(&pending.pod, fit, node)?;
        }
        self.filter_volumes(around, node)?;
        if is_on(Plugin::PodTopologySpread) {
            around.spread.allows(pending, node).map_err(|conflict| match conflict {
                SpreadConflict::LabelMissing => Refusal::unresolvable(Plugin::PodTopologySpread, spread::LABEL_MISSING),
                SpreadConflict::Violated => Refusal::resolvable(Plugin::PodTopologySpread, spread::VIOLATED),
            })?;
        }
        if !is_on(Plugin::InterPodAffinity) {
            return Ok(());
        }
        around.affinity.allows(self.cluster, pending, node).map_err(|conflict| match conflict {
            AffinityConflict::Affinity => Refusal::unresolvable(Plugin::InterPodAffinity, affinity::AFFINITY),
            AffinityConflict::AntiAffinity => Refusal::resolvable(Plugin::InterPodAffinity, affinity::ANTI_AFFINITY),
            AffinityConflict::ExistingAntiAffinity => {
                Refusal::resolvable(Plugin::InterPodAffinity, affinity::EXISTING_ANTI_AFFINITY)
            }
        })
    }

    fn filter_volumes(&self, around: &PreFilterState, node: &Node) -> Result<(), Refusal> {
        let is_on = |plugin| self.pending.profile.filters.contains(plugin);
        let disks = &self.pending.pod.disks;
        let used = || node.pods.iter().flat_map(|pod| &pod.disks);
        let is_restricted = is_on(Plugin::VolumeRestrictions);
        if is_restricted && !disks.is_empty() && used().any(|used| disks.iter().any(|disk| disk.conflicts(used))) {
            return Err(Refusal::resolvable(Plugin::VolumeRestrictions, volumes::DISK_CONFLICT));
        }
        if self.pending.volumes.is_empty() {
            return Ok(());
        }
        if is_restricted && 0 < around.n_other_users {
            return Err(Refusal::resolvable(Plugin::VolumeRestrictions, volumes::USED_BY_OTHER));
        }
        if is_on(Plugin::NodeVolumeLimits) {
            let limits = self.cluster.volumes.within_limits(&self.pending.pod, node);
            limits.map_err(|reason| Refusal::resolvable(Plugin::NodeVolumeLimits, reason))?;
        }
        self.find_volumes(node)?;
        if is_on(Plugin::VolumeZone) && !Volumes::is_in_zone(&self.claims, node) {
            return Err(Refusal::unresolvable(Plugin::VolumeZone, volumes::ZONE_CONFLICT));
        }
        Ok(())
    }

    /// The volumes for the Pod's claims on a node; none if VolumeBinding is off.
    fn find_volumes(&self, node: &Node) -> Result<VolumePlan, Refusal> {
        if !self.pending.profile.filters.contains(Plugin::VolumeBinding) {
            return Ok(VolumePlan::default());
        }
        self.cluster.volumes.find(&self.claims, node).map_err(|error| match error {
            NodeError::Conflicts(conflicts) => Refusal::Rejected(Rejection {
                plugin: Plugin::VolumeBinding,
                remedy: Remedy::None,
                reasons: conflicts.into_iter().map(Cow::Borrowed).collect(),
            }),
            NodeError::Failed(why) => Refusal::Failed(format!("running \"VolumeBinding\" filter plugin: {why}")),
        })
    }

    /// The node on which room was made for the Pod, if it is feasible.
    pub(crate) fn find_nominated(&self, around: &PreFilterState, diagnosis: &mut Diagnosis) -> Option<&'a Node> {
        let node = self.cluster.node(self.pending.nominated.as_deref()?)?;
        match self.allows(around, node) {
            Ok(()) => return Some(node),
            Err(Refusal::Rejected(rejection)) => diagnosis.add(node, rejection),
            Err(Refusal::Failed(_)) => {}
        }
        None
    }

    /// The nodes among these that are still feasible: the cluster may have changed since they were found. One that is
    /// gone counts as rejected by the extender, so that an event wakes the Pod if no other is left.
    ///
    /// # Errors
    /// The failure of a filter.
    pub(crate) fn still_feasible(
        &self,
        around: &PreFilterState,
        names: &[Arc<str>],
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<&'a Node>, String> {
        let mut feasible = Vec::new();
        for name in names {
            let Some(node) = self.cluster.node(name) else {
                diagnosis.plugins.insert(Plugin::Extender);
                continue;
            };
            match self.allows(around, node) {
                Ok(()) => feasible.push(node),
                Err(Refusal::Rejected(rejection)) => diagnosis.add(node, rejection),
                Err(Refusal::Failed(why)) => return Err(why),
            }
        }
        Ok(feasible)
    }

    /// Chooses one of the feasible nodes. `default_selector` selects the Pods of the same owner for the default
    /// spreading, `added` are the scores that extenders give, and `choose` picks one of several equally good nodes.
    pub(crate) fn choose(
        &self,
        feasible: &[&Node],
        default_selector: &Arc<Selector>,
        added: &HashMap<Arc<str>, i64>,
        mut diagnosis: Diagnosis,
        choose: impl FnOnce(usize) -> usize,
    ) -> Decision {
        let node = match feasible {
            [] => return Decision::Unschedulable(diagnosis),
            [node] => *node,
            _ => {
                let mut scores = self.score(feasible, default_selector);
                for (node, score) in feasible.iter().zip(&mut scores) {
                    *score = score.saturating_add(added.get(&node.name).copied().unwrap_or_default());
                }
                let most = scores.iter().copied().max().unwrap_or_default();
                let best: Vec<&Node> =
                    feasible.iter().zip(&scores).filter(|(_, score)| **score == most).map(|(node, _)| *node).collect();
                best[choose(best.len()).min(best.len() - 1)]
            }
        };
        match self.find_volumes(node) {
            Ok(volumes) => Decision::Found(Choice { node: Arc::clone(&node.name), volumes }),
            Err(Refusal::Failed(why)) => Decision::Failed(why),
            // Not expected: the node was feasible a moment ago, and nothing has changed.
            Err(Refusal::Rejected(rejection)) => {
                diagnosis.add(node, rejection);
                Decision::Unschedulable(diagnosis)
            }
        }
    }

    /// Searches the nodes. `start` is the index of the node to begin with; it moves on, so that all nodes get their turn.
    ///
    /// # Errors
    /// The failure of a filter.
    pub(crate) fn find_feasible(
        &self,
        around: &PreFilterState,
        start: &mut usize,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<&'a Node>, String> {
        let cluster = self.cluster;
        let mut feasible: Vec<&Node> = Vec::new();
        let mut check = |node: &'a Node, feasible: &mut Vec<&'a Node>| match self.allows(around, node) {
            Ok(()) => {
                feasible.push(node);
                Ok(())
            }
            Err(Refusal::Rejected(rejection)) => {
                diagnosis.add(node, rejection);
                Ok(())
            }
            Err(Refusal::Failed(why)) => Err(why),
        };
        let follows_names = self.pending.profile.filters.contains(Plugin::NodeAffinity);
        if let Some(names) = self.pending.nodes.names().filter(|_| follows_names) {
            for node in names.iter().filter_map(|name| cluster.node(name)) {
                check(node, &mut feasible)?;
            }
            diagnosis.rest = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]".into());
            diagnosis.plugins.insert(Plugin::NodeAffinity);
            return Ok(feasible);
        }
        let n_nodes = cluster.n_nodes();
        let profile = &self.pending.profile;
        let wanted = match profile.takes_first_node() {
            true => 1,
            false => n_feasible_wanted(n_nodes, profile.feasible_percent),
        };
        let mut n_tried = 0;
        while n_tried < n_nodes && feasible.len() < wanted {
            if let Some(node) = cluster.node_at((*start + n_tried) % n_nodes) {
                check(node, &mut feasible)?;
            }
            n_tried += 1;
        }
        *start = (*start + n_tried) % n_nodes.max(1);
        Ok(feasible)
    }
}

/// How many of these ReadWriteOncePod claims are used by Pods on nodes.
fn n_users(cluster: &Cluster, pending: &Pending, claims: &[Arc<str>]) -> i64 {
    if claims.is_empty() {
        return 0;
    }
    let namespace = &pending.pod.identity.namespace;
    let pods = cluster.nodes().flat_map(|node| &node.pods).filter(|pod| pod.identity.namespace == *namespace);
    let used: Vec<&Arc<str>> = pods.flat_map(|pod| &pod.claims).collect();
    let n_used = claims.iter().filter(|claim| used.contains(claim)).count();
    i64::try_from(n_used).unwrap_or(i64::MAX)
}

/// Whether a node has enough left of every resource that a Pod requests.
///
/// # Errors
/// Names all resources that are insufficient.
pub(crate) fn fits(pod: &Placed, fit: &Fit, node: &Node) -> Result<(), Refusal> {
    let facts = node.facts();
    let (wanted, has, used) = (&pod.requests.exact, &facts.allocatable, &node.requested);
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut remedy = Remedy::Preemption;
    if facts.pods_max <= i64::try_from(node.pods.len()).unwrap_or(i64::MAX) {
        reasons.push("Too many pods".into());
    }
    let mut check = |reason: &dyn Fn() -> Cow<'static, str>, wanted: i64, has: i64, used: i128| {
        if 0 < wanted && i128::from(has) - used < i128::from(wanted) {
            reasons.push(reason());
            if has < wanted {
                remedy = Remedy::None;
            }
        }
    };
    check(&|| "Insufficient cpu".into(), wanted.cpu, has.cpu, used.cpu);
    check(&|| "Insufficient memory".into(), wanted.memory, has.memory, used.memory);
    let (storage, has_storage) = (wanted.ephemeral_storage, has.ephemeral_storage);
    check(&|| "Insufficient ephemeral-storage".into(), storage, has_storage, used.ephemeral_storage);
    for (name, wanted) in wanted.scalars.iter().filter(|(name, _)| !fit.ignores(name)) {
        let has = has.scalars.get(name).copied().unwrap_or_default();
        check(&|| format!("Insufficient {name}").into(), *wanted, has, used.scalar(name));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Refusal::Rejected(Rejection { plugin: Plugin::NodeResourcesFit, remedy, reasons }))
}
