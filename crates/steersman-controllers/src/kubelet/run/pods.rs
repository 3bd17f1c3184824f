//! Pods on simulated nodes: admitted, stepped at changes and timers, and forgotten.

use crate::kubelet::node::resources;
use crate::kubelet::pod::{Input, PodState, status};
use crate::kubelet::run::state::{PodEntry, Run, Timer, Write, hash, version};
use crate::shared::sparse::Sparse;
use k8s_openapi::api::core::v1::Pod;
use std::net::IpAddr;
use std::sync::Arc;
use steersman::ObjectKey;
use steersman::cache::EventKind;

// === impl Run ===

impl Run {
    pub(super) fn pod_changed(&mut self, key: &ObjectKey, kind: EventKind) {
        let found = self.informers.pods.lister().get(key).ok();
        let Some(pod) = found else {
            self.forget_pod(key);
            return;
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if kind == EventKind::Deleted || self.pods.get(key).is_some_and(|entry| entry.state.uid != uid) {
            self.forget_pod(key);
        }
        let Some(name) = node_of(&pod) else {
            self.forget_pod(key);
            return;
        };
        if !self.pods.contains_key(key) {
            self.notice_away(name);
            let before = self.unmanaged_pods.remove(key);
            match self.nodes.get(name).filter(|node| !node.is_away && node.is_able) {
                Some(node) => self.admit(key, &pod, &Arc::clone(&node.name)),
                // The Pod is admitted when the node is ready for it.
                None => {
                    let ips = ips(&pod);
                    self.addresses.reserve(&ips);
                    self.unmanaged_pods.add(key.clone(), name, ips);
                }
            }
            self.addresses.release(&before);
        }
        self.notice_overwritten(key, &pod);
        self.step(key, Input::Wake);
    }

    /// Starts to simulate a Pod, unless the node rejects it for lack of room.
    pub(super) fn admit(&mut self, key: &ObjectKey, pod: &Pod, name: &Arc<str>) {
        let now = self.now();
        let mut state = PodState::new(pod, self.observed.behaviors(pod), now);
        let Some(node) = self.nodes.get_mut(name) else { return };
        let requests = resources::requests(&state.allocation.applied(pod));
        let is_new = state.is_new() && pod.metadata.deletion_timestamp.is_none();
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok().filter(|_| is_new);
        let rejection = object.and_then(|object| {
            let is_active = |other: &&ObjectKey| self.pods.get(*other).is_some_and(|entry| entry.state.is_active());
            let others =
                node.pods.iter().filter(is_active).filter_map(|other| self.informers.pods.lister().get(other).ok());
            let taken = others.flat_map(|other| resources::ports(&other));
            resources::rejection(&object, &node.used, pod, &requests).or_else(|| resources::port_conflict(taken, pod))
        });
        node.pods.insert(key.clone());
        if let Some(rejection) = rejection {
            let event = state.reject(&rejection.reason, &rejection.message);
            node.record(pod, event);
        }
        let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if state.ips.is_empty() && state.is_active() && !is_on_host {
            state.ips = node.addresses.take(&mut self.addresses);
        } else {
            if state.ips.is_empty() && state.is_active() {
                state.ips = vec![node.host];
            }
            self.addresses.reserve(&state.ips);
        }
        let requests = state.is_active().then_some(requests);
        if let Some(requests) = &requests {
            node.used.add(requests);
        }
        let entry = PodEntry {
            state,
            node: Arc::clone(name),
            requests,
            wakes: None,
            is_dirty: false,
            is_to_be_removed: false,
            write: Write::Idle,
            n_failures: 0,
            n_look_up_failures: 0,
            written: None,
            version: 0,
            stored: None,
        };
        self.pods.insert(key.clone(), entry);
    }

    pub(super) fn forget_pod(&mut self, key: &ObjectKey) {
        let Some(mut entry) = self.pods.remove(key) else {
            self.informers.written.forget(key);
            let ips = self.unmanaged_pods.remove(key);
            self.addresses.release(&ips);
            return;
        };
        self.pods.shrink_if_sparse();
        if let Some(at) = entry.wakes {
            self.timers.remove(&(at, Timer::Pod(key.clone())));
        }
        self.informers.written.forget(key);
        self.addresses.release(&entry.state.ips);
        if let Some(node) = self.nodes.get_mut(&entry.node) {
            node.pods.remove(key);
            node.deferred.remove(key);
            if node.release(&mut entry) {
                self.with_room.push(Arc::clone(&node.name));
            }
        }
    }

    /// Writes the status again if somebody else has changed it since the node wrote it.
    pub(super) fn notice_overwritten(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let version = version(pod.metadata.resource_version.as_deref());
        if entry.write == Write::UnderWay || version < Some(entry.version) {
            return;
        }
        self.informers.written.forget(key);
        if entry.version == 0 {
            return;
        }
        let stored = hash(&status::Owned::of(pod));
        if entry.stored.is_some_and(|known| known != stored) || !entry.state.agrees_with(pod) {
            entry.written = None;
        }
    }

    /// Retries deferred resizes on nodes with freed resources: by priority, then by the time that they have waited.
    pub(super) fn retry_resizes(&mut self) {
        while let Some(name) = self.with_room.pop() {
            let Some(node) = self.nodes.get(&name) else { continue };
            let pods = self.informers.pods.lister();
            let rank = |key: &ObjectKey| {
                let priority = pods.get(key).ok().and_then(|pod| pod.spec.as_ref()?.priority).unwrap_or_default();
                let since = self.pods.get(key).and_then(|entry| entry.state.allocation.deferred_since());
                (std::cmp::Reverse(priority), since)
            };
            let mut keys: Vec<ObjectKey> = node.deferred.iter().cloned().collect();
            keys.sort_by_cached_key(rank);
            for key in keys {
                self.step(&key, Input::Wake);
            }
        }
    }

    pub(super) fn step(&mut self, key: &ObjectKey, input: Input) {
        let now = self.now();
        let Ok(pod) = self.informers.pods.lister().get(key) else { return };
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Some(node) = self.nodes.get_mut(&entry.node) else { return };
        if node.is_away || pod.metadata.uid.as_deref() != Some(&*entry.state.uid) {
            // The lookup is not repeated when the node is back.
            if let Input::References(found) = input {
                entry.state.learn(found);
            }
            return;
        }
        if let Some(object) = self.informers.nodes.lister().get(&ObjectKey::cluster(&entry.node)).ok()
            && node.resize(key, entry, &pod, &object, now)
        {
            self.with_room.push(Arc::clone(&entry.node));
        }
        entry.state.behave(self.observed.behaviors(&pod));
        let effects = entry.state.step(&pod, &mut node.images, now, input);
        for event in effects.events {
            node.record(&pod, event);
        }
        if !entry.state.is_active() {
            node.deferred.remove(key);
            if node.release(entry) {
                self.with_room.push(Arc::clone(&entry.node));
            }
        }
        if effects.asks {
            self.look_ups.push(key.clone());
        }
        if effects.wakes != entry.wakes {
            if let Some(at) = entry.wakes.take() {
                self.timers.remove(&(at, Timer::Pod(key.clone())));
            }
            if let Some(at) = effects.wakes {
                self.timers.insert((at, Timer::Pod(key.clone())));
            }
            entry.wakes = effects.wakes;
        }
        let status = status::of(&mut entry.state, &pod, node.host, now);
        entry.is_to_be_removed |= effects.removes;
        let is_new = entry.written != Some(hash(&status));
        entry.is_dirty |= is_new;
        if is_new || entry.is_to_be_removed {
            self.enqueue(key);
        }
    }
}

/// The node that a Pod is bound to.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The addresses in the status of a Pod.
pub(super) fn ips(pod: &Pod) -> Vec<IpAddr> {
    let known = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    known.filter_map(|one| one.ip.parse().ok()).collect()
}
