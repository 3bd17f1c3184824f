//! Nodes as the scheduler keeps them, with the resources of their Pods.

use crate::scheduler::cluster::pod::{Identity, Placed};
use crate::scheduler::plugins::resources::{self, Resources, Totals};
use crate::shared::host_port::HostPort;
use crate::shared::labels::Labels;
use crate::shared::tolerations::NodeTaint;
use hashbrown::HashMap;
use std::sync::Arc;

/// The fields of a Node object that matter to the scheduler.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) labels: Labels,
    /// The region and zone, by which nodes are ordered.
    pub(crate) zone: String,
    pub(crate) taints: Vec<NodeTaint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: i64,
    /// Size in bytes by name.
    pub(crate) images: Vec<(String, i64)>,
}

/// A node with its bound and assumed Pods.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    /// `None` for a node that does not exist (yet, or any more) but that Pods name.
    pub(crate) facts: Option<Arc<NodeFacts>>,
    pub(crate) requested: Totals,
    pub(crate) cpu_at_least: i128,
    pub(crate) memory_at_least: i128,
    pub(crate) pods: Vec<Arc<Placed>>,
    /// Groups of Pods by the address of their identity, which is shared.
    identities: HashMap<usize, Group>,
    /// The Pods among `pods` with affinity rules.
    pub(crate) with_affinity: Vec<Arc<Placed>>,
}

/// Pods of a node that have the same namespace and labels.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) identity: Arc<Identity>,
    pub(crate) n_all: i64,
    /// The number of Pods that are not being deleted.
    pub(crate) n_staying: i64,
}

impl NodeFacts {
    pub(crate) fn read(node: &k8s_openapi::api::core::v1::Node) -> NodeFacts {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let images = status.into_iter().flat_map(|status| status.images.iter().flatten());
        let named = images.flat_map(|image| {
            let size = image.size_bytes.unwrap_or_default();
            image.names.iter().flatten().map(move |name| (name.clone(), size))
        });
        let mut images: Vec<(String, i64)> = named.collect();
        images.sort();
        images.dedup_by(|a, b| a.0 == b.0);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        NodeFacts {
            zone: zone(&labels),
            labels,
            taints: spec.into_iter().flat_map(|spec| spec.taints.iter().flatten()).map(NodeTaint::of).collect(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            allocatable: Resources::read(allocatable),
            pods_max: resources::pods_max(allocatable),
            images,
        }
    }

    pub(crate) fn image_size(&self, name: &str) -> Option<i64> {
        let at = self.images.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(self.images[at].1)
    }
}

fn zone(labels: &Labels) -> String {
    let label = |names: [&str; 2]| names.into_iter().find_map(|name| labels.get(name)).map_or("", String::as_str);
    let region = label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    format!("{region}:\0:{zone}")
}

impl Node {
    pub(crate) fn new(name: &Arc<str>) -> Node {
        Node {
            name: Arc::clone(name),
            facts: None,
            requested: Totals::default(),
            cpu_at_least: 0,
            memory_at_least: 0,
            pods: Vec::new(),
            identities: HashMap::new(),
            with_affinity: Vec::new(),
        }
    }

    /// The facts of the Node object; empty ones if it does not exist.
    pub(crate) fn facts(&self) -> &NodeFacts {
        static NONE: std::sync::LazyLock<NodeFacts> = std::sync::LazyLock::new(NodeFacts::default);
        self.facts.as_deref().unwrap_or(&NONE)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.facts().labels.get(key).map(String::as_str)
    }

    pub(crate) fn add(&mut self, pod: &Arc<Placed>) {
        self.count(pod, 1);
        self.requested.add(&pod.requests.exact);
        if pod.affinity.is_some() {
            self.with_affinity.push(Arc::clone(pod));
        }
        self.pods.push(Arc::clone(pod));
    }

    /// Removes exactly the Pod that was added.
    pub(crate) fn remove(&mut self, pod: &Arc<Placed>) {
        let Some(at) = self.pods.iter().position(|known| Arc::ptr_eq(known, pod)) else { return };
        self.pods.swap_remove(at);
        self.with_affinity.retain(|known| !Arc::ptr_eq(known, pod));
        self.requested.subtract(&pod.requests.exact);
        self.count(pod, -1);
    }

    fn count(&mut self, pod: &Arc<Placed>, sign: i64) {
        self.cpu_at_least += i128::from(sign) * i128::from(pod.requests.cpu_at_least);
        self.memory_at_least += i128::from(sign) * i128::from(pod.requests.memory_at_least);
        let address = Arc::as_ptr(&pod.identity).addr();
        let group = self.identities.entry(address).or_insert_with(|| Group {
            identity: Arc::clone(&pod.identity),
            n_all: 0,
            n_staying: 0,
        });
        group.n_all += sign;
        group.n_staying += if pod.is_deleting { 0 } else { sign };
        if group.n_all == 0 {
            self.identities.remove(&address);
        }
    }

    /// The Pods of this node grouped by what selectors match on.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.identities.values()
    }

    pub(crate) fn has_free(&self, ports: &[HostPort]) -> bool {
        ports.is_empty()
            || !self.pods.iter().flat_map(|pod| &pod.ports).any(|used| ports.iter().any(|port| port.conflicts(used)))
    }
}
