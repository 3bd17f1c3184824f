//! The outcomes of requests, and of claims that assumed Pods wait for.

use crate::scheduler::queue::Entry;
use crate::scheduler::state::{Effect, PodRef, State, WaitingForVolumes};
use tokio::time::Instant;

impl State {
    /// Handles the outcome of a binding. A success needs no action: the informer will show the Pod on its node.
    pub(crate) fn bound(&mut self, pod: &PodRef, answer: Result<(), String>, now: Instant) {
        if let Err(why) = answer {
            self.unplace(pod, why, now);
        }
    }

    /// Handles the outcome of the writes for a Pod's claims.
    pub(crate) fn volumes_written(&mut self, pod: &PodRef, answer: Result<(), String>, now: Instant) {
        match answer {
            Err(why) => self.volumes_failed(pod, &why, now),
            Ok(()) => {
                if let Some(waiting) = self.volumes.get_mut(&pod.key).filter(|waiting| waiting.pod.uid == pod.uid) {
                    waiting.is_written = true;
                }
            }
        }
        self.check_volumes(now);
    }

    /// Records that the requests about a Pod have ended, so that it may be tried again.
    pub(crate) fn finished(&mut self, pod: &PodRef, now: Instant) {
        self.queue.set_idle(&pod.key, &pod.uid, now);
    }

    /// Handles the outcome of a preemption. If not all Pods could be deleted, the Pod is tried again.
    pub(crate) fn preempted(&mut self, pod: &PodRef, deleted: &[PodRef], answer: Result<(), String>, now: Instant) {
        // The next attempt may come before the events of the deletions, and must wait for the room that they make.
        for victim in deleted {
            self.cluster.set_preempted(&victim.key, &victim.uid);
        }
        if let Err(error) = answer {
            tracing::warn!(pod = %pod.key, error, "cannot make room for the pod");
            self.queue.activate(&pod.key, now);
        }
        self.finished(pod, now);
    }

    /// Binds the Pods whose claims are bound by now, and gives up those whose claims will not be.
    pub(super) fn check_volumes(&mut self, now: Instant) {
        while !self.volumes.is_empty() {
            let mut failed: Vec<(PodRef, String)> = Vec::new();
            let mut bound: Vec<PodRef> = Vec::new();
            for waiting in self.volumes.values().filter(|waiting| waiting.is_written) {
                let outcome = match self.cluster.node(&waiting.node) {
                    None => Err(format!("failed to get node \"{0}\": node \"{0}\" not found", waiting.node)),
                    Some(node) => self.cluster.volumes.is_carried_out(&waiting.plan, node),
                };
                match outcome {
                    Ok(false) => {}
                    Ok(true) => bound.push(waiting.pod.clone()),
                    Err(why) => failed.push((waiting.pod.clone(), why)),
                }
            }
            for pod in bound {
                if let Some(waiting) = self.volumes.remove(&pod.key) {
                    let WaitingForVolumes { node, scheduler, binder, .. } = waiting;
                    self.effects.push_back(Effect::Bind { pod, node, scheduler, binder });
                }
            }
            if failed.is_empty() {
                return;
            }
            // A volume that one Pod gives up may belong to a claim that another Pod uses too.
            for (pod, why) in failed {
                self.volumes_failed(&pod, &format!("binding volumes: {why}"), now);
            }
        }
    }

    pub(super) fn expire_volumes(&mut self, now: Instant) {
        let expired = self.volumes.values().filter(|waiting| waiting.deadline <= now);
        let expired: Vec<PodRef> = expired.map(|waiting| waiting.pod.clone()).collect();
        if expired.is_empty() {
            return;
        }
        for pod in expired {
            self.volumes_failed(&pod, "binding volumes: context deadline exceeded", now);
        }
        self.check_volumes(now);
    }

    fn volumes_failed(&mut self, pod: &PodRef, why: &str, now: Instant) {
        // A later Pod of the same name may wait for its own volumes.
        if let Some(waiting) = self.volumes.get(&pod.key).filter(|waiting| waiting.pod.uid == pod.uid) {
            self.cluster.volumes.forget(&waiting.plan);
            self.volumes.remove(&pod.key);
        }
        self.unplace(pod, format!("running PreBind plugin \"VolumeBinding\": {why}"), now);
    }

    /// Handles a Pod that was not bound to its node after all.
    fn unplace(&mut self, pod: &PodRef, why: String, now: Instant) {
        if self.cluster.is_assumed(&pod.key, &pod.uid) {
            self.release(&pod.key, now);
        }
        let is_waiting = |entry: &Entry| entry.pending.pod.uid == pod.uid && entry.is_binding();
        if self.queue.get(&pod.key).is_some_and(is_waiting) {
            self.fail(pod, why, now);
        }
    }
}
