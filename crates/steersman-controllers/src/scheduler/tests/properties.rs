//! Properties of all histories: no node is overcommitted, and every Pod that fits a node gets one, without waiting for
//! the periodic retry. Requests, answers and events are delayed as the history says.

use super::{Effect, PodRef, TestCluster, asks, configuration, key, merge, node, pod};
use crate::scheduler::Configuration;
use crate::scheduler::requests::Answer;
use crate::scheduler::state::{About, Agreed, Allowed, Question};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The number of names of Pods, small so that names are reused.
const N_NAMES: usize = 12;

#[derive(Clone, Debug)]
enum Step {
    AddNode {
        cpu: i64,
    },
    AddPod {
        name: usize,
        cpu: i64,
        priority: i32,
    },
    /// An answer arrives.
    Answer(Index),
    /// The server carries out a request.
    CarryOut(Index),
    /// The scheduler takes its next step.
    Decide,
    /// A Pod that is being deleted has terminated.
    End(Index),
    /// The next binding fails.
    FailBinding,
    GrowNode {
        at: Index,
        cpu: i64,
    },
    NodeEvent,
    Pass {
        millis: u64,
    },
    PodEvent,
    RemovePod(Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1_i64..6).prop_map(|cpu| Step::AddNode { cpu: cpu * 1_000 }),
        6 => (0..N_NAMES, 1_i64..40, 0_i32..3)
            .prop_map(|(name, cpu, priority)| Step::AddPod { name, cpu: cpu * 100, priority }),
        8 => any::<Index>().prop_map(Step::Answer),
        8 => any::<Index>().prop_map(Step::CarryOut),
        8 => Just(Step::Decide),
        2 => any::<Index>().prop_map(Step::End),
        1 => Just(Step::FailBinding),
        1 => (any::<Index>(), 1_i64..3).prop_map(|(at, cpu)| Step::GrowNode { at, cpu: cpu * 1_000 }),
        3 => Just(Step::NodeEvent),
        2 => (0_u64..1_500).prop_map(|millis| Step::Pass { millis }),
        10 => Just(Step::PodEvent),
        2 => any::<Index>().prop_map(Step::RemovePod),
    ]
}

/// The API server, and the messages in flight between it and the scheduler.
#[derive(Default)]
struct Server {
    capacity: BTreeMap<String, i64>,
    pods: BTreeMap<String, Fact>,
    requests: Vec<Effect>,
    answers: Vec<Answer>,
    node_events: VecDeque<(String, i64)>,
    pod_events: VecDeque<(String, Option<Fact>)>,
    fails: bool,
}

#[derive(Clone)]
struct Fact {
    uid: String,
    cpu: i64,
    priority: i32,
    node: Option<String>,
    nominated: Option<String>,
    is_deleting: bool,
    is_preempted: bool,
}

// === impl Server ===

impl Server {
    fn used(&self, node: &str) -> i64 {
        self.pods.values().filter(|pod| pod.node.as_deref() == Some(node)).map(|pod| pod.cpu).sum()
    }

    /// Changes exactly this Pod, if it exists.
    fn change(&mut self, pod: &PodRef, change: impl FnOnce(&mut Fact)) -> bool {
        let name = pod.key.name();
        let Some(fact) = self.pods.get_mut(name).filter(|fact| *fact.uid == *pod.uid) else { return false };
        change(fact);
        self.pod_events.push_back((name.to_owned(), Some(fact.clone())));
        true
    }

    fn remove(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            self.pod_events.push_back((name.to_owned(), None));
        }
    }

    fn set_node(&mut self, name: &str, cpu: i64) {
        self.capacity.insert(name.to_owned(), cpu);
        self.node_events.push_back((name.to_owned(), cpu));
    }

    fn carry_out(&mut self, effect: Effect) {
        let answer = match effect {
            Effect::Bind { pod, node, .. } => {
                let fails = std::mem::take(&mut self.fails);
                let is_bound = !fails && self.change(&pod, |fact| fact.node = Some(node.to_string()));
                assert!(self.used(&node) <= self.capacity[&*node], "{node} has too much");
                Answer::Bound(pod, if is_bound { Ok(()) } else { Err("no luck".to_owned()) })
            }
            Effect::Extend(Question { pod, .. }) if std::mem::take(&mut self.fails) => {
                Answer::Extended(pod, Err("no luck".to_owned()))
            }
            // Extenders that agree to everything.
            Effect::Extend(Question { pod, about, .. }) => {
                let agreed = match about {
                    About::Nodes(nodes) => Agreed::Nodes(Allowed { nodes, ..Allowed::default() }),
                    About::Victims(on_nodes) => {
                        Agreed::Victims(on_nodes.into_iter().map(|on_node| on_node.candidate).collect())
                    }
                };
                Answer::Extended(pod, Ok(agreed))
            }
            Effect::Preempt { pod, victims, denominated, .. } => {
                for other in &denominated {
                    self.change(other, |fact| fact.nominated = None);
                }
                let own = self.pods.get(pod.key.name()).filter(|fact| *fact.uid == *pod.uid).map(|fact| fact.priority);
                let mark = |fact: &mut Fact| {
                    assert!(own.is_none_or(|own| fact.priority < own), "only less important Pods go");
                    (fact.is_deleting, fact.is_preempted) = (true, true);
                };
                let deleted = victims.into_iter().filter(|victim| self.change(victim, mark)).collect();
                Answer::Preempted(pod, deleted, Ok(()))
            }
            Effect::Report(report) => {
                self.change(&report.pod, |fact| {
                    if let Some(node) = &report.nominated {
                        fact.nominated = Some(node.to_string()).filter(|node| !node.is_empty());
                    }
                });
                Answer::Finished(report.pod)
            }
            Effect::BindVolumes { .. } | Effect::Skip { .. } => Answer::Nothing,
        };
        self.answers.push(answer);
    }

    fn deliver_node(&mut self, test_cluster: &mut TestCluster) -> bool {
        let Some((name, cpu)) = self.node_events.pop_front() else { return false };
        test_cluster.node(&node(&name, json!({"status": {"allocatable": {"cpu": format!("{cpu}m")}}})));
        true
    }

    fn deliver_pod(&mut self, test_cluster: &mut TestCluster) -> bool {
        let Some((name, fact)) = self.pod_events.pop_front() else { return false };
        let Some(fact) = fact else {
            test_cluster.state.pod_gone(&key(&name), test_cluster.now);
            return true;
        };
        let mut all = asks(json!({"cpu": format!("{}m", fact.cpu)}));
        merge(&mut all, json!({"metadata": {"uid": fact.uid}, "spec": {"priority": fact.priority}}));
        if let Some(node) = &fact.node {
            merge(&mut all, json!({"spec": {"nodeName": node}}));
        }
        if let Some(node) = &fact.nominated {
            merge(&mut all, json!({"status": {"nominatedNodeName": node}}));
        }
        if fact.is_deleting {
            merge(&mut all, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        }
        if fact.is_preempted {
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
            merge(&mut all, json!({"status": {"conditions": [condition]}}));
        }
        test_cluster.pod(&pod(&name, all));
        true
    }

    fn take(&mut self, step: Step, at: usize, test_cluster: &mut TestCluster) {
        match step {
            Step::AddNode { cpu } => self.set_node(&format!("n{at}"), cpu),
            Step::AddPod { name, cpu, priority } => {
                let name = format!("p{name}");
                if !self.pods.contains_key(&name) {
                    let uid = format!("{name}-{at}");
                    let fact = Fact {
                        uid,
                        cpu,
                        priority,
                        node: None,
                        nominated: None,
                        is_deleting: false,
                        is_preempted: false,
                    };
                    self.pod_events.push_back((name.clone(), Some(fact.clone())));
                    self.pods.insert(name, fact);
                }
            }
            Step::Answer(index) => {
                if !self.answers.is_empty() {
                    self.answers
                        .remove(index.index(self.answers.len()))
                        .tell(&mut test_cluster.state, test_cluster.now);
                }
            }
            Step::CarryOut(index) => {
                if !self.requests.is_empty() {
                    let request = self.requests.remove(index.index(self.requests.len()));
                    self.carry_out(request);
                }
            }
            Step::Decide => self.requests.extend(test_cluster.state.next(test_cluster.now)),
            Step::End(index) => {
                let ending: Vec<String> = self.ending();
                if !ending.is_empty() {
                    self.remove(&ending[index.index(ending.len())]);
                }
            }
            Step::FailBinding => self.fails = true,
            Step::GrowNode { at, cpu } => {
                if !self.capacity.is_empty() {
                    let at = at.index(self.capacity.len());
                    let (name, had) = self.capacity.iter().nth(at).map(|(name, had)| (name.clone(), *had)).unwrap();
                    self.set_node(&name, had + cpu);
                }
            }
            Step::NodeEvent => drop(self.deliver_node(test_cluster)),
            Step::Pass { millis } => test_cluster.pass(Duration::from_millis(millis)),
            Step::PodEvent => drop(self.deliver_pod(test_cluster)),
            Step::RemovePod(index) => {
                if !self.pods.is_empty() {
                    let name = self.pods.keys().nth(index.index(self.pods.len())).cloned().unwrap();
                    let fact = &self.pods[&name];
                    let reference = PodRef { key: key(&name), uid: fact.uid.as_str().into(), generation: 1 };
                    if fact.node.is_some() {
                        self.change(&reference, |fact| fact.is_deleting = true);
                    } else {
                        self.remove(&name);
                    }
                }
            }
        }
    }

    fn ending(&self) -> Vec<String> {
        self.pods.iter().filter(|(_, fact)| fact.is_deleting).map(|(name, _)| name.clone()).collect()
    }

    /// Delivers everything, until nothing is left to do.
    fn settle(&mut self, test_cluster: &mut TestCluster) {
        for n_rounds in 0.. {
            assert!(n_rounds < 10_000, "it does not come to an end");
            let mut is_quiet = true;
            while self.deliver_node(test_cluster) || self.deliver_pod(test_cluster) {
                is_quiet = false;
            }
            for name in self.ending() {
                self.remove(&name);
                is_quiet = false;
            }
            for request in std::mem::take(&mut self.requests) {
                self.carry_out(request);
            }
            for answer in std::mem::take(&mut self.answers) {
                answer.tell(&mut test_cluster.state, test_cluster.now);
                is_quiet = false;
            }
            if let Some(effect) = test_cluster.state.next(test_cluster.now) {
                self.requests.push(effect);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn capacity_is_kept_and_every_pod_that_fits_is_bound(
        steps in prop::collection::vec(step(), 1..80),
        has_extender in any::<bool>(),
    ) {
        let configuration = match has_extender {
            true => configuration(json!({"extenders": [{"urlPrefix": "http://localhost",
                "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1, "preemptVerb": "preempt"}]})),
            false => Configuration::default(),
        };
        let (mut test_cluster, mut server) = (TestCluster::with_configuration(configuration), Server::default());
        let begin = test_cluster.now;
        for (at, step) in steps.into_iter().enumerate() {
            server.take(step, at, &mut test_cluster);
        }
        server.fails = false;
        // A Pod that failed has its back-off, which is shorter than the period of the retry without an event.
        for _ in 0..8 {
            server.settle(&mut test_cluster);
            test_cluster.pass(Duration::from_secs(11));
        }
        prop_assert!(test_cluster.now - begin < Duration::from_secs(300));
        for (name, pod) in server.pods.iter().filter(|(_, pod)| pod.node.is_none()) {
            for (node, capacity) in &server.capacity {
                prop_assert!(capacity - server.used(node) < pod.cpu, "{name} fits on {node}");
            }
        }
    }
}
