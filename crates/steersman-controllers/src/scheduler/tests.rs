//! Tests of the scheduler without its requests.

mod extenders;
mod filters;
mod preemption;
mod profiles;
mod properties;
mod queueing;
mod requests;
mod scores;
mod volumes;
mod work;

use crate::scheduler::Configuration;
use crate::scheduler::requests::{Extenders, Objects};
use crate::scheduler::state::{Effect, PodRef, Report, State};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// A cluster with nothing but the scheduler, whose decisions are applied at once.
struct TestCluster {
    state: State,
    now: Instant,
}

/// A configuration with these fields.
fn configuration(over: Value) -> Configuration {
    let mut document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    merge(&mut document, over);
    Configuration::read(&document).unwrap()
}

/// For requests of the default configuration.
fn without_extenders() -> Extenders {
    let objects = Objects { node: Box::new(|_| None), pod: Box::new(|_| None) };
    Extenders::new(&Configuration::default(), objects)
}

/// Merges an object into another.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// A node with 4 cores, 8Gi and room for 110 Pods.
fn node(name: &str, over: Value) -> Node {
    let mut base = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}},
    });
    merge(&mut base, over);
    serde_json::from_value(base).unwrap()
}

/// A Pod without a node and without requests.
fn pod(name: &str, over: Value) -> Pod {
    let mut base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "nginx"}]},
    });
    merge(&mut base, over);
    serde_json::from_value(base).unwrap()
}

/// The spec of a Pod with these requests.
fn asks(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": requests}}]}})
}

/// The Pod of [`pod`] with this name.
fn reference(name: &str) -> PodRef {
    PodRef { key: key(name), uid: format!("uid-{name}").into(), generation: 1 }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

// === impl TestCluster ===

impl TestCluster {
    fn new() -> TestCluster {
        TestCluster::with_configuration(Configuration::default())
    }

    fn with_configuration(configuration: Configuration) -> TestCluster {
        TestCluster { state: State::new(configuration, Box::new(|_, _| None), 7), now: Instant::now() }
    }

    fn with_nodes(nodes: impl IntoIterator<Item = Node>) -> TestCluster {
        let mut test_cluster = TestCluster::new();
        nodes.into_iter().for_each(|node| test_cluster.node(&node));
        test_cluster
    }

    fn node(&mut self, node: &Node) {
        self.state.node_changed(node, self.now);
    }

    fn pod(&mut self, pod: &Pod) {
        self.state.pod_changed(pod, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// All requests due now.
    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.state.next(self.now)).collect()
    }

    /// Runs until nothing is left to do, and returns the Pods and their nodes.
    fn bindings(&mut self) -> Vec<(String, String)> {
        let mut bound = Vec::new();
        while let Some(effect) = self.state.next(self.now) {
            match effect {
                Effect::Bind { pod, node, .. } => bound.push((pod.key.name().to_owned(), node.to_string())),
                Effect::Report(Report { pod, .. }) => self.done(&pod),
                Effect::Preempt { pod, victims, .. } => self.state.preempted(&pod, &victims, Ok(()), self.now),
                Effect::BindVolumes { .. } | Effect::Extend(_) | Effect::Skip { .. } => {}
            }
        }
        bound
    }

    fn done(&mut self, pod: &PodRef) {
        self.state.finished(pod, self.now);
    }

    /// The node of a Pod that must get one now.
    #[track_caller]
    fn node_of(&mut self, pod: &Pod) -> String {
        self.pod(pod);
        let bindings = self.bindings();
        let name = pod.metadata.name.as_deref().unwrap();
        let found = bindings.into_iter().find(|(bound, _)| bound == name);
        found.map(|(_, node)| node).unwrap_or_else(|| panic!("{name} got no node"))
    }

    /// The message about a Pod that must not get a node now.
    #[track_caller]
    fn refusal_of(&mut self, pod: &Pod) -> String {
        self.pod(pod);
        let mut message = None;
        for effect in self.effects() {
            match effect {
                Effect::Report(report) => message = Some(report.message),
                Effect::Bind { pod, node, .. } => panic!("{} got {node}", pod.key),
                Effect::BindVolumes { .. } | Effect::Extend(_) | Effect::Preempt { .. } | Effect::Skip { .. } => {}
            }
        }
        message.unwrap_or_else(|| panic!("nothing was said"))
    }
}
