//! Everything that a decision is made from: nodes with their Pods, volumes, and what namespaces, Services and budgets say.
//!
//! Kept from the events of informers. A Pod whose binding is under way is on its node already (it is assumed to be there), until the
//! informer shows it there, or the binding has failed. Follows `pkg/scheduler/backend/cache`, in whose order nodes are taken: from
//! each zone one in turn.

use crate::labels::{Labels, Selector};
use crate::scheduler::node::{Node, NodeFacts};
use crate::scheduler::pod::{Identity, Owner, Pending, Placed};
use crate::scheduler::volumes::Volumes;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Weak};
use steersman::ObjectKey;

/// How many selectors of owners are remembered.
const SELECTORS_MAX: usize = 4_096;

/// Finds the selector of a ReplicaSet, ReplicationController or StatefulSet in a namespace.
pub(super) type OwnerSelectors = Box<dyn Fn(&str, &Owner) -> Option<Selector> + Send>;

/// By the address of a Pod's identity, which is kept so that the address stays its own, and its owner.
type Selectors = HashMap<(usize, Option<Owner>), (Arc<Identity>, Arc<Selector>)>;

/// How many Pods of an application may go at the same time.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pub(super) namespace: String,
    pub(super) selector: Selector,
    pub(super) allowed: i64,
    /// Names of Pods that are going already, as the budget knows.
    pub(super) disrupted: Vec<String>,
}

pub(super) struct Cluster {
    nodes: HashMap<Arc<str>, Node>,
    /// Names of the nodes that there are, in the order in which they are tried.
    order: Vec<Arc<str>>,
    pods: HashMap<ObjectKey, OnNode>,
    identities: Identities,
    namespaces: HashMap<String, Labels>,
    /// Selectors of Services by namespace and name.
    services: HashMap<String, HashMap<String, Labels>>,
    owner_selectors: OwnerSelectors,
    selectors: Selectors,
    pub(super) budgets: HashMap<ObjectKey, Budget>,
    pub(super) volumes: Volumes,
    /// How many nodes have an image.
    images: HashMap<String, i64>,
    /// How many Pods have rules about others, to do nothing where there are none.
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
    /// When there are more, those that nobody uses are forgotten.
    forget_at: usize,
}

// === impl Cluster ===

impl Cluster {
    pub(super) fn new(owner_selectors: OwnerSelectors) -> Cluster {
        Cluster {
            nodes: HashMap::new(),
            order: Vec::new(),
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

    pub(super) fn identity(&mut self, namespace: &str, labels: Option<&Labels>) -> Arc<Identity> {
        self.identities.of(namespace, labels)
    }
}

// === impl Cluster: nodes ===

impl Cluster {
    /// Takes a node as it is now, and gives what it was before.
    pub(super) fn set_node(&mut self, name: &str, facts: Arc<NodeFacts>) -> Option<Arc<NodeFacts>> {
        let name: Arc<str> = name.into();
        let node = self.nodes.entry(Arc::clone(&name)).or_insert_with(|| Node::new(&name));
        let old = node.facts.replace(Arc::clone(&facts));
        for (image, _) in &facts.images {
            *self.images.entry_ref(image.as_str()).or_insert(0) += 1;
        }
        if let Some(old) = &old {
            self.forget_images(old);
        }
        if old.as_ref().is_none_or(|old| old.zone() != facts.zone()) {
            self.sort_nodes();
        }
        old
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let facts = node.facts.take();
        if node.pods.is_empty() {
            self.nodes.remove(name);
        }
        if let Some(facts) = facts {
            self.forget_images(&facts);
        }
        self.sort_nodes();
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

    /// Takes a node from each zone in turn.
    fn sort_nodes(&mut self) {
        let mut zones: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        let there = self.nodes.values().filter_map(|node| Some((node.facts.as_ref()?.zone(), &node.name)));
        for (zone, name) in there {
            zones.entry(zone).or_default().push(Arc::clone(name));
        }
        for names in zones.values_mut() {
            names.sort();
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or_default();
        self.order =
            (0..longest).flat_map(|at| zones.values().filter_map(move |names| names.get(at))).cloned().collect();
    }

    /// The nodes that there are.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.order.iter().filter_map(|name| self.nodes.get(name))
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.order.len()
    }

    /// The node at a place in the order in which they are tried.
    pub(super) fn node_at(&self, at: usize) -> Option<&Node> {
        self.nodes.get(self.order.get(at)?)
    }

    /// A node that there is.
    pub(super) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).filter(|node| node.facts.is_some())
    }

    pub(super) fn n_nodes_with(&self, image: &str) -> i64 {
        self.images.get(image).copied().unwrap_or_default()
    }
}

// === impl Cluster: Pods ===

impl Cluster {
    /// Takes a Pod that is on a node, as it is now, and gives what it was before, if it was known to be there.
    pub(super) fn set_pod(&mut self, pod: &Arc<Placed>, node: &str) -> Option<Arc<Placed>> {
        let old = self.remove_pod(&pod.key);
        self.put(pod, node, false);
        old.map(|(pod, _)| pod)
    }

    /// Puts a Pod on the node that was chosen for it, before it is bound.
    pub(super) fn assume(&mut self, pod: &Arc<Placed>, node: &str) {
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

    /// Takes a Pod off its node, and says what was there and where.
    pub(super) fn remove_pod(&mut self, key: &ObjectKey) -> Option<(Arc<Placed>, Arc<str>)> {
        let OnNode { pod, node: name, .. } = self.pods.remove(key)?;
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

    /// A Pod that is on a node.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Placed>> {
        self.pods.get(key).map(|on| &on.pod)
    }

    /// Whether this Pod's binding is under way.
    pub(super) fn is_assumed(&self, key: &ObjectKey, uid: &str) -> bool {
        self.pods.get(key).is_some_and(|on| on.is_assumed && *on.pod.uid == *uid)
    }

    pub(super) fn has_affinity(&self) -> bool {
        0 < self.n_with_affinity
    }

    pub(super) fn has_required_anti_affinity(&self) -> bool {
        0 < self.n_with_required_anti
    }
}

// === impl Cluster: namespaces and Services ===

impl Cluster {
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
    }

    /// The labels of a namespace.
    pub(super) fn namespace(&self, name: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    /// Takes the selector of a Service; `None` if it is gone or has none.
    pub(super) fn set_service(&mut self, key: &ObjectKey, selector: Option<Labels>) {
        let namespace = key.namespace().unwrap_or_default();
        let old = match selector {
            Some(selector) => {
                let of_namespace = self.services.entry(namespace.to_owned()).or_default();
                if of_namespace.get(key.name()) == Some(&selector) {
                    return;
                }
                of_namespace.insert(key.name().to_owned(), selector)
            }
            None => self.services.get_mut(namespace).and_then(|of_namespace| of_namespace.remove(key.name())),
        };
        if old.is_some() || self.services.contains_key(namespace) {
            self.selectors.clear();
        }
    }

    /// Which Pods belong together with this one, as its Services and its owner select: over these it is spread by default.
    pub(super) fn default_selector(&mut self, pending: &Pending) -> Arc<Selector> {
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
                // It may come later.
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
        f.debug_struct("Cluster").field("nodes", &self.order).field("pods", &self.pods.len()).finish_non_exhaustive()
    }
}

// === impl Identities ===

impl Identities {
    fn of(&mut self, namespace: &str, labels: Option<&Labels>) -> Arc<Identity> {
        static NONE: Labels = Labels::new();
        let labels = labels.unwrap_or(&NONE);
        let hash = self.hasher.hash_one((namespace, labels));
        let alike = self.by_hash.entry(hash).or_default();
        let known = alike.iter().filter_map(Weak::upgrade);
        for known in known {
            if known.namespace == namespace && known.labels == *labels {
                return known;
            }
        }
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
