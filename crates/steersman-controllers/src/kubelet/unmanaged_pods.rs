//! Pods on nodes that do not simulate them (yet): because the node is not simulated, is away, or has not posted its
//! capacity.
//!
//! Their addresses are kept with them, because they are in use nevertheless. Pods are indexed by node, so that a node
//! that starts finds its own quickly.

use crate::shared::sparse::Sparse;
use hashbrown::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use steersman::ObjectKey;

/// The Pods that are bound to a node and not simulated.
#[derive(Debug, Default)]
pub(crate) struct UnmanagedPods {
    pods: HashMap<ObjectKey, OnNode>,
    by_node: HashMap<Arc<str>, HashSet<ObjectKey>>,
}

#[derive(Debug)]
struct OnNode {
    node: Arc<str>,
    ips: Vec<IpAddr>,
}

// === impl UnmanagedPods ===

impl UnmanagedPods {
    /// Adds a Pod that is not in the set.
    pub(crate) fn add(&mut self, key: ObjectKey, node: &str, ips: Vec<IpAddr>) {
        let node = match self.by_node.get_key_value(node) {
            Some((node, _)) => Arc::clone(node),
            None => Arc::from(node),
        };
        self.by_node.entry(Arc::clone(&node)).or_default().insert(key.clone());
        self.pods.insert(key, OnNode { node, ips });
    }

    /// Removes a Pod, and returns its addresses.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Vec<IpAddr> {
        let Some(OnNode { node, ips }) = self.pods.remove(key) else { return Vec::new() };
        self.pods.shrink_if_sparse();
        if let Some(keys) = self.by_node.get_mut(&node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&node);
            }
        }
        ips
    }

    /// The Pods of a node.
    pub(crate) fn on(&self, node: &str) -> Vec<ObjectKey> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// The addresses of the Pods of a node.
    pub(crate) fn ips_on(&self, node: &str) -> Vec<IpAddr> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key)).flat_map(|pod| pod.ips.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_node_until_it_is_taken_out() {
        let mut unmanaged_pods = UnmanagedPods::default();
        let key = |name| ObjectKey::namespaced("default", name);
        let ip: IpAddr = "10.128.0.2".parse().unwrap();
        unmanaged_pods.add(key("a"), "n", vec![ip]);
        unmanaged_pods.add(key("b"), "other", Vec::new());
        assert_eq!((unmanaged_pods.on("n"), unmanaged_pods.ips_on("n")), (vec![key("a")], vec![ip]));
        assert_eq!(unmanaged_pods.remove(&key("a")), [ip]);
        assert!(unmanaged_pods.on("n").is_empty() && unmanaged_pods.remove(&key("a")).is_empty());
        assert_eq!(unmanaged_pods.by_node.len(), 1);
    }
}
