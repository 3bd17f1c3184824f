//! Claims and volumes: which nodes a Pod's volumes can be reached from, and which volumes a claim can be bound to.
//!
//! Follows the plugins VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone. In-tree volumes are not translated to CSI.

use crate::labels::{self, Labels, NodeTerms, Selector};
use crate::scheduler::node::Node;
use crate::scheduler::pod::{ClaimUse, Placed};
use crate::scheduler::resources;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steersman::ObjectKey;

/// Set by whoever binds a claim to a volume, once that is done.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node for which a volume is to be made.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The class of a claim or volume, before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of classes whose volumes somebody makes by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const ZONES: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

pub(super) const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
pub(super) const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
pub(super) const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
pub(super) const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
pub(super) const ZONE_CONFLICT: &str = "node(s) had no available volume zone";
pub(super) const TOO_MANY: &str = "node(s) exceed max volume count";
pub(super) const DISK_CONFLICT: &str = "node(s) had no available disk";
pub(super) const USED_BY_OTHER: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

/// Claims, volumes, and what is known about their classes and drivers.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    claims: HashMap<ObjectKey, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: HashMap<String, Class>,
    csi_nodes: HashMap<String, CsiNode>,
    drivers: HashMap<String, Driver>,
    capacities: HashMap<ObjectKey, Capacity>,
    /// Volumes that claims are about to be bound to, until their informer shows it.
    assumed_volumes: HashMap<String, ObjectKey>,
    /// Claims for which a node is about to be selected.
    assumed_nodes: HashMap<ObjectKey, Arc<str>>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Claim {
    uid: String,
    volume: String,
    class: String,
    is_bind_completed: bool,
    is_lost: bool,
    is_deleting: bool,
    is_for_one_pod: bool,
    selected_node: Option<String>,
    access_modes: Vec<String>,
    storage: Option<i64>,
    selector: Option<Selector>,
    mode: String,
    attributes_class: String,
    /// The uid of the Pod that controls it.
    pod: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    labels: Labels,
    nodes: Option<NodeTerms>,
    class: String,
    storage: i64,
    access_modes: Vec<String>,
    claim: Option<ClaimRef>,
    is_available: bool,
    is_deleting: bool,
    mode: String,
    attributes_class: String,
    csi: Option<(String, String)>,
}

#[derive(Clone, Debug)]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Clone, Debug)]
pub(super) struct Class {
    provisioner: String,
    waits: bool,
    topologies: Vec<TopologySelectorTerm>,
}

#[derive(Clone, Debug)]
struct CsiNode {
    /// Drivers with the most volumes that a node may have of each.
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

/// What a Pod's claims mean for the choice of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimsOfPod {
    bound: Vec<ObjectKey>,
    unbound: Vec<ObjectKey>,
    /// Zones and regions that its volumes are in: label, values.
    zones: Vec<(String, BTreeSet<String>)>,
    /// Claims that one Pod only may use.
    for_one_pod: Vec<Arc<str>>,
}

/// What has to be written before a Pod with unbound claims can be bound to its node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct VolumePlan {
    /// Volume and the claim to bind it to.
    pub(super) bind: Vec<(String, ObjectKey)>,
    /// Claims for which a volume has to be made.
    pub(super) provision: Vec<ObjectKey>,
}

/// Why no node at all will do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ClaimError {
    Restrictions(String),
    Binding(String),
    Zone(String),
}

/// Why a node will not do, or why that cannot be said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum NodeError {
    Conflicts(Vec<&'static str>),
    Failed(String),
}

// === impl Volumes: what informers say ===

impl Volumes {
    pub(super) fn set_claim(&mut self, key: &ObjectKey, claim: Option<&PersistentVolumeClaim>) {
        match claim.map(Claim::read) {
            Some(claim) => {
                if claim.selected_node.is_some() || !claim.volume.is_empty() {
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

    pub(super) fn set_volume(&mut self, name: &str, volume: Option<&PersistentVolume>) {
        match volume.map(Volume::read) {
            Some(volume) => {
                if volume.claim.is_some() {
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

    pub(super) fn set_class(&mut self, name: &str, class: Option<&StorageClass>) {
        let read = |class: &StorageClass| Class {
            provisioner: class.provisioner.clone(),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: class.allowed_topologies.clone().unwrap_or_default(),
        };
        set(&mut self.classes, name, class.map(read));
    }

    pub(super) fn set_csi_node(&mut self, name: &str, node: Option<&CSINode>) {
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

    pub(super) fn set_driver(&mut self, name: &str, driver: Option<&CSIDriver>) {
        let read = |driver: &CSIDriver| Driver { checks_capacity: driver.spec.storage_capacity.unwrap_or_default() };
        set(&mut self.drivers, name, driver.map(read));
    }

    pub(super) fn set_capacity(&mut self, key: &ObjectKey, capacity: Option<&CSIStorageCapacity>) {
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

impl Claim {
    fn read(claim: &PersistentVolumeClaim) -> Claim {
        let spec = claim.spec.as_ref();
        let annotations = claim.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name)).cloned();
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let access_modes = spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
        Claim {
            uid: text(claim.metadata.uid.as_ref()),
            volume: text(spec.and_then(|spec| spec.volume_name.as_ref())),
            class: annotation(CLASS).unwrap_or_else(|| text(spec.and_then(|spec| spec.storage_class_name.as_ref()))),
            is_bind_completed: annotation(BIND_COMPLETED).is_some(),
            is_lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            is_deleting: claim.metadata.deletion_timestamp.is_some(),
            is_for_one_pod: access_modes.iter().any(|mode| mode == "ReadWriteOncePod"),
            selected_node: annotation(SELECTED_NODE),
            storage: resources::storage(
                spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.as_ref()),
            ),
            selector: spec.and_then(|spec| spec.selector.as_ref()).map(|selector| Selector::read(Some(selector))),
            mode: mode(spec.and_then(|spec| spec.volume_mode.as_ref())),
            attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
            pod: claim
                .metadata
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone()),
            access_modes,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_bind_completed
    }
}

fn mode(mode: Option<&String>) -> String {
    mode.cloned().unwrap_or_else(|| "Filesystem".to_owned())
}

impl Volume {
    fn read(volume: &PersistentVolume) -> Volume {
        let spec = volume.spec.as_ref();
        let annotations = volume.metadata.annotations.as_ref();
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let class = annotations.and_then(|all| all.get(CLASS)).cloned();
        let required = spec.and_then(|spec| spec.node_affinity.as_ref()).and_then(|nodes| nodes.required.as_ref());
        Volume {
            labels: volume.metadata.labels.clone().unwrap_or_default(),
            nodes: required.map(NodeTerms::read),
            class: class.unwrap_or_else(|| text(spec.and_then(|spec| spec.storage_class_name.as_ref()))),
            storage: resources::storage(spec.and_then(|spec| spec.capacity.as_ref())).unwrap_or_default(),
            access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
            claim: spec.and_then(|spec| spec.claim_ref.as_ref()).map(ClaimRef::read),
            is_available: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            mode: mode(spec.and_then(|spec| spec.volume_mode.as_ref())),
            attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
            csi: spec
                .and_then(|spec| spec.csi.as_ref())
                .map(|source| (source.driver.clone(), source.volume_handle.clone())),
        }
    }

    /// Whether the volume is meant for this claim, by whoever.
    fn is_for(&self, key: &ObjectKey, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|known| {
            Some(known.namespace.as_str()) == key.namespace()
                && known.name == key.name()
                && (known.uid.is_empty() || known.uid == claim.uid)
        })
    }

    fn is_reachable(&self, node: &Node) -> bool {
        // A volume's terms know labels only, so that the node has no name here.
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches("", &node.facts().labels))
    }
}

impl ClaimRef {
    fn read(reference: &ObjectReference) -> ClaimRef {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        ClaimRef { namespace: text(&reference.namespace), name: text(&reference.name), uid: text(&reference.uid) }
    }
}

// === impl Volumes: what decisions ask ===

impl Volumes {
    /// What the claims of a Pod mean for its node.
    ///
    /// # Errors
    /// When no node will do until a claim has changed.
    pub(super) fn of_pod(&self, pod: &Placed, uses: &[ClaimUse]) -> Result<ClaimsOfPod, ClaimError> {
        let mut found = ClaimsOfPod::default();
        let keys: Vec<(ObjectKey, &ClaimUse)> =
            uses.iter().map(|claim| (ObjectKey::namespaced(&pod.identity.namespace, &claim.name), claim)).collect();
        for (key, used) in keys.iter().filter(|(_, used)| !used.is_ephemeral) {
            let Some(claim) = self.claims.get(key) else { return Err(ClaimError::Restrictions(missing(&used.name))) };
            if claim.is_for_one_pod {
                found.for_one_pod.push(Arc::clone(&used.name));
            }
        }
        for (key, used) in &keys {
            let claim = self.usable(key, used, pod)?;
            if claim.is_bound() {
                found.bound.push(key.clone());
            } else if claim.volume.is_empty() && self.classes.get(&claim.class).is_some_and(|class| class.waits) {
                found.unbound.push(key.clone());
            } else {
                return Err(ClaimError::Binding(UNBOUND.to_owned()));
            }
        }
        for (key, _) in keys.iter().filter(|(_, used)| !used.is_ephemeral) {
            let Some(claim) = self.claims.get(key).filter(|claim| !claim.volume.is_empty()) else { continue };
            let Some(volume) = self.volumes.get(&claim.volume) else {
                return Err(ClaimError::Zone(format!("persistentvolume \"{}\" not found", claim.volume)));
            };
            found.zones.extend(zones(volume));
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

    /// Finds volumes on a node for a Pod's claims.
    ///
    /// # Errors
    /// When the node will not do.
    pub(super) fn find(&self, claims: &ClaimsOfPod, node: &Node) -> Result<VolumePlan, NodeError> {
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
                // In the order in which upstream names them.
                let at = usize::from(conflicts.first() == Some(&NODE_CONFLICT));
                conflicts.insert(at, conflict);
                Err(NodeError::Conflicts(conflicts))
            }
            None if conflicts.is_empty() => Ok(plan),
            None => Err(NodeError::Conflicts(conflicts)),
        }
    }

    fn find_unbound(
        &self,
        unbound: &[ObjectKey],
        node: &Node,
        plan: &mut VolumePlan,
    ) -> Result<Option<&'static str>, NodeError> {
        let mut to_provision: Vec<(&ObjectKey, &Claim)> = Vec::new();
        let mut to_match: Vec<(&ObjectKey, &Claim)> = Vec::new();
        for key in unbound {
            let Some(claim) = self.claims.get(key) else { continue };
            match self.selected_node(key, claim) {
                Some(selected) if selected != &*node.name => return Ok(Some(BIND_CONFLICT)),
                Some(_) => to_provision.push((key, claim)),
                None => to_match.push((key, claim)),
            }
        }
        to_match.sort_by_key(|(_, claim)| claim.storage);
        for (key, claim) in to_match {
            match self.matching(key, claim, node, plan) {
                Some(volume) => plan.bind.push((volume.to_owned(), key.clone())),
                None => to_provision.push((key, claim)),
            }
        }
        for (key, claim) in to_provision {
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
            plan.provision.push(key.clone());
        }
        Ok(None)
    }

    fn selected_node<'a>(&'a self, key: &ObjectKey, claim: &'a Claim) -> Option<&'a str> {
        self.assumed_nodes.get(key).map(|node| &**node).or(claim.selected_node.as_deref())
    }

    /// The smallest volume that a claim can be bound to and the node can reach; one that is meant for the claim comes first.
    fn matching(&self, key: &ObjectKey, claim: &Claim, node: &Node, plan: &VolumePlan) -> Option<&str> {
        let mut smallest: Option<(&str, i64)> = None;
        for (name, volume) in &self.volumes {
            let is_taken = plan.bind.iter().any(|(taken, _)| taken == name)
                || self.assumed_volumes.get(name).is_some_and(|other| other != key);
            let is_for_this = volume.is_for(key, claim);
            if volume.class != claim.class
                || is_taken
                || (volume.claim.is_some() && !is_for_this)
                || volume.storage < claim.storage.unwrap_or_default()
                || volume.mode != claim.mode
                || volume.attributes_class != claim.attributes_class
                || volume.is_deleting
            {
                continue;
            }
            if is_for_this {
                return volume.is_reachable(node).then_some(name);
            }
            let is_selected = claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels));
            let has_modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
            if volume.is_available
                && is_selected
                && has_modes
                && volume.is_reachable(node)
                && smallest.is_none_or(|(_, storage)| volume.storage < storage)
            {
                smallest = Some((name, volume.storage));
            }
        }
        smallest.map(|(name, _)| name)
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

    /// Whether the Pod's volumes are in the zone of a node, as far as both say.
    pub(super) fn is_in_zone(claims: &ClaimsOfPod, node: &Node) -> bool {
        let labels = &node.facts().labels;
        if claims.zones.is_empty() || !ZONES.iter().any(|label| labels.contains_key(*label)) {
            return true;
        }
        claims.zones.iter().all(|(label, values)| {
            let value = labels.get(label).or_else(|| labels.get(newer(label)));
            value.is_some_and(|value| values.contains(value))
        })
    }

    /// The claims that one Pod only may use.
    pub(super) fn for_one_pod(claims: &ClaimsOfPod) -> &[Arc<str>] {
        &claims.for_one_pod
    }

    /// Whether a node can have the CSI volumes of another Pod too.
    ///
    /// # Errors
    /// Says why not.
    pub(super) fn within_limits(&self, pod: &Placed, node: &Node) -> Result<(), &'static str> {
        if pod.claims.is_empty() {
            return Ok(());
        }
        let mut new = self.csi_volumes(pod);
        if new.is_empty() {
            return Ok(());
        }
        let Some(csi_node) = self.csi_nodes.get(&*node.name) else { return Ok(()) };
        let mut there: BTreeMap<String, String> = BTreeMap::new();
        for pod in &node.pods {
            there.extend(self.csi_volumes(pod));
        }
        new.retain(|volume, _| !there.contains_key(volume));
        for (driver, most) in csi_node.drivers.iter().filter_map(|(driver, most)| Some((driver, (*most)?))) {
            let count = |volumes: &BTreeMap<String, String>| volumes.values().filter(|known| *known == driver).count();
            let n_new = count(&new);
            let n_all = i64::try_from(count(&there).saturating_add(n_new)).unwrap_or(i64::MAX);
            if 0 < n_new && most < n_all {
                return Err(TOO_MANY);
            }
        }
        Ok(())
    }

    /// The CSI volumes of a Pod, with their drivers.
    fn csi_volumes(&self, pod: &Placed) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for name in &pod.claims {
            let key = ObjectKey::namespaced(&pod.identity.namespace, name);
            let Some(claim) = self.claims.get(&key) else { continue };
            let known = self.volumes.get(&claim.volume).map(|volume| volume.csi.clone());
            let source = match known {
                Some(source) => source,
                // It will be made by the provisioner of its class.
                None => self.classes.get(&claim.class).map(|class| (class.provisioner.clone(), key.to_string())),
            };
            if let Some((driver, handle)) = source {
                found.insert(format!("{driver}/{handle}"), driver);
            }
        }
        found
    }
}

fn missing(name: &str) -> String {
    format!("persistentvolumeclaim \"{name}\" not found")
}

fn zones(volume: &Volume) -> Vec<(String, BTreeSet<String>)> {
    let of = |label: &&str| {
        let values = volume.labels.get(*label)?;
        Some(((*label).to_owned(), values.split("__").map(|value| value.trim().to_owned()).collect()))
    };
    ZONES.iter().filter_map(of).collect()
}

fn newer(label: &str) -> &str {
    match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        label => label,
    }
}

// === impl Volumes: bindings under way ===

impl Volumes {
    /// Takes what is about to be written as written, for later decisions.
    pub(super) fn assume(&mut self, plan: &VolumePlan, node: &Arc<str>) {
        for (volume, claim) in &plan.bind {
            self.assumed_volumes.insert(volume.clone(), claim.clone());
        }
        for claim in &plan.provision {
            self.assumed_nodes.insert(claim.clone(), Arc::clone(node));
        }
    }

    /// Forgets what was not written after all.
    pub(super) fn forget(&mut self, plan: &VolumePlan) {
        for (volume, claim) in &plan.bind {
            if self.assumed_volumes.get(volume) == Some(claim) {
                self.assumed_volumes.remove(volume);
            }
        }
        for claim in &plan.provision {
            self.assumed_nodes.remove(claim);
        }
    }

    /// Whether all claims of a plan are bound.
    ///
    /// # Errors
    /// When that will not come any more.
    pub(super) fn is_carried_out(&self, plan: &VolumePlan, node: &Node) -> Result<bool, String> {
        let mut is_done = true;
        for (volume, key) in &plan.bind {
            let Some(claim) = self.claims.get(key) else {
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
        for key in &plan.provision {
            let Some(claim) = self.claims.get(key) else {
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
    pub(super) fn is_empty(&self) -> bool {
        self.bind.is_empty() && self.provision.is_empty()
    }
}
