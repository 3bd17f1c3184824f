//! The graph of owners and dependents: all objects by uid, kept up to date from the informers.
//!
//! A state machine that does not wait. Its inputs are objects that appeared or changed, objects that are gone, and
//! owners that the server does not have. It returns the objects to process because they may have to be deleted, the
//! owners whose dependents are to be orphaned, and invalid owner references to report. An owner that was referred to
//! and not observed yet is a virtual node.
//!
//! Follows upstream's `graph_builder.go`, except that an owner counts its blocking dependents, so that the deletion of
//! one costs the same however many dependents the owner has.

use crate::loops::cleanup::garbage_collector::absent::Absent;
use crate::loops::cleanup::garbage_collector::identity::{Identity, Kind, Names, Uid};
use crate::shared::sparse::Sparse;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PropagationPolicy;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The finalizer of an object that is deleted after its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are orphaned when it is deleted.
pub(super) const ORPHAN: &str = "orphan";
/// The number of absent owners that are remembered.
const ABSENT_MAX: usize = 10_000;

pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: Absent,
    names: Names,
    /// Objects whose owner is of a kind that is not served. Every uid here is in `nodes` too.
    unserved: HashSet<Uid>,
}

/// The work that a change causes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Effects {
    /// Objects to process: they may have to be deleted, or to be released from waiting for their dependents.
    pub(super) delete: Vec<Uid>,
    /// As `delete`, but not at once: the server was asked a moment ago.
    pub(super) delete_later: Vec<Uid>,
    /// Dependents whose owner is in another namespace.
    pub(super) invalid: Vec<InvalidOwner>,
    /// Owners whose dependents are to be orphaned.
    pub(super) orphan: Vec<Uid>,
}

#[derive(Debug, PartialEq)]
pub(super) struct InvalidOwner {
    pub(super) dependent: Identity,
    /// The owner as the reference names it, in the namespace of the dependent.
    pub(super) owner: Identity,
}

/// The action due for an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// No owner is left: delete exactly this version of the object.
    Delete { object: Identity, version: String, policy: PropagationPolicy },
    /// The server has to be asked about the owners.
    Look(Node),
    /// No action is due.
    Nothing,
    /// The object waits for its dependents, and none of them blocks it any more.
    Release(Identity),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) identity: Identity,
    owners: Box<[Owner]>,
    /// The dependents, and whether each has a reference that blocks the foreground deletion of this object.
    dependents: BTreeMap<Uid, bool>,
    /// The number of blocking dependents, kept in step with `dependents`.
    n_blocking: usize,
    deletion: Deletion,
    /// Whether the object is known from references only.
    is_virtual: bool,
    /// The resourceVersion; 0 if it is unknown or not a number.
    version: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Owner {
    kind: Arc<Kind>,
    name: Arc<str>,
    uid: Uid,
    is_blocked: bool,
}

/// The state of an object's deletion.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Deletion {
    is_begun: bool,
    is_foreground: bool,
    is_orphaning: bool,
}

// === impl Graph ===

impl Graph {
    pub(super) fn new() -> Graph {
        Graph::remembering(ABSENT_MAX)
    }

    /// A graph that remembers at most `absent_max` absent owners.
    pub(super) fn remembering(absent_max: usize) -> Graph {
        Graph {
            nodes: HashMap::new(),
            absent: Absent::at_most(absent_max),
            names: Names::default(),
            unserved: HashSet::new(),
        }
    }

    pub(super) fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    pub(super) fn node(&self, uid: &Uid) -> Option<&Node> {
        self.nodes.get(uid)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The identity of the object with this metadata.
    pub(super) fn identity(&mut self, kind: &Arc<Kind>, metadata: &ObjectMeta) -> Identity {
        Identity {
            kind: Arc::clone(kind),
            namespace: self.names.namespace(metadata.namespace.as_deref().unwrap_or_default()),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    /// Records that an object appeared or changed.
    pub(super) fn observe(&mut self, kind: &Arc<Kind>, metadata: &ObjectMeta) -> Effects {
        let mut effects = Effects::default();
        let identity = self.identity(kind, metadata);
        let uid = identity.uid.clone();
        if self.nodes.get(&uid).is_some_and(|node| node.is_virtual && node.identity != identity) {
            self.correct(&identity, &mut effects);
        }
        let node = self.nodes.entry(uid.clone()).or_insert_with(|| Node::new(identity));
        node.is_virtual = false;
        node.version = version(metadata);
        let before = std::mem::replace(&mut node.deletion, Deletion::of(metadata));
        let after = node.deletion;
        let owners = self.owners(metadata);
        self.set_owners(&uid, owners, &mut effects);
        if after.is_to_orphan() && !before.is_to_orphan() {
            effects.orphan.push(uid);
        } else if !after.is_to_orphan() && after.is_waiting() && !before.is_waiting() {
            effects.delete.extend(self.dependents(&uid));
            effects.delete.push(uid);
        }
        effects
    }

    /// Records that an object is gone.
    pub(super) fn gone(&mut self, kind: &Arc<Kind>, metadata: &ObjectMeta) -> Effects {
        let mut effects = Effects::default();
        let identity = self.identity(kind, metadata);
        self.remove(&identity, &mut effects);
        effects
    }

    /// Records that the server has no such object. If its uid is known under another kind, name or namespace, only the
    /// dependents whose references name this identity are processed.
    pub(super) fn is_absent(&mut self, identity: &Identity) -> Effects {
        let mut effects = Effects::default();
        let Some(node) = self.nodes.get(&identity.uid) else { return effects };
        if !node.is_virtual && node.identity != *identity {
            let (matching, _) = self.partition(identity);
            self.abandon(identity, matching, &mut effects);
            return effects;
        }
        if node.is_virtual {
            let is_assumed = node.identity == *identity;
            let (matching, others) = self.partition(identity);
            self.absent.insert(identity.clone());
            let alternate = self.alternate(&others, identity);
            if alternate.is_some() || (!is_assumed && !others.is_empty()) {
                self.abandon(identity, matching, &mut effects);
                if let Some(node) = self.nodes.get_mut(&identity.uid).filter(|_| is_assumed)
                    && let Some(alternate) = alternate
                {
                    node.identity = alternate;
                    effects.delete_later.push(identity.uid.clone());
                }
                return effects;
            }
        }
        self.remove(identity, &mut effects);
        effects
    }

    /// Remembers that the server does not have this owner, whatever the graph holds for it.
    pub(super) fn remember_absent(&mut self, owner: Identity) {
        self.absent.insert(owner);
    }

    /// Whether an owner is known to be absent, for a dependent in `namespace`.
    pub(super) fn is_known_absent(&mut self, owner: &Identity, namespace: &Arc<str>) -> bool {
        let cluster = self.names.namespace("");
        self.absent.contains(&owner.within(&cluster)) || self.absent.contains(&owner.within(namespace))
    }

    /// Keeps an object until discovery serves other kinds than now.
    pub(super) fn wait_until_served(&mut self, uid: &Uid) {
        if self.nodes.contains_key(uid) {
            self.unserved.insert(uid.clone());
        }
    }

    /// Takes the objects that have waited for a kind to be served.
    pub(super) fn take_unserved(&mut self) -> HashSet<Uid> {
        std::mem::take(&mut self.unserved)
    }

    /// Forgets the objects of a kind that is no longer watched: their known state may be outdated.
    pub(super) fn unwatch(&mut self, kind: &Arc<Kind>) {
        self.nodes.retain(|_, node| {
            if node.identity.kind == *kind {
                node.is_virtual = true;
                node.version = 0;
            }
            !node.is_virtual || !node.dependents.is_empty() || !node.owners.is_empty()
        });
        self.unserved.retain(|uid| self.nodes.contains_key(uid));
    }

    /// The action due for an object.
    pub(super) fn plan(&mut self, uid: &Uid) -> Plan {
        let Some(node) = self.nodes.get(uid) else { return Plan::Nothing };
        if node.deletion.is_waiting() {
            return if node.is_held() { Plan::Nothing } else { Plan::Release(node.identity.clone()) };
        }
        if node.deletion.is_begun {
            return Plan::Nothing;
        }
        let node = node.clone_without_dependents();
        // An owner that is deleted, or waits for its dependents, sends a later event that leads to its dependents in
        // the graph. An owner that was found to be absent before it was observed has lost its dependents in the graph.
        let is_kept = |owner: &Owner| {
            let owner = self.known_owner(owner, &node.identity);
            owner.is_some_and(|owner| !owner.deletion.is_waiting() && owner.dependents.contains_key(uid))
        };
        if !node.is_virtual && node.owners.iter().all(is_kept) {
            return Plan::Nothing;
        }
        if node.is_virtual || node.version == 0 {
            return Plan::Look(node);
        }
        let has_dependents = self.nodes.get(uid).is_some_and(|node| !node.dependents.is_empty());
        for owner in &node.owners {
            let identity = owner.identity(&node.identity.namespace);
            let is_to_go = self.is_known_absent(&identity, &node.identity.namespace)
                || (!has_dependents && self.is_known_to_wait(owner, &node.identity));
            if !is_to_go {
                return Plan::Look(node);
            }
        }
        let policy = match node.deletion {
            Deletion { is_orphaning: true, .. } => PropagationPolicy::Orphan,
            Deletion { is_foreground: true, .. } => PropagationPolicy::Foreground,
            Deletion { .. } => PropagationPolicy::Background,
        };
        Plan::Delete { object: node.identity, version: node.version.to_string(), policy }
    }

    /// Whether a dependent of the object waits for its own dependents to be deleted, so that the two may form a circle.
    pub(super) fn may_be_circle(&self, uid: &Uid) -> bool {
        self.dependents(uid).iter().any(|one| self.nodes.get(one).is_some_and(|node| node.deletion.is_waiting()))
    }

    pub(super) fn has_dependents(&self, uid: &Uid) -> bool {
        self.nodes.get(uid).is_some_and(|node| !node.dependents.is_empty())
    }

    /// The identities of an object's dependents.
    pub(super) fn dependents_of(&self, uid: &Uid) -> Vec<Identity> {
        let dependents = self.dependents(uid).into_iter();
        dependents.filter_map(|one| self.nodes.get(&one).map(|node| node.identity.clone())).collect()
    }

    fn dependents(&self, uid: &Uid) -> Vec<Uid> {
        self.nodes.get(uid).map(|node| node.dependents.keys().cloned().collect()).unwrap_or_default()
    }

    fn owners(&mut self, metadata: &ObjectMeta) -> Box<[Owner]> {
        let references = metadata.owner_references.iter().flatten();
        let owner = |reference: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| Owner {
            kind: self.names.kind(&reference.api_version, &reference.kind),
            name: reference.name.as_str().into(),
            uid: Uid::from(reference.uid.as_str()),
            is_blocked: reference.block_owner_deletion == Some(true),
        };
        references.map(owner).collect()
    }

    /// The node of an owner that has been observed and matches the reference.
    fn known_owner(&self, owner: &Owner, dependent: &Identity) -> Option<&Node> {
        self.nodes.get(&owner.uid).filter(|node| {
            let is_near = !node.identity.is_namespaced() || node.identity.namespace == dependent.namespace;
            !node.is_virtual && is_near && owner.is(&node.identity)
        })
    }

    /// Whether an owner waits for its dependents to be deleted, and matches the reference.
    fn is_known_to_wait(&self, owner: &Owner, dependent: &Identity) -> bool {
        self.known_owner(owner, dependent).is_some_and(|node| node.deletion.is_waiting())
    }

    /// Sets the identity of a virtual node that turns out to be another object than assumed. Dependents whose
    /// references name the assumed object are processed.
    fn correct(&mut self, identity: &Identity, effects: &mut Effects) {
        let (_, others) = self.partition(identity);
        for uid in others {
            if let Some(node) = self.nodes.get(&uid)
                && identity.is_namespaced()
                && node.identity.namespace != identity.namespace
            {
                effects.invalid.extend(node.invalid_owner(&identity.uid));
            }
            effects.delete.push(uid);
        }
        if let Some(node) = self.nodes.get_mut(&identity.uid) {
            node.identity = identity.clone();
        }
    }

    fn set_owners(&mut self, uid: &Uid, owners: Box<[Owner]>, effects: &mut Effects) {
        let Some(node) = self.nodes.get_mut(uid) else { return };
        if node.owners == owners {
            return;
        }
        let known = std::mem::replace(&mut node.owners, owners.clone());
        let (before, after) = (blocking_by_uid(&known), blocking_by_uid(&owners));
        for (owner, was_blocked) in &before {
            let is_blocked = after.get(owner).copied();
            match is_blocked {
                None => self.unlink(uid, owner),
                Some(is_blocked) => self.link(uid, owner, is_blocked),
            }
            if *was_blocked && is_blocked != Some(true) && self.nodes.contains_key(*owner) {
                effects.delete.push((*owner).clone());
            }
        }
        // A reference that now names the same uid with another kind or name may be wrong.
        let same: BTreeSet<_> = known.iter().map(Owner::coordinates).collect();
        // A lost reference may have been the only one that kept the object.
        let mut is_doubtful = before.keys().any(|owner| !after.contains_key(*owner)) && !after.is_empty();
        for owner in owners.iter().filter(|owner| !same.contains(&owner.coordinates())) {
            is_doubtful |= self.add_owner(uid, owner, after.get(&owner.uid) == Some(&true), effects);
        }
        if is_doubtful {
            effects.delete.push(uid.clone());
        }
    }

    /// Adds a dependent to an owner. Returns whether the reference may be wrong, or the owner waits for its dependents
    /// to be deleted.
    fn add_owner(&mut self, uid: &Uid, owner: &Owner, is_blocked: bool, effects: &mut Effects) -> bool {
        let Some(dependent) = self.nodes.get(uid) else { return false };
        let namespace = Arc::clone(&dependent.identity.namespace);
        let Some(known) = self.nodes.get(&owner.uid) else {
            let node = Node { is_virtual: true, ..Node::new(owner.identity(&namespace)) };
            self.nodes.insert(owner.uid.clone(), node);
            self.link(uid, &owner.uid, is_blocked);
            effects.delete.push(owner.uid.clone());
            return false;
        };
        let is_elsewhere = known.identity.namespace != namespace;
        let is_doubtful = if known.identity.is_namespaced() && is_elsewhere {
            if !known.is_virtual {
                effects.invalid.extend(dependent.invalid_owner(&owner.uid));
            }
            true
        } else {
            // The scope of a virtual owner's kind is unknown: the node was made from the reference of an object without
            // a namespace, which cannot have a namespaced owner.
            !owner.is(&known.identity) || (is_elsewhere && known.is_virtual)
        };
        let is_to_go = known.deletion.is_waiting();
        self.link(uid, &owner.uid, is_blocked);
        is_doubtful || is_to_go
    }

    fn link(&mut self, dependent: &Uid, owner: &Uid, is_blocked: bool) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        let was_blocked = node.dependents.insert(dependent.clone(), is_blocked).unwrap_or_default();
        node.n_blocking = node.n_blocking.saturating_sub(usize::from(was_blocked)) + usize::from(is_blocked);
    }

    fn unlink(&mut self, dependent: &Uid, owner: &Uid) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        let was_blocked = node.dependents.remove(dependent).unwrap_or_default();
        node.n_blocking = node.n_blocking.saturating_sub(usize::from(was_blocked));
        if node.is_virtual && node.dependents.is_empty() && node.owners.is_empty() {
            self.nodes.remove(owner);
            self.unserved.remove(owner);
        }
    }

    fn remove(&mut self, identity: &Identity, effects: &mut Effects) {
        let uid = &identity.uid;
        let Some(node) = self.nodes.remove(uid) else { return };
        self.nodes.shrink_if_sparse();
        self.unserved.remove(uid);
        for owner in blocking_by_uid(&node.owners).keys() {
            self.unlink(uid, owner);
            let is_free = |node: &Node| node.deletion.is_waiting() && !node.is_held();
            if self.nodes.get(*owner).is_some_and(is_free) {
                effects.delete.push((*owner).clone());
            }
        }
        if !node.dependents.is_empty() {
            self.absent.insert(identity.clone());
            effects.delete.extend(node.dependents.into_keys());
        }
    }

    /// Queues dependents whose references name an owner that does not exist.
    fn abandon(&mut self, owner: &Identity, dependents: Vec<Uid>, effects: &mut Effects) {
        if !dependents.is_empty() {
            self.absent.insert(owner.clone());
            effects.delete.extend(dependents);
        }
    }

    /// The dependents whose references name exactly this object, and those whose references name its uid with another
    /// identity. A dependent with several references may be in both.
    fn partition(&self, owner: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for uid in self.dependents(&owner.uid) {
            let Some(node) = self.nodes.get(&uid) else { continue };
            if owner.is_namespaced() && owner.namespace != node.identity.namespace {
                others.push(uid);
                continue;
            }
            let mut references = node.owners.iter().filter(|reference| reference.uid == owner.uid);
            if references.clone().any(|reference| reference.is(owner)) {
                matching.push(uid.clone());
            }
            if references.any(|reference| !reference.is(owner)) {
                others.push(uid);
            }
        }
        (matching, others)
    }

    /// Another identity that the dependents' references give to the owner and that is not known to be absent: the one
    /// after `absent` in order, or the first.
    fn alternate(&mut self, dependents: &[Uid], absent: &Identity) -> Option<Identity> {
        let cluster = self.names.namespace("");
        let mut candidates = BTreeSet::new();
        for node in dependents.iter().filter_map(|uid| self.nodes.get(uid)) {
            for owner in node.owners.iter().filter(|owner| owner.uid == absent.uid) {
                let namespace = &node.identity.namespace;
                let is_same_kind = owner.kind == absent.kind;
                let is_of_cluster = !absent.is_namespaced() && is_same_kind;
                let candidate = owner.identity(if is_of_cluster { &cluster } else { namespace });
                if candidate != *absent {
                    candidates.insert(candidate);
                }
            }
        }
        candidates.retain(|candidate: &Identity| !self.is_known_absent(candidate, &candidate.namespace));
        candidates.iter().find(|candidate| **candidate > *absent).or_else(|| candidates.first()).cloned()
    }
}

/// The uids of owners, and whether a reference blocks the owner's deletion.
fn blocking_by_uid(owners: &[Owner]) -> BTreeMap<&Uid, bool> {
    let mut all = BTreeMap::new();
    for owner in owners {
        *all.entry(&owner.uid).or_default() |= owner.is_blocked;
    }
    all
}

/// The resourceVersion as a number, or 0 if the number would be written differently.
fn version(metadata: &ObjectMeta) -> u64 {
    let text = metadata.resource_version.as_deref().unwrap_or_default();
    text.parse().ok().filter(|number: &u64| number.to_string() == text).unwrap_or_default()
}

// === impl Node ===

impl Node {
    fn new(identity: Identity) -> Node {
        Node {
            identity,
            owners: Box::default(),
            dependents: BTreeMap::new(),
            n_blocking: 0,
            deletion: Deletion::default(),
            is_virtual: false,
            version: 0,
        }
    }

    pub(super) fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Whether a dependent blocks its foreground deletion. A reference to itself does not count: the object would never
    /// be deleted.
    fn is_held(&self) -> bool {
        let blocks_itself = self.dependents.get(&self.identity.uid).is_some_and(|blocks| *blocks);
        self.n_blocking > usize::from(blocks_itself)
    }

    /// Whether its dependents are to be orphaned.
    pub(super) fn is_to_orphan(&self) -> bool {
        self.deletion.is_to_orphan()
    }

    fn clone_without_dependents(&self) -> Node {
        let Node { identity, owners, deletion, is_virtual, version, .. } = self;
        Node {
            owners: owners.clone(),
            deletion: *deletion,
            is_virtual: *is_virtual,
            version: *version,
            ..Node::new(identity.clone())
        }
    }

    /// The report that an owner is in another namespace.
    fn invalid_owner(&self, owner: &Uid) -> Option<InvalidOwner> {
        let owner = self.owners.iter().find(|reference| reference.uid == *owner)?;
        Some(InvalidOwner { dependent: self.identity.clone(), owner: owner.identity(&self.identity.namespace) })
    }
}

// === impl Owner ===

impl Owner {
    /// The identity that the reference of a dependent in `namespace` stands for.
    fn identity(&self, namespace: &Arc<str>) -> Identity {
        let Owner { kind, name, uid, .. } = self;
        Identity { kind: Arc::clone(kind), namespace: Arc::clone(namespace), name: Arc::clone(name), uid: uid.clone() }
    }

    /// The fields of the reference that identify an object.
    fn coordinates(&self) -> (&Uid, &str, &str, &str) {
        (&self.uid, &self.kind.api_version, &self.kind.kind, &self.name)
    }

    /// Whether the reference matches the object, the namespace aside.
    fn is(&self, object: &Identity) -> bool {
        self.uid == object.uid && self.name == object.name && self.kind == object.kind
    }
}

// === impl Deletion ===

impl Deletion {
    fn of(metadata: &ObjectMeta) -> Deletion {
        let has = |finalizer: &str| metadata.finalizers.iter().flatten().any(|one| one == finalizer);
        Deletion {
            is_begun: metadata.deletion_timestamp.is_some(),
            is_foreground: has(FOREGROUND),
            is_orphaning: has(ORPHAN),
        }
    }

    fn is_to_orphan(self) -> bool {
        self.is_begun && self.is_orphaning
    }

    /// Whether the object waits for its dependents to be deleted.
    fn is_waiting(self) -> bool {
        self.is_begun && self.is_foreground && !self.is_orphaning
    }
}

#[cfg(test)]
mod tests;
