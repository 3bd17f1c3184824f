//! The input of decisions: nodes with their Pods, volumes, namespaces, Services and disruption budgets.
//!
//! Kept in step with the informers' events. A Pod whose binding is in flight counts on its node already (it is assumed
//! there), until the informer shows it there or the binding has failed. Follows `pkg/scheduler/backend/cache`,
//! including the order of nodes: one from each zone in turn.

pub(crate) mod node;
pub(crate) mod pod;

use crate::scheduler::cluster::node::{Node, NodeFacts};
use crate::scheduler::cluster::pod::{Identity, Owner, Pending, Placed};
use crate::scheduler::plugins::volumes::Volumes;
use crate::shared::labels::{Labels, Selector};
use crate::shared::sparse::Sparse;
use hashbrown::HashMap;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Weak};
use steersman::ObjectKey;

/// The most remembered selectors of owners.
const SELECTORS_MAX: usize = 4_096;

/// Finds the selector of a ReplicaSet, ReplicationController or StatefulSet in a namespace.
pub(crate) type OwnerSelectors = Box<dyn Fn(&str, &Owner) -> Option<Selector> + Send>;

/// Selectors by the address of a Pod's identity and by its owner. The identity is kept alive so that the address is not
/// reused.
type Selectors = HashMap<(usize, Option<Owner>), (Arc<Identity>, Arc<Selector>)>;

/// How many Pods of an application may be disrupted at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) allowed: i64,
    /// Names of Pods that the budget lists as already being disrupted.
    pub(crate) disrupted: Vec<String>,
}

pub(crate) struct Cluster {
    nodes: HashMap<Arc<str>, Node>,
    /// Names of existing nodes in the order in which they are tried. Cleared by a change of nodes and computed on
    /// demand, so that a series of changes causes one computation.
    order: OnceCell<Vec<Arc<str>>>,
    pods: HashMap<ObjectKey, OnNode>,
    identities: Identities,
    namespaces: HashMap<String, Labels>,
    /// Selectors of Services by namespace and name.
    services: HashMap<String, HashMap<String, Labels>>,
    owner_selectors: OwnerSelectors,
    selectors: Selectors,
    pub(crate) budgets: HashMap<ObjectKey, Budget>,
    pub(crate) volumes: Volumes,
    /// The number of nodes that have each image.
    images: HashMap<String, i64>,
    /// The numbers of Pods with affinity rules, to skip the work when there are none.
    n_with_affinity: usize,
    n_with_required_anti: usize,
}

#[derive(Debug)]
struct OnNode {
    pod: Arc<Placed>,
    node: Arc<str>,
    is_assumed: bool,
}

#[derive(Default)]
struct Identities {
    hasher: RandomState,
    by_hash: HashMap<u64, Vec<Weak<Identity>>>,
    /// The size at which unused identities are removed.
    forget_at: usize,
}

// === impl Cluster ===

impl Cluster {
    pub(crate) fn new(owner_selectors: OwnerSelectors) -> Cluster {
        Cluster {
            nodes: HashMap::new(),
            order: OnceCell::new(),
            pods: HashMap::new(),
            identities: Identities::default(),
            namespaces: HashMap::new(),
            services: HashMap::new(),
            owner_selectors,
            selectors: Selectors::new(),
            budgets: HashMap::new(),
            volumes: Volumes::default(),
            images: HashMap::new(),
            n_with_affinity: 0,
            n_with_required_anti: 0,
        }
    }

    pub(crate) fn identity(&mut self, namespace: &str, labels: Option<&Labels>) -> Arc<Identity> {
        self.identities.of(namespace, labels)
    }
}

// === impl Cluster: nodes ===

impl Cluster {
    /// Sets the state of a node, and returns the previous one.
    pub(crate) fn set_node(&mut self, name: &str, facts: Arc<NodeFacts>) -> Option<Arc<NodeFacts>> {
        let name: Arc<str> = name.into();
        let node = self.nodes.entry(Arc::clone(&name)).or_insert_with(|| Node::new(&name));
        let old = node.facts.replace(Arc::clone(&facts));
        for (image, _) in &facts.images {
            *self.images.entry_ref(image.as_str()).or_insert(0) += 1;
        }
        if let Some(old) = &old {
            self.forget_images(old);
        }
        if old.as_ref().is_none_or(|old| old.zone != facts.zone) {
            self.order.take();
        }
        old
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let facts = node.facts.take();
        if node.pods.is_empty() {
            self.nodes.remove(name);
        }
        if let Some(facts) = facts {
            self.forget_images(&facts);
        }
        self.order.take();
    }

    fn forget_images(&mut self, facts: &NodeFacts) {
        for (image, _) in &facts.images {
            if let Some(count) = self.images.get_mut(image.as_str()) {
                *count -= 1;
                if *count <= 0 {
                    self.images.remove(image.as_str());
                }
            }
        }
    }

    /// The order of nodes: one from each zone in turn.
    fn order(&self) -> &[Arc<str>] {
        self.order.get_or_init(|| {
            let mut zones: BTreeMap<&str, Vec<&Arc<str>>> = BTreeMap::new();
            for node in self.nodes.values() {
                if let Some(facts) = &node.facts {
                    zones.entry(&facts.zone).or_default().push(&node.name);
                }
            }
            for names in zones.values_mut() {
                names.sort();
            }
            let longest = zones.values().map(Vec::len).max().unwrap_or_default();
            let in_turn = (0..longest).flat_map(|at| zones.values().filter_map(move |names| names.get(at)));
            in_turn.map(|name| Arc::clone(name)).collect()
        })
    }

    /// The existing nodes, in order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.order().iter().filter_map(|name| self.nodes.get(name))
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.order().len()
    }

    /// The node at a position in the order.
    pub(crate) fn node_at(&self, at: usize) -> Option<&Node> {
        self.nodes.get(self.order().get(at)?)
    }

    /// An existing node.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).filter(|node| node.facts.is_some())
    }

    pub(crate) fn n_nodes_with(&self, image: &str) -> i64 {
        self.images.get(image).copied().unwrap_or_default()
    }
}

// === impl Cluster: Pods ===

impl Cluster {
    /// Sets the state of a Pod on a node, and returns the previous one if it was known to be there.
    pub(crate) fn set_pod(&mut self, pod: &Arc<Placed>, node: &str) -> Option<Arc<Placed>> {
        let old = self.remove_pod(&pod.key);
        self.put(pod, node, false);
        old.map(|(pod, _)| pod)
    }

    /// Assumes a Pod on the node that was chosen for it, before it is bound.
    pub(crate) fn assume(&mut self, pod: &Arc<Placed>, node: &str) {
        self.remove_pod(&pod.key);
        self.put(pod, node, true);
    }

    fn put(&mut self, pod: &Arc<Placed>, node: &str, is_assumed: bool) {
        let name: Arc<str> = match self.nodes.get_key_value(node) {
            Some((name, _)) => Arc::clone(name),
            None => node.into(),
        };
        self.nodes.entry(Arc::clone(&name)).or_insert_with(|| Node::new(&name)).add(pod);
        self.n_with_affinity += usize::from(pod.affinity.is_some());
        self.n_with_required_anti += usize::from(!pod.required_anti().is_empty());
        self.pods.insert(pod.key.clone(), OnNode { pod: Arc::clone(pod), node: name, is_assumed });
    }

    /// Removes a Pod from its node, and returns both.
    pub(crate) fn remove_pod(&mut self, key: &ObjectKey) -> Option<(Arc<Placed>, Arc<str>)> {
        let OnNode { pod, node: name, .. } = self.pods.remove(key)?;
        self.pods.shrink_if_sparse();
        self.n_with_affinity -= usize::from(pod.affinity.is_some());
        self.n_with_required_anti -= usize::from(!pod.required_anti().is_empty());
        if let Some(node) = self.nodes.get_mut(&name) {
            node.remove(&pod);
            if node.pods.is_empty() && node.facts.is_none() {
                self.nodes.remove(&name);
            }
        }
        Some((pod, name))
    }

    /// Marks a Pod that is deleted by a preemption, before its informer shows that.
    pub(crate) fn set_preempted(&mut self, key: &ObjectKey, uid: &str) {
        let Some(on) = self.pods.get(key).filter(|on| *on.pod.uid == *uid) else { return };
        let (pod, node, is_assumed) = (Arc::new(on.pod.with_preemption()), Arc::clone(&on.node), on.is_assumed);
        self.remove_pod(key);
        self.put(&pod, &node, is_assumed);
    }

    /// A Pod that is on a node.
    pub(crate) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Placed>> {
        self.pods.get(key).map(|on| &on.pod)
    }

    /// Whether this Pod's binding is in flight.
    pub(crate) fn is_assumed(&self, key: &ObjectKey, uid: &str) -> bool {
        self.pods.get(key).is_some_and(|on| on.is_assumed && *on.pod.uid == *uid)
    }

    pub(crate) fn has_affinity(&self) -> bool {
        0 < self.n_with_affinity
    }

    pub(crate) fn has_required_anti_affinity(&self) -> bool {
        0 < self.n_with_required_anti
    }
}

// === impl Cluster: namespaces and Services ===

impl Cluster {
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
    }

    /// The labels of a namespace.
    pub(crate) fn namespace(&self, name: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    /// Sets the selector of a Service; `None` if it is gone or has none.
    pub(crate) fn set_service(&mut self, key: &ObjectKey, selector: Option<Labels>) {
        let namespace = key.namespace().unwrap_or_default();
        let known = self.services.get(namespace).and_then(|of_namespace| of_namespace.get(key.name()));
        if known == selector.as_ref() {
            return;
        }
        match selector {
            Some(selector) => {
                self.services.entry_ref(namespace).or_default().insert(key.name().to_owned(), selector);
            }
            None => {
                if let Some(of_namespace) = self.services.get_mut(namespace) {
                    of_namespace.remove(key.name());
                    if of_namespace.is_empty() {
                        self.services.remove(namespace);
                    }
                }
            }
        }
        self.selectors.clear();
    }

    /// The selector for the default spreading of a Pod: that of its Services and its owner.
    pub(crate) fn default_selector(&mut self, pending: &Pending) -> Arc<Selector> {
        let identity = &pending.pod.identity;
        let memo = (Arc::as_ptr(identity).addr(), pending.owner.clone());
        if let Some((_, known)) = self.selectors.get(&memo) {
            return Arc::clone(known);
        }
        let mut labels = Labels::new();
        for selector in self.services.get(&identity.namespace).into_iter().flat_map(HashMap::values) {
            if selector.iter().all(|(key, value)| identity.labels.get(key) == Some(value)) {
                labels.extend(selector.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        let mut selector = Selector::of_labels(&labels);
        let mut is_final = true;
        if let Some(owner) = &pending.owner
            && is_known_owner(owner)
        {
            match (self.owner_selectors)(&identity.namespace, owner) {
                Some(of_owner) => selector = selector.and(of_owner),
                // The owner may arrive later.
                None => is_final = false,
            }
        }
        let selector = Arc::new(selector);
        if is_final {
            if SELECTORS_MAX <= self.selectors.len() {
                self.selectors.clear();
            }
            self.selectors.insert(memo, (Arc::clone(identity), Arc::clone(&selector)));
        }
        selector
    }
}

fn is_known_owner(owner: &Owner) -> bool {
    matches!(
        (owner.api_version.as_str(), owner.kind.as_str()),
        ("v1", "ReplicationController") | ("apps/v1", "ReplicaSet" | "StatefulSet")
    )
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.order()).field("pods", &self.pods.len()).finish_non_exhaustive()
    }
}

// === impl Identities ===

impl Identities {
    fn of(&mut self, namespace: &str, labels: Option<&Labels>) -> Arc<Identity> {
        static NONE: Labels = Labels::new();
        let labels = labels.unwrap_or(&NONE);
        let hash = self.hasher.hash_one((namespace, labels));
        let alike = self.by_hash.entry(hash).or_default();
        let is_this = |known: &Arc<Identity>| known.namespace == namespace && known.labels == *labels;
        if let Some(known) = alike.iter().filter_map(Weak::upgrade).find(is_this) {
            return known;
        }
        // Dead entries are dropped here: an identity whose Pods come and go repeatedly leaves one each time.
        alike.retain(|one| 0 < one.strong_count());
        let new = Arc::new(Identity { namespace: namespace.to_owned(), labels: labels.clone() });
        alike.push(Arc::downgrade(&new));
        if self.forget_at < self.by_hash.len() {
            self.by_hash.retain(|_, alike| {
                alike.retain(|one| 0 < one.strong_count());
                !alike.is_empty()
            });
            self.forget_at = 1_024.max(2 * self.by_hash.len());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        Cluster::new(Box::new(|_, _| None))
    }

    #[test]
    fn what_pods_and_services_leave_behind_is_forgotten() {
        let mut cluster = cluster();
        let labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        for _ in 0..10 {
            drop(cluster.identity("default", Some(&labels)));
        }
        assert_eq!(cluster.identities.by_hash.values().map(Vec::len).sum::<usize>(), 1);
        for at in 0..5_000 {
            drop(cluster.identity(&format!("n{at}"), Some(&labels)));
        }
        assert!(cluster.identities.by_hash.len() < 2_000, "{}", cluster.identities.by_hash.len());
        for at in 0..10 {
            let key = ObjectKey::namespaced(&format!("n{at}"), "web");
            cluster.set_service(&key, Some(labels.clone()));
            cluster.set_service(&key, None);
        }
        assert!(cluster.services.is_empty());
    }

    fn facts(zone: &str) -> Arc<NodeFacts> {
        Arc::new(NodeFacts { zone: zone.to_owned(), ..NodeFacts::default() })
    }

    #[test]
    fn nodes_are_taken_from_each_zone_in_turn_and_put_in_order_when_they_are_needed() {
        let mut cluster = cluster();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")] {
            cluster.set_node(name, facts(zone));
            assert!(cluster.order.get().is_none(), "nobody has asked for it");
        }
        let order = |cluster: &Cluster| cluster.nodes().map(|node| node.name.to_string()).collect::<Vec<_>>();
        assert_eq!(order(&cluster), ["a1", "b1", "c1", "a2", "b2"]);
        cluster.set_node("a2", facts("a"));
        assert!(cluster.order.get().is_some(), "the zone is the same");
        cluster.set_node("c1", facts("b"));
        assert_eq!(order(&cluster), ["a1", "b1", "a2", "b2", "c1"]);
        cluster.remove_node("a1");
        assert_eq!(order(&cluster), ["a2", "b1", "b2", "c1"]);
        assert_eq!((cluster.n_nodes(), cluster.node_at(3).map(|node| &*node.name)), (4, Some("c1")));
    }
}
