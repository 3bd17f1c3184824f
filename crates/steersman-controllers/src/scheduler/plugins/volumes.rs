//! Claims and volumes: which nodes can reach a Pod's volumes, and which volumes a claim can be bound to.
//!
//! Follows the plugins VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone. In-tree volumes are not translated to CSI.

mod binding;
mod limits;
mod objects;
mod zones;

#[cfg(test)]
pub(crate) use crate::scheduler::plugins::volumes::binding::ClaimVersion;
pub(crate) use crate::scheduler::plugins::volumes::binding::{Provisioning, Reserved, VolumeBinding, VolumePlan};

use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{ClaimUse, Placed};
use crate::scheduler::plugins::filters::{Plugin, PluginSet};
use crate::scheduler::plugins::resources;
use crate::scheduler::plugins::volumes::binding::{AssumedClaim, AssumedNode};
use crate::scheduler::plugins::volumes::objects::{Claim, Volume};
use crate::shared::labels::Selector;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steersman::ObjectKey;

/// The annotation with the node for which a volume is to be provisioned.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const ZONE_CONFLICT: &str = "node(s) had no available volume zone";
pub(crate) const DISK_CONFLICT: &str = "node(s) had no available disk";
pub(crate) const USED_BY_OTHER: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

/// Claims, volumes, storage classes and drivers.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    claims: HashMap<ObjectKey, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: HashMap<String, Class>,
    csi_nodes: HashMap<String, CsiNode>,
    drivers: HashMap<String, Driver>,
    capacities: HashMap<ObjectKey, Capacity>,
    /// Volumes with a binding in flight, until the informer delivers a later version.
    assumed_volumes: HashMap<String, AssumedClaim>,
    /// Claims with a node selection in flight, until the informer delivers a later version.
    assumed_nodes: HashMap<ObjectKey, AssumedNode>,
}

#[derive(Clone, Debug)]
struct Class {
    provisioner: String,
    waits: bool,
    topologies: Vec<TopologySelectorTerm>,
}

#[derive(Clone, Debug)]
struct CsiNode {
    /// Drivers, with the most volumes that the node may have of each.
    drivers: HashMap<String, Option<i64>>,
}

#[derive(Clone, Debug)]
struct Driver {
    checks_capacity: bool,
}

#[derive(Clone, Debug)]
struct Capacity {
    class: String,
    nodes: Selector,
    most: Option<i64>,
}

/// The constraints of a Pod's claims on the choice of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimsOfPod {
    bound: Vec<ObjectKey>,
    unbound: Vec<ObjectKey>,
    /// Zones and regions of its volumes: a label, and its allowed values.
    zones: Vec<(String, BTreeSet<String>)>,
    /// ReadWriteOncePod claims.
    for_one_pod: Vec<Arc<str>>,
}

/// Why no node at all is feasible.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ClaimError {
    Restrictions(String),
    Binding(String),
    Zone(String),
}

/// Why a node is not feasible, or why that could not be determined.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum NodeError {
    Conflicts(Vec<&'static str>),
    Failed(String),
}

// === impl Volumes: updates from informers ===

impl Volumes {
    pub(crate) fn set_claim(&mut self, key: &ObjectKey, claim: Option<&PersistentVolumeClaim>) {
        match claim.map(Claim::read) {
            Some(claim) => {
                if self.assumed_nodes.get(key).is_some_and(|assumed| assumed.version != claim.version) {
                    self.assumed_nodes.remove(key);
                }
                self.claims.insert(key.clone(), claim);
            }
            None => {
                self.claims.remove(key);
                self.assumed_nodes.remove(key);
            }
        }
    }

    pub(crate) fn set_volume(&mut self, name: &str, volume: Option<&PersistentVolume>) {
        match volume.map(Volume::read) {
            Some(volume) => {
                if self.assumed_volumes.get(name).is_some_and(|assumed| assumed.version != volume.version) {
                    self.assumed_volumes.remove(name);
                }
                self.volumes.insert(name.to_owned(), volume);
            }
            None => {
                self.volumes.remove(name);
                self.assumed_volumes.remove(name);
            }
        }
    }

    pub(crate) fn set_class(&mut self, name: &str, class: Option<&StorageClass>) {
        let read = |class: &StorageClass| Class {
            provisioner: class.provisioner.clone(),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: class.allowed_topologies.clone().unwrap_or_default(),
        };
        set(&mut self.classes, name, class.map(read));
    }

    pub(crate) fn set_csi_node(&mut self, name: &str, node: Option<&CSINode>) {
        let read = |node: &CSINode| CsiNode {
            drivers: node
                .spec
                .drivers
                .iter()
                .map(|driver| {
                    let most = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
                    (driver.name.clone(), most.map(i64::from))
                })
                .collect(),
        };
        set(&mut self.csi_nodes, name, node.map(read));
    }

    pub(crate) fn set_driver(&mut self, name: &str, driver: Option<&CSIDriver>) {
        let read = |driver: &CSIDriver| Driver { checks_capacity: driver.spec.storage_capacity.unwrap_or_default() };
        set(&mut self.drivers, name, driver.map(read));
    }

    pub(crate) fn set_capacity(&mut self, key: &ObjectKey, capacity: Option<&CSIStorageCapacity>) {
        match capacity {
            Some(capacity) => {
                let most = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
                let capacity = Capacity {
                    class: capacity.storage_class_name.clone(),
                    nodes: Selector::read(capacity.node_topology.as_ref()),
                    most: most.map(resources::bytes),
                };
                self.capacities.insert(key.clone(), capacity);
            }
            None => {
                self.capacities.remove(key);
            }
        }
    }
}

fn set<T>(map: &mut HashMap<String, T>, name: &str, value: Option<T>) {
    match value {
        Some(value) => map.insert(name.to_owned(), value),
        None => map.remove(name),
    };
}

// === impl Volumes: queries of decisions ===

impl Volumes {
    /// The constraints of a Pod's claims on the choice of a node, by those of the plugins that are among `filters`.
    ///
    /// # Errors
    /// When no node is feasible until a claim has changed.
    pub(crate) fn of_pod(
        &self,
        pod: &Placed,
        uses: &[ClaimUse],
        filters: PluginSet,
    ) -> Result<ClaimsOfPod, ClaimError> {
        let mut found = ClaimsOfPod::default();
        let keys: Vec<(ObjectKey, &ClaimUse)> =
            uses.iter().map(|claim| (ObjectKey::namespaced(&pod.identity.namespace, &claim.name), claim)).collect();
        for (key, used) in keys.iter().filter(|(_, used)| !used.is_ephemeral) {
            match self.claims.get(key) {
                Some(claim) if claim.is_for_one_pod => found.for_one_pod.push(Arc::clone(&used.name)),
                None if filters.contains(Plugin::VolumeRestrictions) => {
                    return Err(ClaimError::Restrictions(missing(&used.name)));
                }
                None | Some(_) => {}
            }
        }
        for (key, used) in keys.iter().filter(|_| filters.contains(Plugin::VolumeBinding)) {
            let claim = self.usable(key, used, pod)?;
            if claim.is_bound() {
                found.bound.push(key.clone());
            } else if claim.volume.is_empty() && self.classes.get(&claim.class).is_some_and(|class| class.waits) {
                found.unbound.push(key.clone());
            } else {
                return Err(ClaimError::Binding(UNBOUND.to_owned()));
            }
        }
        if !filters.contains(Plugin::VolumeZone) {
            return Ok(found);
        }
        for (key, used) in keys.iter().filter(|(_, used)| !used.is_ephemeral) {
            let Some(claim) = self.claims.get(key) else { return Err(ClaimError::Zone(missing(&used.name))) };
            if claim.volume.is_empty() {
                continue;
            }
            let Some(volume) = self.volumes.get(&claim.volume) else {
                return Err(ClaimError::Zone(format!("persistentvolume \"{}\" not found", claim.volume)));
            };
            found.zones.extend(zones::of(volume));
        }
        Ok(found)
    }

    fn usable(&self, key: &ObjectKey, used: &ClaimUse, pod: &Placed) -> Result<&Claim, ClaimError> {
        let name = &used.name;
        let refused = |message: String| Err(ClaimError::Binding(message));
        let Some(claim) = self.claims.get(key) else {
            return refused(if used.is_ephemeral {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\"")
            } else {
                missing(name)
            });
        };
        if claim.is_lost {
            let volume = &claim.volume;
            return refused(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.is_deleting {
            return refused(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if used.is_ephemeral && claim.pod.as_deref() != Some(&*pod.uid) {
            let namespace = &pod.identity.namespace;
            return refused(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                pod.key.name()
            ));
        }
        Ok(claim)
    }

    /// Finds volumes for a Pod's claims on a node.
    ///
    /// # Errors
    /// When the node is not feasible.
    pub(crate) fn find(&self, claims: &ClaimsOfPod, node: &Node) -> Result<VolumePlan, NodeError> {
        let mut conflicts = Vec::new();
        for key in &claims.bound {
            let Some(claim) = self.claims.get(key) else { continue };
            match self.volumes.get(&claim.volume) {
                None => {
                    conflicts.push(VOLUME_MISSING);
                    break;
                }
                Some(volume) if !volume.is_reachable(node) => {
                    conflicts.push(NODE_CONFLICT);
                    break;
                }
                Some(_) => {}
            }
        }
        let mut plan = VolumePlan::default();
        match self.find_unbound(&claims.unbound, node, &mut plan)? {
            Some(conflict) => {
                // In upstream's order.
                let at = usize::from(conflicts.first() == Some(&NODE_CONFLICT));
                conflicts.insert(at, conflict);
                Err(NodeError::Conflicts(conflicts))
            }
            None if conflicts.is_empty() => Ok(plan),
            None => Err(NodeError::Conflicts(conflicts)),
        }
    }

    /// The ReadWriteOncePod claims.
    pub(crate) fn for_one_pod(claims: &ClaimsOfPod) -> &[Arc<str>] {
        &claims.for_one_pod
    }
}

fn missing(name: &str) -> String {
    format!("persistentvolumeclaim \"{name}\" not found")
}
