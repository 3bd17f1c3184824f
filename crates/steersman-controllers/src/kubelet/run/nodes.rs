//! Simulated nodes: their registration, their Leases and statuses, their resources, and their end.

use crate::identity::Identity;
use crate::kubelet::node::addresses::PodAddresses;
use crate::kubelet::node::images::Images;
use crate::kubelet::node::resources::{self, Used};
use crate::kubelet::pod::event::{Now, PodEvent};
use crate::kubelet::requests;
use crate::kubelet::run::state::{Answer, NodeEntry, NodeWork, PodEntry, Run, Timer, version};
use crate::kubelet::stage::seed::seed;
use crate::kubelet::{Simulation, node};
use hashbrown::HashSet;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::Resource;
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use steersman::cache::EventKind;
use steersman::events::{EventRecorder, EventType, NewEvent};
use tokio::time::Instant;

// === impl Run ===

impl Run {
    /// Handles a change of a node by others that arrived while a request about the node was in flight. The request
    /// wrote the version `written`.
    pub(super) fn look_again(&mut self, name: &str, written: Option<u64>) {
        let known = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        if known.and_then(|node| version(node.metadata.resource_version.as_deref())) > written {
            self.node_changed(name, EventKind::Updated);
        }
    }

    pub(super) fn register(&mut self, index: usize) {
        let name = Simulation::name(index);
        let client = (self.simulation.client_of)(Identity::node(&name));
        let object = node::registered(&name, index);
        self.node_work.begin();
        self.requests.spawn(async move { Answer::Registered(index, requests::register(client, object).await) });
    }

    /// Handles a node that has gone away before its event has arrived, so that no Pod that was created later starts on
    /// it.
    pub(super) fn notice_away(&mut self, name: &str) {
        let is_known_as_there = self.nodes.get(name).is_some_and(|node| !node.is_away);
        let found = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        if is_known_as_there && found.is_some_and(|node| self.observed.is_away(&node)) {
            self.node_changed(name, EventKind::Updated);
        }
    }

    pub(super) fn node_changed(&mut self, name: &str, kind: EventKind) {
        let found = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let found = found.filter(|node| kind != EventKind::Deleted && node::is_simulated(node));
        let Some(object) = found else {
            self.forget_node(name);
            return;
        };
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if self.nodes.get(name).is_some_and(|known| known.uid != uid) {
            self.forget_node(name);
        }
        if !self.nodes.contains_key(name) {
            self.claim(name, &object);
        }
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let is_away = self.observed.is_away(&object);
        let labels = labels_of(&object);
        let is_relabeled = std::mem::replace(&mut entry.labels, labels) != labels;
        let is_back = std::mem::replace(&mut entry.is_away, is_away) && !is_away;
        let is_able = object.status.as_ref().is_some_and(|status| status.allocatable.is_some());
        let is_newly_able = !std::mem::replace(&mut entry.is_able, is_able) && is_able;
        if is_away {
            return;
        }
        let (name, is_ready) = (Arc::clone(&entry.name), node::is_known_as_ready(&object));
        if is_back {
            self.renew(&name);
        }
        if is_back || !is_ready {
            self.post(&name);
        } else if node::without_taint(&object).is_some()
            && let Some(entry) = self.nodes.get_mut(&name)
            && !std::mem::replace(&mut entry.is_untainting, true)
        {
            self.node_work.push(NodeWork::Untaint(Arc::clone(&name)));
        }
        if is_back || is_newly_able || (is_relabeled && self.observed.stages().read_nodes()) {
            let mut keys = self.unmanaged_pods.on(&name);
            keys.extend(self.nodes.get(&name).into_iter().flat_map(|node| node.pods.iter().cloned()));
            for key in keys {
                self.pod_changed(&key, EventKind::Updated);
            }
        }
    }

    /// Removes the taint of a new node, if it still has it.
    pub(super) fn untaint(&mut self, name: &Arc<str>) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(patch) = object.and_then(|object| node::without_taint(&object)) else {
            entry.is_untainting = false;
            return;
        };
        let (client, name) = (self.controller.clone(), Arc::clone(name));
        self.node_work.begin();
        self.requests.spawn(async move {
            let outcome = requests::write_taints(client, name.to_string(), patch).await;
            Answer::Untainted(name, outcome)
        });
    }

    /// Starts to simulate a node, with the Pods bound to it.
    pub(super) fn claim(&mut self, name: &str, object: &Node) {
        let name: Arc<str> = Arc::from(name);
        let client = (self.simulation.client_of)(Identity::node(&name));
        let ranges = object.spec.as_ref().map(|spec| {
            let all = spec.pod_cidrs.as_deref().unwrap_or_default().iter().chain(&spec.pod_cidr);
            all.filter_map(|range| range.parse().ok()).collect::<Vec<ipnet::IpNet>>()
        });
        let host = match node::address(object) {
            Some(host) => host,
            None => self.addresses.take_host(),
        };
        self.addresses.reserve_host(host);
        let known = self.unmanaged_pods.ips_on(&name);
        let entry = NodeEntry {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            events: EventRecorder::on_host(client.clone(), "kubelet", &name),
            client,
            host,
            addresses: PodAddresses::new(ranges.unwrap_or_default(), known, &mut self.addresses),
            images: Images::default(),
            used: Used::default(),
            pods: HashSet::new(),
            deferred: HashSet::new(),
            labels: labels_of(object),
            is_away: self.observed.is_away(object),
            is_posting: false,
            is_renewing: false,
            is_untainting: false,
            has_begun: false,
            is_able: false,
            lease_at: None,
            status_at: None,
            name: Arc::clone(&name),
        };
        let is_away = entry.is_away;
        self.nodes.insert(Arc::clone(&name), entry);
        if !is_away {
            self.post(&name);
            self.renew(&name);
        }
    }

    /// Stops simulating a node that is gone or not to be simulated any more, and its Pods.
    pub(super) fn forget_node(&mut self, name: &str) {
        let Some(entry) = self.nodes.remove(name) else { return };
        if let Some(at) = entry.lease_at {
            self.timers.remove(&(at, Timer::Lease(Arc::clone(&entry.name))));
        }
        if let Some(at) = entry.status_at {
            self.timers.remove(&(at, Timer::NodeStatus(Arc::clone(&entry.name))));
        }
        for key in entry.pods {
            self.informers.written.forget(&key);
            let Some(pod) = self.pods.remove(&key) else { continue };
            if let Some(at) = pod.wakes {
                self.timers.remove(&(at, Timer::Pod(key.clone())));
            }
            // The addresses of its Pods stay reserved.
            self.unmanaged_pods.add(key, name, pod.state.ips);
        }
        entry.addresses.give_back(&mut self.addresses);
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        if object.and_then(|object| node::address(&object)) != Some(entry.host) {
            self.addresses.release_host(entry.host);
        }
    }

    /// Posts the status of a node, and schedules the next time.
    pub(super) fn post(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.is_away {
            entry.status_at = None;
            return;
        }
        let at = now.instant + spread(name, node::STATUS_PERIOD, entry.status_at);
        if let Some(before) = entry.status_at.replace(at) {
            self.timers.remove(&(before, Timer::NodeStatus(Arc::clone(name))));
        }
        self.timers.insert((at, Timer::NodeStatus(Arc::clone(name))));
        if !std::mem::replace(&mut entry.is_posting, true) {
            self.node_work.push(NodeWork::Post(Arc::clone(name)));
        }
    }

    pub(super) fn write_node_status(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(object) = object.filter(|_| !entry.is_away) else {
            entry.is_posting = false;
            return;
        };
        let patch = node::status(&object, entry.host, &entry.images, now.time);
        let (client, name) = (entry.client.clone(), Arc::clone(name));
        self.node_work.begin();
        self.requests.spawn(async move {
            let outcome = requests::write_node_status(client, name.to_string(), patch).await;
            Answer::NodeStatus(name, outcome)
        });
    }

    /// Renews the Lease of a node, and schedules the next time.
    pub(super) fn renew(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.is_away {
            entry.lease_at = None;
            return;
        }
        let at = now.instant + spread(name, node::LEASE_PERIOD, entry.lease_at);
        if let Some(before) = entry.lease_at.replace(at) {
            self.timers.remove(&(before, Timer::Lease(Arc::clone(name))));
        }
        self.timers.insert((at, Timer::Lease(Arc::clone(name))));
        if !std::mem::replace(&mut entry.is_renewing, true) {
            self.leases.push(Arc::clone(name));
        }
    }

    pub(super) fn write_lease(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(object) = object.filter(|_| !entry.is_away) else {
            entry.is_renewing = false;
            return;
        };
        self.leases.begin();
        let (client, name, lease) = (entry.client.clone(), Arc::clone(name), node::lease(&object, now.time));
        self.requests.spawn(async move {
            let outcome = requests::renew(client, lease, name.to_string(), now.time).await;
            Answer::Lease(name, outcome)
        });
    }
}

// === impl NodeEntry ===

impl NodeEntry {
    pub(super) fn record(&self, pod: &Pod, event: PodEvent) {
        let PodEvent { event_type, reason, message, field_path } = event;
        let mut reference = pod.object_ref(&());
        reference.resource_version.clone_from(&pod.metadata.resource_version);
        reference.field_path = field_path;
        self.events.record(NewEvent::new(reference, event_type, &reason, &message));
    }

    pub(super) fn say_first(&self) {
        // As kubelets do, which know the name of their node at this time, but not its uid.
        let name = Some(self.name.to_string());
        let reference = ObjectReference {
            kind: Some("Node".to_owned()),
            name: name.clone(),
            uid: name,
            ..ObjectReference::default()
        };
        for (reason, message) in node::first_events(&self.name) {
            self.events.record(NewEvent::new(reference.clone(), EventType::Normal, reason, &message));
        }
    }

    /// Frees the resources of a Pod that has terminated. Returns whether deferred resizes wait for that.
    pub(super) fn release(&mut self, entry: &mut PodEntry) -> bool {
        let Some(requests) = entry.requests.take() else { return false };
        self.used.subtract(&requests);
        !self.deferred.is_empty()
    }

    /// Allocates the resources that a Pod's spec asks for, if the node has room, and defers the resize otherwise.
    /// Returns whether other resizes may have room now.
    pub(super) fn resize(&mut self, key: &ObjectKey, entry: &mut PodEntry, pod: &Pod, object: &Node, now: Now) -> bool {
        let Some(given) = &mut entry.requests else { return false };
        let allocation = &mut entry.state.allocation;
        if !allocation.differs(pod) {
            allocation.withdraw();
            self.deferred.remove(key);
            return false;
        }
        let asked = resources::requests(pod);
        self.used.subtract(given);
        let event = match resources::rejection(object, &self.used, pod, &asked) {
            None => {
                self.deferred.remove(key);
                *given = asked;
                Some(allocation.allocate(pod, now))
            }
            Some(rejection) => {
                self.deferred.insert(key.clone());
                allocation.defer(pod, &rejection.message, now)
            }
        };
        self.used.add(given);
        event.into_iter().for_each(|event| self.record(pod, event));
        !allocation.is_deferred() && !self.deferred.is_empty()
    }
}

/// The time until a periodic action is due again. The first time is the node's own within the period, so that nodes
/// that started together do not act together forever.
pub(super) fn spread(name: &str, period: Duration, before: Option<Instant>) -> Duration {
    match before {
        Some(_) => period,
        None => (period / 1024).saturating_mul(u32::try_from(seed(name) % 1024).unwrap_or_default().saturating_add(1)),
    }
}

fn labels_of(node: &Node) -> u64 {
    seed(&node.metadata.labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_begin_together_are_spread_over_the_period() {
        let mut tenths = [0; 11];
        for name in Simulation::names(1_000) {
            let wait = spread(&name, node::LEASE_PERIOD, None);
            assert!(Duration::ZERO < wait && wait <= node::LEASE_PERIOD);
            tenths[usize::try_from(wait.as_secs()).unwrap()] += 1;
            assert_eq!(spread(&name, node::LEASE_PERIOD, Some(Instant::now())), node::LEASE_PERIOD);
        }
        assert!(tenths.iter().take(10).all(|n| (50..200).contains(n)), "{tenths:?}");
    }
}
