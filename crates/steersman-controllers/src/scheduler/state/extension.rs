//! Questions to extenders, and how a decision goes on after the answer.
//!
//! As in kube-scheduler, no other Pod is decided on while the extenders are asked about one: a less important Pod does not
//! get the room that a more important one waits for. Requests go on. The cluster may change meanwhile, so the feasible
//! nodes are filtered again. If none is left, and an event has come meanwhile, the Pod is tried again after its back-off.

use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::configuration::Extender;
use crate::scheduler::cycle::preempt::{self, Candidate};
use crate::scheduler::cycle::{Cycle, Diagnosis, Remedy};
use crate::scheduler::plugins::filters::Plugin;
use crate::scheduler::state::decisions::{Outcome, Prepared};
use crate::scheduler::state::{Effect, PodRef, State};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// A question to the extenders that a Pod interests. The answer goes to [`State::extended`].
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) pod: PodRef,
    /// In the order in which they are asked.
    pub(crate) extenders: Vec<Arc<Extender>>,
    pub(crate) about: About,
}

/// The subject of a question.
#[derive(Clone, Debug)]
pub(crate) enum About {
    /// Which of these nodes may have the Pod, and how good they are.
    Nodes(Vec<Arc<str>>),
    /// From which of these nodes Pods are deleted, and which ones.
    Victims(Vec<OnNode>),
}

/// A node from which Pods could be deleted.
#[derive(Clone, Debug)]
pub(crate) struct OnNode {
    pub(crate) candidate: Candidate,
    /// All Pods of the node, of which an extender may choose others.
    pub(crate) pods: Vec<Arc<Placed>>,
}

/// The answer to a question, on which all extenders agree.
#[derive(Debug)]
pub(crate) enum Agreed {
    Nodes(Allowed),
    Victims(Vec<Candidate>),
}

/// The nodes that all extenders allow.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) nodes: Vec<Arc<str>>,
    /// To be added to those of the plugins.
    pub(crate) scores: HashMap<Arc<str>, i64>,
    /// Why other nodes are not allowed. A node that an extender leaves out without a reason is not among them.
    pub(crate) refused: BTreeMap<Arc<str>, (Remedy, String)>,
}

/// The decision that goes on when the extenders have answered.
#[derive(Debug)]
pub(super) struct Extending {
    pub(super) pod: PodRef,
    diagnosis: Diagnosis,
    asked: Asked,
    /// Whether anything has changed since the decision began. If so, a Pod that finds no node is tried again.
    pub(super) has_missed_event: bool,
}

#[derive(Debug)]
enum Asked {
    Nodes { n_nodes: usize, of: Search },
    Victims,
}

/// The nodes that a search is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Search {
    All,
    /// Only the one on which room was made for the Pod.
    Nominated,
}

impl State {
    /// Asks about feasible nodes.
    pub(super) fn ask_about_nodes(
        &mut self,
        pending: &Pending,
        nodes: Vec<Arc<str>>,
        of: Search,
        diagnosis: Diagnosis,
    ) {
        let asked = Asked::Nodes { n_nodes: nodes.len(), of };
        self.ask(pending, About::Nodes(nodes), asked, diagnosis);
    }

    /// Asks about the Pods to delete.
    pub(super) fn ask_about_victims(&mut self, pending: &Pending, candidates: Vec<Candidate>, diagnosis: Diagnosis) {
        let pods = |node: &str| self.cluster.node(node).map(|node| node.pods.clone()).unwrap_or_default();
        let on_nodes = candidates.into_iter().map(|candidate| OnNode { pods: pods(&candidate.node), candidate });
        let about = About::Victims(on_nodes.collect());
        self.ask(pending, about, Asked::Victims, diagnosis);
    }

    fn ask(&mut self, pending: &Pending, about: About, asked: Asked, diagnosis: Diagnosis) {
        let pod = PodRef::of(&pending.pod);
        let has_missed_event = self.extending.as_ref().is_some_and(|extending| extending.has_missed_event);
        self.extending = Some(Extending { pod: pod.clone(), diagnosis, asked, has_missed_event });
        self.effects.push_back(Effect::Extend(Question { pod, extenders: pending.extenders.clone(), about }));
    }

    /// Goes on with the decision about a Pod after the answer of the extenders.
    pub(crate) fn extended(&mut self, pod: &PodRef, answer: Result<Agreed, String>, now: Instant) {
        if self.extending.as_ref().is_none_or(|extending| extending.pod.uid != pod.uid) {
            return;
        }
        let is_waiting =
            self.queue.get(&pod.key).filter(|entry| entry.pending.pod.uid == pod.uid && entry.is_binding());
        let pending = is_waiting.map(|entry| Arc::clone(&entry.pending));
        // The Pod may be gone, or on a node by now. One that is being deleted is reported like any other that is.
        let Some(pending) = pending.filter(|pending| !pending.pod.is_deleting) else {
            self.extending = None;
            let is_this = |pending: &Pending| pending.pod.uid == pod.uid && pending.pod.is_deleting;
            if let Some(entry) = self.queue.get(&pod.key).filter(|entry| is_this(&entry.pending)) {
                let scheduler = Arc::clone(&entry.pending.profile.name);
                self.effects.push_back(Effect::Skip { pod: pod.clone(), scheduler });
            }
            return;
        };
        let Some(extending) = &mut self.extending else { return };
        let mut diagnosis = std::mem::take(&mut extending.diagnosis);
        match (&extending.asked, answer) {
            (Asked::Nodes { of: Search::Nominated, .. }, Err(error)) => {
                tracing::warn!(pod = %pod.key, error, "the nominated node of the pod cannot be evaluated");
                let prepared = self.prepare(&pending);
                self.search(&prepared, Search::All, diagnosis, now);
            }
            (Asked::Nodes { of: Search::All, .. }, Err(why)) => self.conclude(&pending, Outcome::Failed(why), now),
            (Asked::Victims, Err(why)) => {
                self.conclude(&pending, Outcome::Unschedulable(diagnosis, Err(preempt::failed(&why))), now);
            }
            (&Asked::Nodes { n_nodes, of }, Ok(Agreed::Nodes(allowed))) => {
                if allowed.nodes.len() != n_nodes {
                    diagnosis.plugins.insert(Plugin::Extender);
                }
                for (node, (remedy, reason)) in &allowed.refused {
                    diagnosis.add_of_extender(node, *remedy, reason.clone());
                }
                let prepared = self.prepare(&pending);
                self.decide_among(&prepared, &allowed, of, diagnosis, now);
            }
            (Asked::Victims, Ok(Agreed::Victims(candidates))) => {
                let candidates = candidates.into_iter().filter_map(|candidate| self.current(candidate)).collect();
                self.conclude(&pending, Outcome::Unschedulable(diagnosis, preempt::best_of(candidates)), now);
            }
            (Asked::Nodes { .. }, Ok(Agreed::Victims(_))) | (Asked::Victims, Ok(Agreed::Nodes(_))) => {
                self.conclude(&pending, Outcome::Failed("an extender answered another question".to_owned()), now);
            }
        }
    }

    /// Decides among the nodes that the extenders allow.
    fn decide_among(
        &mut self,
        prepared: &Prepared,
        allowed: &Allowed,
        of: Search,
        mut diagnosis: Diagnosis,
        now: Instant,
    ) {
        let outcome = match Cycle::new(&self.cluster, &self.nominations, &prepared.pending) {
            Err(diagnosis) => prepared.without_cycle(&self.cluster, diagnosis),
            Ok((cycle, around)) => match cycle.still_feasible(&around, &allowed.nodes, &mut diagnosis) {
                Err(why) => Outcome::Failed(why),
                Ok(feasible) if feasible.is_empty() && of == Search::Nominated => {
                    self.search(prepared, Search::All, diagnosis, now);
                    return;
                }
                Ok(feasible) => {
                    prepared.choose(&cycle, &around, &feasible, &allowed.scores, diagnosis, &mut self.random)
                }
            },
        };
        self.conclude(&prepared.pending, outcome, now);
    }

    /// A candidate with those of its victims that are still on its node; `None` if there are none.
    fn current(&self, candidate: Candidate) -> Option<Candidate> {
        let node = self.cluster.node(&candidate.node)?;
        let known = |victim: &Arc<Placed>| self.cluster.pod(&victim.key).filter(|pod| pod.uid == victim.uid).cloned();
        let is_there = |pod: &Arc<Placed>| node.pods.iter().any(|on_node| on_node.uid == pod.uid);
        let victims: Vec<Arc<Placed>> = candidate.victims.iter().filter_map(known).filter(is_there).collect();
        (!victims.is_empty()).then_some(Candidate { victims, ..candidate })
    }
}
