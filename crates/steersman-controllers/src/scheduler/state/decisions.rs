//! Chooses the next Pod, and turns decisions into requests.

use crate::scheduler::cluster::Cluster;
use crate::scheduler::cluster::node::Node;
use crate::scheduler::cluster::pod::{Pending, Scheduled};
use crate::scheduler::configuration::SpreadDefaults;
use crate::scheduler::cycle::preempt::{self, Candidate, Cause, NoPreemption, Nomination, Preemption};
use crate::scheduler::cycle::{Choice, Cycle, Decision, Diagnosis, PreFilterState};
use crate::scheduler::hints::Event;
use crate::scheduler::plugins::filters::{Plugin, PluginSet};
use crate::scheduler::queue::Attempt;
use crate::scheduler::state::extension::Search;
use crate::scheduler::state::{Effect, PodRef, Reason, Report, State, WaitingForVolumes, WasFalse};
use crate::shared::labels::Selector;
use hashbrown::HashMap;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::sync::Arc;
use steersman::ObjectKey;
use tokio::time::Instant;

const NO_CLAIMS: &str = "no new claims to deallocate";
const NO_NODES: &str = "no nodes available to schedule pods";

impl State {
    /// The next request to send; `None` if there is none before [`State::next_wake`] or the next event.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Effect> {
        self.expire_volumes(now);
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if self.extending.is_some() {
                return None;
            }
            let pending = self.queue.pop(now)?;
            let pod = PodRef::of(&pending.pod);
            if pending.pod.is_deleting {
                return Some(Effect::Skip { pod, scheduler: Arc::clone(&pending.profile.name) });
            }
            self.attempt(&pending, now);
        }
    }

    /// Whether [`State::next`] would return a request or try a Pod now.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        !self.effects.is_empty() || (self.extending.is_none() && self.queue.is_ready(now))
    }

    /// When there is work without any event.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let volumes = self.volumes.values().map(|waiting| waiting.deadline).min();
        let queue = self.queue.next_wake().filter(|_| self.extending.is_none());
        volumes.into_iter().chain(queue).min()
    }

    /// Tries to find a node for a Pod.
    fn attempt(&mut self, pending: &Arc<Pending>, now: Instant) {
        let prepared = self.prepare(pending);
        if self.cluster.n_nodes() == 0 {
            let pending = &prepared.pending;
            self.reject(pending, NO_NODES.to_owned(), Plugin::NoNodes.into(), Some(Nomination::Clear), now);
            return;
        }
        self.search(&prepared, Search::Nominated, Diagnosis::default(), now);
    }

    /// Completes a Pod by what depends on other objects than itself.
    pub(super) fn prepare(&mut self, pending: &Arc<Pending>) -> Prepared {
        let nominated = self.queue.get(&pending.pod.key).and_then(|entry| entry.nominated.clone());
        let mut pending = Arc::clone(pending);
        if pending.nominated != nominated {
            // The informer has not delivered the nomination yet.
            pending = Arc::new(pending.with_nominated(nominated));
        }
        let selector = if pending.spread.is_empty() {
            self.cluster.default_selector(&pending)
        } else {
            Arc::new(Selector::Nothing)
        };
        match &pending.profile.spread {
            SpreadDefaults::List(defaults) if pending.spread.is_empty() && !selector.is_empty() => {
                pending = Arc::new(pending.with_spread(defaults, &selector));
            }
            SpreadDefaults::List(_) | SpreadDefaults::System => {}
        }
        Prepared { pending, selector }
    }

    /// Searches the nodes: with [`Search::Nominated`] first the one on which room was made for the Pod, and all others if
    /// that is not feasible.
    pub(super) fn search(&mut self, prepared: &Prepared, first: Search, mut diagnosis: Diagnosis, now: Instant) {
        let pending = &prepared.pending;
        diagnosis.n_nodes = self.cluster.n_nodes();
        let outcome = match Cycle::new(&self.cluster, &self.nominations, pending) {
            Err(diagnosis) => prepared.without_cycle(&self.cluster, diagnosis),
            Ok((cycle, around)) => {
                let nominated = match first {
                    Search::All => None,
                    Search::Nominated => cycle.find_nominated(&around, &mut diagnosis),
                };
                let (of, found) = match nominated {
                    Some(node) => (Search::Nominated, Ok(vec![node])),
                    None => (Search::All, cycle.find_feasible(&around, &mut self.start, &mut diagnosis)),
                };
                match found {
                    Err(why) => Outcome::Failed(why),
                    Ok(feasible) if pending.asks_about_nodes(feasible.len()) => {
                        let names = feasible.iter().map(|node| Arc::clone(&node.name)).collect();
                        self.ask_about_nodes(pending, names, of, diagnosis);
                        return;
                    }
                    Ok(feasible) => {
                        let none = HashMap::new();
                        prepared.choose(&cycle, &around, &feasible, &none, diagnosis, &mut self.random)
                    }
                }
            }
        };
        self.conclude(pending, outcome, now);
    }

    /// Acts on the outcome of a decision.
    pub(super) fn conclude(&mut self, pending: &Arc<Pending>, outcome: Outcome, now: Instant) {
        if let Outcome::Candidates(diagnosis, candidates) = outcome {
            self.ask_about_victims(pending, candidates, diagnosis);
            return;
        }
        let extending = self.extending.take();
        match outcome {
            Outcome::Candidates(..) => {}
            Outcome::Failed(why) => self.fail(&PodRef::of(&pending.pod), why, now),
            Outcome::Found(choice) => self.place(pending, choice, now),
            Outcome::Unschedulable(diagnosis, Ok(preemption)) => {
                self.make_way(pending, &diagnosis, preemption, now);
            }
            Outcome::Unschedulable(diagnosis, Err(NoPreemption { message, nomination, cause })) => {
                // The messages of the plugins that run after the filters. A failure takes the place of the others.
                let deallocates = pending.profile.deallocates && cause == Cause::Rejection;
                let claims = deallocates.then(|| NO_CLAIMS.to_owned());
                let after: Vec<String> = claims.into_iter().chain(message).collect();
                let message = match after.is_empty() {
                    true => diagnosis.message(),
                    false => format!("{} {}", diagnosis.message(), after.join(", ")),
                };
                self.reject(pending, message, diagnosis.plugins, Some(nomination), now);
            }
        }
        if extending.is_some_and(|extending| extending.has_missed_event) {
            self.queue.activate(&pending.pod.key, now);
        }
    }

    /// Assumes a Pod on the node that was found.
    fn place(&mut self, pending: &Arc<Pending>, Choice { node, volumes }: Choice, now: Instant) {
        let (pod, scheduler) = (PodRef::of(&pending.pod), Arc::clone(&pending.profile.name));
        let binder = pending.binder().cloned();
        self.cluster.assume(&pending.pod, &node);
        self.set_nominated(&pending.pod, None);
        if volumes.is_empty() {
            self.effects.push_back(Effect::Bind { pod, node, scheduler, binder });
            return;
        }
        self.cluster.volumes.assume(&volumes, &node);
        let waiting = WaitingForVolumes {
            pod: pod.clone(),
            node: Arc::clone(&node),
            scheduler,
            binder,
            plan: volumes.clone(),
            deadline: now + pending.profile.volumes_max,
            is_written: false,
        };
        self.volumes.insert(pod.key.clone(), waiting);
        self.effects.push_back(Effect::BindVolumes { pod, node, plan: volumes });
    }

    /// Starts a preemption.
    fn make_way(&mut self, pending: &Arc<Pending>, diagnosis: &Diagnosis, preemption: Preemption, now: Instant) {
        let Preemption { node, victims } = preemption;
        let pod = PodRef::of(&pending.pod);
        let lower = self.nominations.get(&node).into_iter().flatten();
        let lower = lower.filter(|other| other.priority < pending.pod.priority);
        let denominated: Vec<PodRef> = lower.map(|other| PodRef::of(other)).collect();
        for other in &denominated {
            self.queue.nominate(&other.key, None);
            self.clear_nomination(&other.uid);
            self.queue.activate(&other.key, now);
        }
        self.queue.nominate(&pod.key, Some(&node));
        self.set_nominated(&pending.pod, Some(&node));
        self.reject(pending, diagnosis.message(), diagnosis.plugins, None, now);
        let victims: Vec<PodRef> = victims.iter().filter(|pod| !pod.is_deleting).map(|pod| PodRef::of(pod)).collect();
        if !victims.is_empty() || !denominated.is_empty() {
            self.queue.set_busy(&pod.key);
            let scheduler = Arc::clone(&pending.profile.name);
            self.effects.push_back(Effect::Preempt { pod, node, victims, denominated, scheduler });
        }
    }

    /// Puts a Pod back to wait for an event, and reports why. Without `nomination`, the nominated node of the queue is
    /// written.
    fn reject(
        &mut self,
        pending: &Pending,
        message: String,
        plugins: PluginSet,
        nomination: Option<Nomination>,
        now: Instant,
    ) {
        let key = &pending.pod.key;
        if nomination == Some(Nomination::Clear) {
            self.give_up_room(key, now);
        }
        self.queue.put_back(key, Attempt::Unschedulable(plugins), now);
        self.report(key, Reason::Unschedulable, message);
    }

    /// Puts a Pod back to wait for its back-off, and reports the failure.
    pub(super) fn fail(&mut self, pod: &PodRef, why: String, now: Instant) {
        self.give_up_room(&pod.key, now);
        self.queue.put_back(&pod.key, Attempt::Failed, now);
        self.report(&pod.key, Reason::SchedulerError, why);
    }

    /// Clears a Pod's nomination, which may help other Pods.
    fn give_up_room(&mut self, key: &ObjectKey, now: Instant) {
        let Some(entry) = self.queue.get(key).filter(|entry| entry.nominated.is_some()) else { return };
        let pod = Arc::clone(&entry.pending.pod);
        self.queue.nominate(key, None);
        self.clear_nomination(&pod.uid);
        self.notify(&Event::PodDeleted(&pod), now);
    }

    fn report(&mut self, key: &ObjectKey, reason: Reason, message: String) {
        let Some(entry) = self.queue.get(key) else { return };
        let pending = &entry.pending;
        let said = Scheduled {
            status: "False".to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            generation: Some(pending.pod.generation),
        };
        let known = pending.scheduled.as_ref();
        let was_false = known.is_some_and(|known| known.status == "False");
        let was_false = if was_false { WasFalse::Yes } else { WasFalse::No };
        let nominated =
            (entry.nominated != pending.nominated).then(|| entry.nominated.clone().unwrap_or_else(|| Arc::from("")));
        let report = Report {
            pod: PodRef::of(&pending.pod),
            reason,
            message,
            condition: (known != Some(&said)).then_some(was_false),
            nominated,
            scheduler: Arc::clone(&pending.profile.name),
        };
        self.queue.set_busy(key);
        self.effects.push_back(Effect::Report(report));
    }
}

/// The outcome of a decision.
pub(super) enum Outcome {
    /// Pods could be deleted for this one, if the extenders agree.
    Candidates(Diagnosis, Vec<Candidate>),
    Failed(String),
    Found(Choice),
    Unschedulable(Diagnosis, Result<Preemption, NoPreemption>),
}

/// A Pod with its nomination and its spread constraints.
pub(super) struct Prepared {
    pub(super) pending: Arc<Pending>,
    /// Selects the Pods of the same owner for the default spreading.
    selector: Arc<Selector>,
}

impl Prepared {
    /// The outcome if no node was checked.
    pub(super) fn without_cycle(&self, cluster: &Cluster, diagnosis: Diagnosis) -> Outcome {
        let refused = preempt::not_helpful(cluster, &self.pending, &diagnosis);
        Outcome::Unschedulable(diagnosis, Err(refused))
    }

    /// Chooses one of the feasible nodes, or the Pods to delete if there is none. `scores` are those of extenders.
    pub(super) fn choose(
        &self,
        cycle: &Cycle<'_>,
        around: &PreFilterState,
        feasible: &[&Node],
        scores: &HashMap<Arc<str>, i64>,
        diagnosis: Diagnosis,
        random: &mut StdRng,
    ) -> Outcome {
        let choose = |n: usize| if 1 < n { random.random_range(0..n) } else { 0 };
        match cycle.choose(feasible, &self.selector, scores, diagnosis, choose) {
            Decision::Failed(why) => Outcome::Failed(why),
            Decision::Found(choice) => Outcome::Found(choice),
            Decision::Unschedulable(diagnosis) => {
                match preempt::candidates(cycle, around, &diagnosis, |n_nodes| random.random_range(0..n_nodes)) {
                    Err(why) => Outcome::Unschedulable(diagnosis, Err(why)),
                    Ok(candidates) if self.pending.asks_about_victims() => Outcome::Candidates(diagnosis, candidates),
                    Ok(candidates) => Outcome::Unschedulable(diagnosis, preempt::best_of(candidates)),
                }
            }
        }
    }
}
