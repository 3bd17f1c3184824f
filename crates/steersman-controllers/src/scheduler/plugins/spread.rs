//! Topology spread: the constraints of a Pod, and the default constraints for Pods without any.
//!
//! Follows the plugin PodTopologySpread.

use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::configuration::Spread;
use crate::scheduler::configuration::SpreadDefaults;
use crate::shared::labels::Selector;
use hashbrown::HashMap;
use std::sync::Arc;

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

pub(crate) const VIOLATED: &str = "node(s) didn't match pod topology spread constraints";
pub(crate) const LABEL_MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// The number of matching Pods in each domain, by required constraint.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpreadState {
    counts: Vec<HashMap<String, i64>>,
}

/// Why a node is not feasible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SpreadConflict {
    LabelMissing,
    Violated,
}

/// The scores of the preferred constraints, for the nodes that are compared.
#[derive(Debug)]
pub(crate) struct SpreadScores {
    constraints: Vec<Soft>,
    requires_all: bool,
}

#[derive(Debug)]
struct Soft {
    topology_key: String,
    max_skew: i64,
    selector: Arc<Selector>,
    honors_affinity: bool,
    honors_taints: bool,
    counts: HashMap<String, i64>,
    weight: f64,
}

impl Spread {
    /// Whether a node counts for this constraint of a Pod.
    fn includes(&self, pending: &Pending, node: &Node) -> bool {
        includes(self.honors_affinity, self.honors_taints, pending, node)
    }
}

fn includes(honors_affinity: bool, honors_taints: bool, pending: &Pending, node: &Node) -> bool {
    let facts = node.facts();
    (!honors_affinity || pending.nodes.matches(&node.name, &facts.labels))
        && (!honors_taints || pending.tolerations.allow(&facts.taints))
}

/// How many Pods of a node a constraint selects.
fn count(node: &Node, selector: &Selector, namespace: &str) -> i64 {
    if selector.is_empty() {
        return 0;
    }
    let selected = node.groups().filter(|group| {
        group.n_staying != 0 && group.identity.namespace == namespace && selector.matches(&group.identity.labels)
    });
    selected.map(|group| group.n_staying).sum()
}

// === impl SpreadState ===

impl SpreadState {
    pub(crate) fn of(cluster: &Cluster, pending: &Pending) -> SpreadState {
        let rules: Vec<&Spread> = pending.required_spread().collect();
        let mut state = SpreadState { counts: vec![HashMap::new(); rules.len()] };
        if rules.is_empty() {
            return state;
        }
        let namespace = &pending.pod.identity.namespace;
        for node in cluster.nodes() {
            if rules.iter().any(|rule| node.label(&rule.topology_key).is_none()) {
                continue;
            }
            for (rule, counts) in rules.iter().zip(&mut state.counts) {
                if let Some(domain) = node.label(&rule.topology_key)
                    && rule.includes(pending, node)
                {
                    *counts.entry_ref(domain).or_insert(0) += count(node, &rule.selector, namespace);
                }
            }
        }
        state
    }

    /// Adds a Pod on a node to the counts, or removes it, depending on the sign.
    pub(crate) fn change(&mut self, pending: &Pending, pod: &Placed, node: &Node, sign: i64) {
        if pod.identity.namespace != pending.pod.identity.namespace
            || pending.required_spread().any(|rule| node.label(&rule.topology_key).is_none())
        {
            return;
        }
        for (rule, counts) in pending.required_spread().zip(&mut self.counts) {
            if let Some(domain) = node.label(&rule.topology_key)
                && rule.selector.matches(&pod.identity.labels)
                && rule.includes(pending, node)
            {
                *counts.entry_ref(domain).or_insert(0) += sign;
            }
        }
    }

    pub(crate) fn allows(&self, pending: &Pending, node: &Node) -> Result<(), SpreadConflict> {
        for (rule, counts) in pending.required_spread().zip(&self.counts) {
            let Some(domain) = node.label(&rule.topology_key) else { return Err(SpreadConflict::LabelMissing) };
            let n_domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
            let least = if n_domains < rule.min_domains {
                0
            } else {
                counts.values().copied().min().unwrap_or(i64::from(i32::MAX))
            };
            let own = i64::from(rule.selector.matches(&pending.pod.identity.labels));
            let matching = counts.get(domain).copied().unwrap_or_default();
            if rule.max_skew < matching.saturating_add(own).saturating_sub(least) {
                return Err(SpreadConflict::Violated);
            }
        }
        Ok(())
    }
}

// === impl SpreadScores ===

impl SpreadScores {
    /// `None` if no constraint applies to the Pod. `default_selector` selects the Pods for the default constraints.
    pub(crate) fn of(
        cluster: &Cluster,
        pending: &Pending,
        candidates: &[&Node],
        default_selector: &Arc<Selector>,
    ) -> Option<SpreadScores> {
        let soft = |topology_key: &str, max_skew, selector, honors_affinity, honors_taints| Soft {
            topology_key: topology_key.to_owned(),
            max_skew,
            selector,
            honors_affinity,
            honors_taints,
            counts: HashMap::new(),
            weight: 0.0,
        };
        let requires_all = !pending.spread.is_empty();
        let constraints: Vec<Soft> = if requires_all {
            let own = pending.spread.iter().filter(|rule| !rule.is_required).map(|rule| {
                let selector = Arc::new(rule.selector.clone());
                soft(&rule.topology_key, rule.max_skew, selector, rule.honors_affinity, rule.honors_taints)
            });
            own.collect()
        } else if default_selector.is_empty() || matches!(pending.profile.spread, SpreadDefaults::List(_)) {
            // Constraints of the profile are the Pod's own by now, if there are any.
            Vec::new()
        } else {
            let rules = [(HOSTNAME, 3), (ZONE, 5)];
            rules.into_iter().map(|(key, skew)| soft(key, skew, Arc::clone(default_selector), true, false)).collect()
        };
        if constraints.is_empty() {
            return None;
        }
        let mut scores = SpreadScores { constraints, requires_all };
        scores.count(cluster, pending, candidates);
        Some(scores)
    }

    fn count(&mut self, cluster: &Cluster, pending: &Pending, candidates: &[&Node]) {
        let scored: Vec<&&Node> = candidates.iter().filter(|node| !self.ignores(node)).collect();
        for soft in &mut self.constraints {
            if soft.topology_key != HOSTNAME {
                for node in &scored {
                    soft.counts.entry_ref(node.label(&soft.topology_key).unwrap_or_default()).or_insert(0);
                }
            }
            let size = if soft.topology_key == HOSTNAME { scored.len() } else { soft.counts.len() };
            soft.weight = f64::ln(f64::from(u32::try_from(size).unwrap_or(u32::MAX)) + 2.0);
        }
        let namespace = &pending.pod.identity.namespace;
        let of_hosts = |soft: &Soft| soft.topology_key == HOSTNAME;
        if self.constraints.iter().all(of_hosts) {
            return;
        }
        // One domain for all nodes, because none has the label: counting would change nothing, and cost a pass over
        // every Pod.
        let is_blank = |soft: &Soft| soft.counts.len() == 1 && soft.counts.contains_key("");
        for node in cluster.nodes() {
            if self.ignores(node) {
                continue;
            }
            for soft in self.constraints.iter_mut().filter(|soft| !of_hosts(soft) && !is_blank(soft)) {
                if !includes(soft.honors_affinity, soft.honors_taints, pending, node) {
                    continue;
                }
                let domain = node.label(&soft.topology_key).unwrap_or_default();
                if let Some(known) = soft.counts.get_mut(domain) {
                    *known += count(node, &soft.selector, namespace);
                }
            }
        }
    }

    /// Whether a node is not scored, because it lacks a label that the Pod's own constraints name.
    fn ignores(&self, node: &Node) -> bool {
        self.requires_all && self.constraints.iter().any(|soft| node.label(&soft.topology_key).is_none())
    }

    /// The scores from 0 to 100, higher where fewer matching Pods are. They are relative to the other `candidates`.
    pub(crate) fn score(&self, pending: &Pending, candidates: &[&Node]) -> Vec<i64> {
        let namespace = &pending.pod.identity.namespace;
        let of = |node: &&Node| {
            if self.ignores(node) {
                return None;
            }
            let mut sum = 0.0;
            for soft in &self.constraints {
                let Some(domain) = node.label(&soft.topology_key) else { continue };
                let matching = if soft.topology_key == HOSTNAME {
                    count(node, &soft.selector, namespace)
                } else {
                    soft.counts.get(domain).copied().unwrap_or_default()
                };
                sum += float(matching) * soft.weight + float(soft.max_skew - 1);
            }
            Some(whole(sum.round()))
        };
        let raw: Vec<Option<i64>> = candidates.iter().map(of).collect();
        let most = raw.iter().flatten().copied().max().unwrap_or_default();
        let least = raw.iter().flatten().copied().min().unwrap_or_default();
        let normal = |score: &Option<i64>| match score {
            None => 0,
            Some(_) if most <= 0 => 100,
            Some(score) => 100 * (most + least - score) / most,
        };
        raw.iter().map(normal).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of Pods are far below 2^52")]
pub(crate) fn float(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "saturates, which is far above all scores")]
pub(crate) fn whole(number: f64) -> i64 {
    // Far below the greatest number, so that sums of scores do not overflow.
    (number as i64).clamp(-(1 << 40), 1 << 40)
}
