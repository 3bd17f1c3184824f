//! Requests about Pods: references are looked up, statuses are written, and Pods are removed. Failed requests are
//! retried.

use crate::kubelet::pod::references::{self, Found};
use crate::kubelet::pod::{self, Input, status};
use crate::kubelet::requests::{self, Outcome};
use crate::kubelet::run::state::{Answer, NodeWork, Run, Timer, Write, hash};
use crate::kubelet::stage::duration;
use crate::shared::refusal;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use steersman::cache::EventKind;
use tokio::time::Instant;

/// The first and the longest pause before a failed write is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

// === impl Run ===

impl Run {
    pub(super) fn enqueue(&mut self, key: &ObjectKey) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let is_wanted = entry.is_dirty || entry.is_to_be_removed;
        if is_wanted && entry.write == Write::Idle {
            entry.write = Write::Queued;
            self.writes.push(key.clone());
        }
    }

    /// Sends waiting requests, as far as the limits allow.
    pub(super) fn send(&mut self) {
        while let Some(name) = self.leases.next() {
            self.write_lease(&name);
        }
        while let Some(key) = self.look_ups.next() {
            self.look_up(key);
        }
        while let Some(work) = self.node_work.next() {
            match work {
                NodeWork::Post(name) => self.write_node_status(&name),
                NodeWork::Register(index) => self.register(index),
                NodeWork::Untaint(name) => self.untaint(&name),
            }
        }
        while let Some(key) = self.writes.next() {
            self.write(key);
        }
    }

    pub(super) fn look_up(&mut self, key: ObjectKey) {
        let Some(entry) = self.pods.get(&key) else { return };
        let Some(node) = self.nodes.get(&entry.node) else { return };
        let Ok(pod) = self.informers.pods.lister().get(&key) else { return };
        let (client, wanted) = (node.client.clone(), references::wanted(&pod));
        let (namespace, uid) = (pod::namespace(&pod).to_owned(), entry.state.uid.clone());
        self.look_ups.begin();
        self.requests.spawn(async move {
            let found = requests::look_up(client, namespace, wanted).await;
            Answer::LookedUp(key, uid, found)
        });
    }

    pub(super) fn looked_up(&mut self, key: &ObjectKey, uid: &str, found: Result<Found, kube::Error>) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.state.uid == uid) else { return };
        match found {
            Ok(found) => {
                entry.n_look_up_failures = 0;
                self.step(key, Input::References(found));
            }
            Err(error) => {
                let wait = back_off(&mut entry.n_look_up_failures);
                let error = refusal::message(&error);
                tracing::warn!(pod = %key, error, wait = duration::format(wait), "what a simulated pod refers to cannot be read");
                self.timers.insert((Instant::now() + wait, Timer::LookUp(key.clone())));
            }
        }
    }

    pub(super) fn write(&mut self, key: ObjectKey) {
        let now = self.now();
        let Some(entry) = self.pods.get_mut(&key) else { return };
        entry.write = Write::Idle;
        let Some(node) = self.nodes.get(&entry.node).filter(|node| !node.is_away) else { return };
        let Ok(pod) = self.informers.pods.lister().get(&key) else { return };
        let uid = entry.state.uid.clone();
        if pod.metadata.uid.as_deref() != Some(&*uid) {
            return;
        }
        let (client, namespace, name) =
            (node.client.clone(), pod::namespace(&pod).to_owned(), pod::name(&pod).to_owned());
        if std::mem::take(&mut entry.is_dirty) {
            let mut status = status::of(&mut entry.state, &pod, node.host, now);
            entry.written = Some(hash(&status));
            keep_scheduled(&mut status, &pod);
            let dropped = status::dropped_conditions(&entry.state, &status);
            let status = Arc::new(status);
            self.informers.written.keep(&key, &uid, Arc::clone(&status));
            entry.write = Write::UnderWay;
            self.writes.begin();
            self.requests.spawn(async move {
                let (outcome, written) =
                    requests::write_pod_status(client, namespace, name, uid.clone(), &status, dropped).await;
                let stored = written.map(|pod| hash(&status::Owned::of(&pod)));
                Answer::Pod(key, uid, outcome, stored)
            });
        } else if entry.is_to_be_removed {
            entry.is_to_be_removed = false;
            entry.write = Write::UnderWay;
            self.writes.begin();
            self.requests.spawn(async move {
                let outcome = requests::remove_pod(client, namespace, name, uid.clone()).await;
                Answer::Pod(key, uid, outcome, None)
            });
        }
    }

    pub(super) fn wrote(&mut self, key: &ObjectKey, uid: &str, outcome: Outcome, stored: Option<u64>) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.state.uid == uid) else { return };
        entry.write = Write::Idle;
        match outcome {
            Outcome::Done(version) => {
                entry.n_failures = 0;
                entry.version = version.unwrap_or(entry.version).max(entry.version);
                entry.stored = stored.or(entry.stored);
                self.enqueue(key);
                // Changes by others that arrived during the request were skipped.
                self.pod_changed(key, EventKind::Updated);
            }
            // Either a deletion event follows, or the server was asked at a bad moment, and the write is still due.
            Outcome::Gone => {
                entry.is_dirty = true;
                entry.is_to_be_removed |= entry.state.is_removed();
                self.timers.insert((Instant::now() + RETRY.0, Timer::Write(key.clone())));
            }
            Outcome::Failed(error) => {
                let wait = back_off(&mut entry.n_failures);
                entry.is_dirty = true;
                entry.is_to_be_removed |= entry.state.is_removed();
                entry.written = None;
                let (error, after) = (refusal::message(&error), duration::format(wait));
                // Later failures of the same Pod add nothing new.
                if entry.n_failures == 1 {
                    tracing::warn!(pod = %key, error, "the status of a simulated pod cannot be written: trying again until it can");
                } else {
                    tracing::debug!(pod = %key, error, after, "the status of a simulated pod cannot be written");
                }
                self.timers.insert((Instant::now() + wait, Timer::Write(key.clone())));
            }
        }
    }
}

/// The pause before a failed request is retried, longer each time.
fn back_off(n_failures: &mut u32) -> Duration {
    let wait = RETRY.0.saturating_mul(2_u32.saturating_pow(*n_failures)).min(RETRY.1);
    *n_failures = n_failures.saturating_add(1).min(16);
    wait
}

/// Keeps the condition `PodScheduled` as it is, if the server has it as true.
fn keep_scheduled(status: &mut PodStatus, pod: &Pod) {
    let known = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if known.into_iter().any(|one| one.type_ == "PodScheduled" && one.status == "True")
        && let Some(conditions) = &mut status.conditions
    {
        conditions.retain(|one| one.type_ != "PodScheduled");
    }
}
