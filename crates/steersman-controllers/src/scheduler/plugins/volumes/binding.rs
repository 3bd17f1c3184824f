//! Unbound claims: the volumes that they can be bound to or that can be provisioned for them on a node, and the writes
//! for that.
//!
//! Follows `volumebinding/binder.go`. A write is valid for the version that the decision was based on, and is assumed
//! to succeed until it fails.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::plugins::volumes::objects::{Claim, Volume};
use crate::scheduler::plugins::volumes::{Class, NodeError, Volumes, missing};
use crate::shared::labels;
use std::sync::Arc;
use steersman::ObjectKey;

/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";

/// The writes that precede the binding of a Pod with unbound claims. They are for the versions of the objects that the
/// decision was based on, so that the server refuses them if an object has changed since.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct VolumePlan {
    pub(crate) bind: Vec<VolumeBinding>,
    /// Claims for which a volume is to be provisioned.
    pub(crate) provision: Vec<Provisioning>,
}

/// A volume, and the claim to bind it to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct VolumeBinding {
    pub(crate) volume: String,
    pub(crate) volume_version: String,
    pub(crate) claim: ClaimVersion,
    pub(crate) reserved: Reserved,
}

/// A claim that waits until a volume is provisioned for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Provisioning {
    pub(crate) claim: ClaimVersion,
    /// Whether the node is selected already, or another Pod's request to select it is in flight.
    pub(crate) is_selected: bool,
}

/// A version of a claim, on which a decision was based.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClaimVersion {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) version: String,
}

/// Whether a volume is reserved for the claim that it is to be bound to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reserved {
    No,
    /// The claimRef of the volume has the name of the claim, but not its uid.
    ByName,
    /// The claimRef is complete, or another Pod's request to write it is in flight.
    Yes,
}

/// The claim in a volume's binding in flight. The write is for one version of the volume: once there is another
/// version, the write has succeeded or will be refused.
#[derive(Clone, Debug)]
pub(super) struct AssumedClaim {
    pub(super) claim: ObjectKey,
    pub(super) version: String,
}

/// The node in a claim's selection in flight. The write is for one version of the claim.
#[derive(Clone, Debug)]
pub(super) struct AssumedNode {
    pub(super) node: Arc<str>,
    pub(super) version: String,
}

// === impl Volumes: making a plan ===

impl Volumes {
    pub(super) fn find_unbound(
        &self,
        unbound: &[ObjectKey],
        node: &Node,
        plan: &mut VolumePlan,
    ) -> Result<Option<&'static str>, NodeError> {
        let mut to_provision: Vec<(&ObjectKey, &Claim, bool)> = Vec::new();
        let mut to_match: Vec<(&ObjectKey, &Claim)> = Vec::new();
        for key in unbound {
            let Some(claim) = self.claims.get(key) else { continue };
            match self.selected_node(key, claim) {
                Some(selected) if selected != &*node.name => return Ok(Some(BIND_CONFLICT)),
                Some(_) => to_provision.push((key, claim, true)),
                None => to_match.push((key, claim)),
            }
        }
        to_match.sort_by_key(|(_, claim)| claim.storage);
        for (key, claim) in to_match {
            match self.matching(key, claim, node, plan) {
                Some(binding) => plan.bind.push(binding),
                None => to_provision.push((key, claim, false)),
            }
        }
        for (key, claim, is_selected) in to_provision {
            let Some(class) = self.classes.get(&claim.class) else {
                return Err(NodeError::Failed(format!("failed to find storage class \"{}\"", claim.class)));
            };
            let is_made = !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER;
            if !is_made || !labels::is_in_topologies(&class.topologies, &node.facts().labels) {
                return Ok(Some(BIND_CONFLICT));
            }
            if !self.has_capacity(claim, class, node) {
                return Ok(Some(NOT_ENOUGH_SPACE));
            }
            plan.provision.push(Provisioning { claim: claim.at_version(key), is_selected });
        }
        Ok(None)
    }

    fn selected_node<'a>(&'a self, key: &ObjectKey, claim: &'a Claim) -> Option<&'a str> {
        self.assumed_nodes.get(key).map(|assumed| &*assumed.node).or(claim.selected_node.as_deref())
    }

    /// The smallest volume that a claim can be bound to and the node can reach; a volume reserved for the claim takes
    /// precedence.
    fn matching(&self, key: &ObjectKey, claim: &Claim, node: &Node, plan: &VolumePlan) -> Option<VolumeBinding> {
        let binding = |name: &str, volume: &Volume, reserved: Reserved| VolumeBinding {
            volume: name.to_owned(),
            volume_version: volume.version.clone(),
            claim: claim.at_version(key),
            reserved,
        };
        let mut smallest: Option<(&str, &Volume)> = None;
        for (name, volume) in &self.volumes {
            let assumed = self.assumed_volumes.get(name);
            let is_taken = plan.bind.iter().any(|taken| taken.volume == *name)
                || assumed.is_some_and(|assumed| assumed.claim != *key);
            let reserved = if assumed.is_some() { Reserved::Yes } else { volume.reserved(key, claim) };
            if volume.class != claim.class
                || is_taken
                || (volume.claim.is_some() && reserved == Reserved::No)
                || volume.storage < claim.storage.unwrap_or_default()
                || volume.mode != claim.mode
                || volume.attributes_class != claim.attributes_class
                || volume.is_deleting
            {
                continue;
            }
            if reserved != Reserved::No {
                return volume.is_reachable(node).then(|| binding(name, volume, reserved));
            }
            let is_selected = claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels));
            let has_modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
            if volume.is_available
                && is_selected
                && has_modes
                && volume.is_reachable(node)
                && smallest.is_none_or(|(_, smallest)| volume.storage < smallest.storage)
            {
                smallest = Some((name, volume));
            }
        }
        smallest.map(|(name, volume)| binding(name, volume, Reserved::No))
    }

    fn has_capacity(&self, claim: &Claim, class: &Class, node: &Node) -> bool {
        let Some(storage) = claim.storage else { return true };
        if !self.drivers.get(&class.provisioner).is_some_and(|driver| driver.checks_capacity) {
            return true;
        }
        self.capacities.values().any(|capacity| {
            capacity.class == claim.class
                && capacity.most.is_some_and(|most| storage <= most)
                && capacity.nodes.matches(&node.facts().labels)
        })
    }
}

// === impl Volumes: plans in flight ===

impl Volumes {
    /// Assumes the writes of a plan for later decisions.
    pub(crate) fn assume(&mut self, plan: &VolumePlan, node: &Arc<str>) {
        for binding in plan.bind.iter().filter(|binding| binding.reserved != Reserved::Yes) {
            let assumed = AssumedClaim { claim: binding.claim.key.clone(), version: binding.volume_version.clone() };
            self.assumed_volumes.insert(binding.volume.clone(), assumed);
        }
        for Provisioning { claim, .. } in plan.provision.iter().filter(|claim| !claim.is_selected) {
            let assumed = AssumedNode { node: Arc::clone(node), version: claim.version.clone() };
            self.assumed_nodes.insert(claim.key.clone(), assumed);
        }
    }

    /// Reverts the assumptions of a plan that failed.
    pub(crate) fn forget(&mut self, plan: &VolumePlan) {
        for binding in plan.bind.iter().filter(|binding| binding.reserved != Reserved::Yes) {
            let is_this =
                |known: &AssumedClaim| known.claim == binding.claim.key && known.version == binding.volume_version;
            if self.assumed_volumes.get(&binding.volume).is_some_and(is_this) {
                self.assumed_volumes.remove(&binding.volume);
            }
        }
        for Provisioning { claim, .. } in plan.provision.iter().filter(|claim| !claim.is_selected) {
            if self.assumed_nodes.get(&claim.key).is_some_and(|known| known.version == claim.version) {
                self.assumed_nodes.remove(&claim.key);
            }
        }
    }

    /// Whether all claims of a plan are bound.
    ///
    /// # Errors
    /// When they will not be bound any more.
    pub(crate) fn is_carried_out(&self, plan: &VolumePlan, node: &Node) -> Result<bool, String> {
        let mut is_done = true;
        for VolumeBinding { volume, claim: ClaimVersion { key, uid, .. }, .. } in &plan.bind {
            let Some(claim) = self.claims.get(key).filter(|claim| claim.uid == *uid) else {
                return Err(format!("failed to check binding: {}", missing(key.name())));
            };
            if self.assumed_volumes.contains_key(volume) {
                is_done = false;
                continue;
            }
            match self.volumes.get(volume) {
                None => return Err(format!("failed to check binding: persistentvolume \"{volume}\" not found")),
                Some(known) if known.claim.as_ref().is_none_or(|claim| claim.uid.is_empty()) => {
                    return Err(format!("ClaimRef got reset for pv \"{volume}\""));
                }
                Some(_) => is_done &= claim.is_bound(),
            }
        }
        for Provisioning { claim: ClaimVersion { key, uid, .. }, .. } in &plan.provision {
            let Some(claim) = self.claims.get(key).filter(|claim| claim.uid == *uid) else {
                return Err(format!("failed to check provisioning pvc: {}", missing(key.name())));
            };
            if self.assumed_nodes.contains_key(key) {
                is_done = false;
                continue;
            }
            if claim.selected_node.as_deref() != Some(&*node.name) {
                return Err(format!("provisioning failed for PVC \"{}\"", key.name()));
            }
            if let Some(volume) = self.volumes.get(&claim.volume)
                && !volume.is_reachable(node)
            {
                return Err(format!(
                    "pv \"{}\" node affinity doesn't match node \"{}\": no matching NodeSelectorTerms",
                    claim.volume, node.name
                ));
            }
            is_done &= claim.is_bound();
        }
        Ok(is_done)
    }
}

impl VolumePlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.bind.is_empty() && self.provision.is_empty()
    }
}
