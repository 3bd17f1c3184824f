//! Inter-pod affinity and anti-affinity: of the Pod, and of existing Pods towards it.
//!
//! Follows the plugin InterPodAffinity.

use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{Identity, Pending, Placed, PodAffinities, PodTerm};
use crate::shared::labels::Labels;
use hashbrown::HashMap;

pub(crate) const AFFINITY: &str = "node(s) didn't match pod affinity rules";
pub(crate) const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
pub(crate) const EXISTING_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// Counts by a node label and its value.
type Counts = HashMap<(String, String), i64>;

/// The numbers of existing Pods that a Pod's required terms select, and whose required terms select the Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct AffinityState {
    /// Pods that match all required affinity terms.
    wanted: Counts,
    unwanted: Counts,
    /// Pods whose anti-affinity terms select this Pod.
    unwelcome: Counts,
}

/// Why a node is not feasible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AffinityConflict {
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

/// The sum of the weights of preferences, by a node label and its value.
#[derive(Debug, Default)]
pub(crate) struct AffinityScores {
    by_topology: HashMap<String, HashMap<String, i64>>,
}

fn change(counts: &mut Counts, node: &Node, key: &str, by: i64) {
    let Some(value) = node.label(key) else { return };
    let pair = (key.to_owned(), value.to_owned());
    let count = counts.entry(pair.clone()).or_insert(0);
    *count += by;
    if *count == 0 {
        counts.remove(&pair);
    }
}

fn has(counts: &Counts, key: &str, value: &str) -> bool {
    // An empty map is checked first, because the key needs allocations.
    !counts.is_empty() && counts.get(&(key.to_owned(), value.to_owned())).is_some_and(|count| 0 < *count)
}

fn matches_all(terms: &[PodTerm], identity: &Identity, namespace: &Labels) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(identity, namespace))
}

fn terms(pending: &Pending) -> (&[PodTerm], &[PodTerm]) {
    let affinity = pending.pod.affinity.as_deref();
    affinity.map_or((&[], &[]), |affinity| (&affinity.required, &affinity.required_anti))
}

// === impl AffinityState ===

impl AffinityState {
    pub(crate) fn of(cluster: &Cluster, pending: &Pending) -> AffinityState {
        let mut state = AffinityState::default();
        let (required, required_anti) = terms(pending);
        if cluster.has_required_anti_affinity() {
            let own_namespace = cluster.namespace(&pending.pod.identity.namespace);
            for node in cluster.nodes() {
                for pod in &node.with_affinity {
                    state.add_unwelcome(pending, pod, own_namespace, node, 1);
                }
            }
        }
        if !required.is_empty() || !required_anti.is_empty() {
            for node in cluster.nodes() {
                for group in node.groups() {
                    let namespace = cluster.namespace(&group.identity.namespace);
                    state.add_selected(pending, &group.identity, namespace, node, group.n_all);
                }
            }
        }
        state
    }

    fn add_unwelcome(&mut self, pending: &Pending, pod: &Placed, own_namespace: &Labels, node: &Node, by: i64) {
        for term in pod.required_anti() {
            if term.matches(&pending.pod.identity, own_namespace) {
                change(&mut self.unwelcome, node, &term.topology_key, by);
            }
        }
    }

    fn add_selected(&mut self, pending: &Pending, identity: &Identity, namespace: &Labels, node: &Node, by: i64) {
        let (required, required_anti) = terms(pending);
        if matches_all(required, identity, namespace) {
            for term in required {
                change(&mut self.wanted, node, &term.topology_key, by);
            }
        }
        for term in required_anti {
            if term.matches(identity, namespace) {
                change(&mut self.unwanted, node, &term.topology_key, by);
            }
        }
    }

    /// Adds a Pod on a node to the counts, or removes it, depending on the sign.
    pub(crate) fn change(&mut self, cluster: &Cluster, pending: &Pending, pod: &Placed, node: &Node, sign: i64) {
        self.add_unwelcome(pending, pod, cluster.namespace(&pending.pod.identity.namespace), node, sign);
        self.add_selected(pending, &pod.identity, cluster.namespace(&pod.identity.namespace), node, sign);
    }

    pub(crate) fn allows(&self, cluster: &Cluster, pending: &Pending, node: &Node) -> Result<(), AffinityConflict> {
        let (required, required_anti) = terms(pending);
        let mut are_there = true;
        for term in required {
            match node.label(&term.topology_key) {
                None => return Err(AffinityConflict::Affinity),
                Some(value) => are_there &= has(&self.wanted, &term.topology_key, value),
            }
        }
        // The first Pod of a group with affinity to itself may go anywhere.
        let identity = &pending.pod.identity;
        let is_first =
            || self.wanted.is_empty() && matches_all(required, identity, cluster.namespace(&identity.namespace));
        if !are_there && !is_first() {
            return Err(AffinityConflict::Affinity);
        }
        let is_near = |term: &PodTerm| {
            node.label(&term.topology_key).is_some_and(|value| has(&self.unwanted, &term.topology_key, value))
        };
        if required_anti.iter().any(is_near) {
            return Err(AffinityConflict::AntiAffinity);
        }
        let is_unwelcome =
            |((key, value), count): (&(String, String), &i64)| 0 < *count && node.label(key) == Some(value);
        if self.unwelcome.iter().any(is_unwelcome) {
            return Err(AffinityConflict::ExistingAntiAffinity);
        }
        Ok(())
    }
}

// === impl AffinityScores ===

impl AffinityScores {
    /// `None` if no Pod has preferences.
    pub(crate) fn of(cluster: &Cluster, pending: &Pending) -> Option<AffinityScores> {
        static NONE: PodAffinities = PodAffinities {
            required: Vec::new(),
            required_anti: Vec::new(),
            preferred: Vec::new(),
            preferred_anti: Vec::new(),
        };
        let own = pending.pod.affinity.as_deref().unwrap_or(&NONE);
        let has_preferences = !own.preferred.is_empty() || !own.preferred_anti.is_empty();
        let weights = pending.profile.pod_affinity;
        if !has_preferences && (weights.ignores_others || !cluster.has_affinity()) {
            return None;
        }
        let mut scores = AffinityScores::default();
        let own_namespace = cluster.namespace(&pending.pod.identity.namespace);
        for node in cluster.nodes() {
            if has_preferences {
                for group in node.groups() {
                    let namespace = cluster.namespace(&group.identity.namespace);
                    scores.add(&own.preferred, &group.identity, namespace, node, group.n_all);
                    scores.add(&own.preferred_anti, &group.identity, namespace, node, -group.n_all);
                }
            }
            for affinity in node.with_affinity.iter().filter_map(|pod| pod.affinity.as_deref()) {
                if weights.required != 0 {
                    for term in &affinity.required {
                        scores.add_term(term, &pending.pod.identity, own_namespace, node, weights.required);
                    }
                }
                scores.add(&affinity.preferred, &pending.pod.identity, own_namespace, node, 1);
                scores.add(&affinity.preferred_anti, &pending.pod.identity, own_namespace, node, -1);
            }
        }
        (!scores.by_topology.is_empty()).then_some(scores)
    }

    fn add(&mut self, terms: &[(i64, PodTerm)], identity: &Identity, namespace: &Labels, node: &Node, times: i64) {
        for (weight, term) in terms {
            self.add_term(term, identity, namespace, node, weight.saturating_mul(times));
        }
    }

    fn add_term(&mut self, term: &PodTerm, identity: &Identity, namespace: &Labels, node: &Node, by: i64) {
        let Some(value) = node.label(&term.topology_key) else { return };
        if term.matches(identity, namespace) {
            let of_key = self.by_topology.entry_ref(term.topology_key.as_str()).or_default();
            *of_key.entry_ref(value).or_insert(0) += by;
        }
    }

    /// The scores from 0 to 100, relative to the other nodes.
    pub(crate) fn score(&self, candidates: &[&Node]) -> Vec<i64> {
        let of = |node: &&Node| -> i64 {
            let found = self.by_topology.iter().filter_map(|(key, values)| values.get(node.label(key)?));
            found.sum()
        };
        let raw: Vec<i64> = candidates.iter().map(of).collect();
        let most = raw.iter().copied().max().unwrap_or_default();
        let least = raw.iter().copied().min().unwrap_or_default();
        let range = most.saturating_sub(least);
        let normal = |score: &i64| if 0 < range { i128::from(score - least) * 100 / i128::from(range) } else { 0 };
        raw.iter().map(|score| i64::try_from(normal(score)).unwrap_or_default()).collect()
    }
}
