//! What holds for all clusters: no node gets more than it has, and every Pod that fits somewhere gets a node.

use super::{Effect, World, asks, key, merge, node, pod};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    AddPod { cpu: i64, priority: i32 },
    RemovePod(usize),
    AddNode { cpu: i64 },
    FailBinding,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_i64..40, 0_i32..3).prop_map(|(cpu, priority)| Step::AddPod { cpu: cpu * 100, priority }),
        2 => any::<prop::sample::Index>().prop_map(|at| Step::RemovePod(at.index(64))),
        1 => (1_i64..6).prop_map(|cpu| Step::AddNode { cpu: cpu * 1_000 }),
        1 => Just(Step::FailBinding),
    ]
}

/// What is where, as the API server would know.
#[derive(Default)]
struct Truth {
    capacity: BTreeMap<String, i64>,
    pods: BTreeMap<String, Fact>,
}

#[derive(Clone)]
struct Fact {
    cpu: i64,
    priority: i32,
    node: Option<String>,
}

impl Truth {
    fn used(&self, node: &str) -> i64 {
        self.pods.values().filter(|pod| pod.node.as_deref() == Some(node)).map(|pod| pod.cpu).sum()
    }

    fn tell(&self, world: &mut World, name: &str) {
        let fact = &self.pods[name];
        let mut all = asks(json!({"cpu": format!("{}m", fact.cpu)}));
        merge(&mut all, json!({"spec": {"priority": fact.priority, "preemptionPolicy": "PreemptLowerPriority"}}));
        if let Some(node) = &fact.node {
            merge(&mut all, json!({"spec": {"nodeName": node}}));
        }
        world.pod(&pod(name, all));
    }

    /// Carries out what the scheduler wants, until it wants nothing.
    fn settle(&mut self, world: &mut World, fails: &mut bool) {
        let mut n_effects = 0;
        while let Some(effect) = world.state.next(world.now) {
            n_effects += 1;
            assert!(n_effects < 10_000, "it does not come to an end");
            match effect {
                Effect::Bind { pod, node } => {
                    if std::mem::take(fails) {
                        world.state.bound(&pod, Err("no luck".to_owned()), world.now);
                        continue;
                    }
                    let name = pod.key.name().to_owned();
                    self.pods.get_mut(&name).unwrap().node = Some(node.to_string());
                    assert!(self.used(&node) <= self.capacity[&*node], "{node} has too much");
                    world.state.bound(&pod, Ok(()), world.now);
                    self.tell(world, &name);
                }
                Effect::Preempt { pod, victims, .. } => {
                    let own = self.pods[pod.key.name()].priority;
                    for victim in victims {
                        let gone = self.pods.remove(victim.key.name()).unwrap();
                        assert!(gone.priority < own, "only less important Pods go");
                        world.state.pod_gone(&victim.key, world.now);
                    }
                    world.state.finished(&pod, world.now);
                }
                Effect::Report(report) => world.state.finished(&report.pod, world.now),
                Effect::BindVolumes { .. } | Effect::Skip { .. } => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn capacity_is_kept_and_every_pod_that_fits_is_bound(steps in prop::collection::vec(step(), 1..60)) {
        let (mut world, mut truth, mut fails) = (World::new(), Truth::default(), false);
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::AddPod { cpu, priority } => {
                    let name = format!("p{at}");
                    truth.pods.insert(name.clone(), Fact { cpu, priority, node: None });
                    truth.tell(&mut world, &name);
                }
                Step::RemovePod(at) => {
                    let name = truth.pods.keys().nth(at).cloned();
                    if let Some(name) = name {
                        truth.pods.remove(&name);
                        world.state.pod_gone(&key(&name), world.now);
                    }
                }
                Step::AddNode { cpu } => {
                    let name = format!("n{at}");
                    truth.capacity.insert(name.clone(), cpu);
                    world.node(&node(&name, json!({"status": {"allocatable": {"cpu": format!("{cpu}m")}}})));
                }
                Step::FailBinding => fails = true,
            }
            truth.settle(&mut world, &mut fails);
        }
        // Whoever failed has had its delay, and whoever waited is tried once more.
        for _ in 0..40 {
            world.pass(std::time::Duration::from_secs(301));
            fails = false;
            truth.settle(&mut world, &mut fails);
        }
        for (name, pod) in truth.pods.iter().filter(|(_, pod)| pod.node.is_none()) {
            for (node, capacity) in &truth.capacity {
                prop_assert!(capacity - truth.used(node) < pod.cpu, "{name} fits on {node}");
            }
        }
    }
}
