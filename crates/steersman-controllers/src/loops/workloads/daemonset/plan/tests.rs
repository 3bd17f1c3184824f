//! Plans of DaemonSets: single states, and random histories of Nodes and Pods.

use crate::loops::workloads::daemonset::placement::NodeFacts;
use crate::loops::workloads::daemonset::plan::{Change, View, manage, roll, status};
use crate::loops::workloads::daemonset::pod_for;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NEW: &str = "new";

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn set(rolling: Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "set", "generation": 1},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [], "nodeSelector": {"on": "yes"}}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        },
    }))
    .unwrap()
}

fn in_place() -> DaemonSet {
    set(json!({"maxUnavailable": 1, "maxSurge": 0}))
}

fn with_surge() -> DaemonSet {
    set(json!({"maxUnavailable": 0, "maxSurge": 1}))
}

/// A Node with this verdict: `run`, `stay` or `leave`.
fn site(name: &str, verdict: &str) -> Arc<NodeFacts> {
    let labels = if verdict == "leave" { json!({}) } else { json!({"on": "yes"}) };
    let taints = if verdict == "stay" { json!([{"key": "x", "effect": "NoSchedule"}]) } else { json!([]) };
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    Arc::new(NodeFacts::of(&serde_json::from_value(node).unwrap()))
}

/// A Pod for a Node: `ready`, `waiting`, `failed` or `succeeded`, optionally with `going` and `unbound`.
fn pod(set: &DaemonSet, name: &str, node: &str, hash: &str, state: &str) -> Arc<Pod> {
    let mut pod = pod_for(set, hash, node).unwrap();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(name.to_owned());
    let phase = match state.split(' ').next().unwrap() {
        "failed" => "Failed",
        "succeeded" => "Succeeded",
        _ => "Running",
    };
    let ready = if state.starts_with("ready") { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"});
    pod.status = Some(serde_json::from_value(json!({"phase": phase, "conditions": [condition]})).unwrap());
    if state.contains("going") {
        pod.metadata.deletion_timestamp = Some(Time(now()));
    }
    if !state.contains("unbound") {
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    }
    Arc::new(pod)
}

fn decide(view: &View<'_>) -> Change {
    let change = manage(view, |_| Ok(()));
    if change.is_nothing() { roll(view) } else { change }
}

fn said(change: &Change) -> Vec<String> {
    let created = change.create.iter().map(|node| format!("create on {node}"));
    let deleted = change.delete.iter().map(|pod| format!("delete {}", pod.metadata.name.as_deref().unwrap()));
    created.chain(deleted).collect()
}

/// Checks the plan for Nodes and Pods in words: `a run`, and `x on a of new ready`.
#[track_caller]
fn check(set: &DaemonSet, nodes: &[&str], pods: &[&str], expected: &[&str]) {
    let sites: Vec<_> =
        nodes.iter().map(|node| node.split_once(' ').unwrap()).map(|(name, verdict)| site(name, verdict)).collect();
    let pods: Vec<_> = pods
        .iter()
        .map(|words| {
            let words: Vec<&str> = words.splitn(6, ' ').collect();
            let [name, "on", node, "of", hash, state] = *words else { panic!("{words:?}") };
            pod(set, name, node, hash, state)
        })
        .collect();
    assert_eq!(said(&decide(&View::new(set, &sites, &pods, NEW, now()))), expected);
}

#[test]
fn every_node_that_is_meant_gets_one_pod() {
    let set = in_place();
    check(&set, &["a run", "b stay", "c leave"], &[], &["create on a"]);
    check(
        &set,
        &["a run", "b stay", "c leave"],
        &["x on b of new ready", "y on c of new ready"],
        &["create on a", "delete y"],
    );
    check(&set, &["a run"], &["x on a of new ready", "y on a of new ready"], &["delete y"]);
    check(&set, &["a run"], &["x on a of new waiting unbound", "y on a of new ready"], &["delete x"]);
    check(&set, &["a run"], &["x on a of new ready going"], &[]);
    check(&set, &["a run"], &["x on a of new failed going"], &["create on a"]);
    check(&set, &["a run"], &["x on gone of new waiting unbound", "y on a of new ready"], &["delete x"]);
    check(&set, &["a run"], &["x on gone of new ready", "y on a of new ready"], &[]);
}

#[test]
fn pods_that_are_over_are_deleted_with_a_note_and_failed_ones_after_a_while() {
    let set = in_place();
    let (sites, pods) =
        ([site("a", "run")], [pod(&set, "x", "a", NEW, "failed"), pod(&set, "y", "a", NEW, "succeeded")]);
    let view = View::new(&set, &sites, &pods, NEW, now());
    let change = manage(&view, |_| Ok(()));
    assert_eq!(said(&change), ["delete x", "delete y"]);
    let notes: Vec<_> = change.notes.iter().map(|note| (note.reason, &*note.text)).collect();
    assert_eq!(
        notes,
        [
            ("FailedDaemonPod", "Found failed daemon pod n/x on node a, will try to kill it"),
            ("SucceededDaemonPod", "Found succeeded daemon pod n/y on node a, will try to delete it"),
        ]
    );
    let change = manage(&view, |_| Err(Duration::from_secs(7)));
    assert_eq!((said(&change), change.again), (vec!["delete y".to_owned()], Some(Duration::from_secs(7))));
}

#[test]
fn in_place_one_goes_before_the_next_comes() {
    let set = in_place();
    let nodes = ["a run", "b run", "c run"];
    check(&set, &nodes, &["x on a of old ready", "y on b of old ready", "z on c of old ready"], &["delete x"]);
    check(&set, &nodes, &["x on a of new waiting", "y on b of old ready", "z on c of old ready"], &[]);
    check(&set, &nodes, &["x on a of new ready", "y on b of old ready", "z on c of old ready"], &["delete y"]);
    check(&set, &nodes, &["x on a of new waiting", "y on b of old waiting", "z on c of old ready"], &["delete y"]);
    check(&set, &nodes, &["x on a of new ready going", "y on b of old ready", "z on c of old ready"], &[]);
    let half = self::set(json!({"maxUnavailable": "50%"}));
    check(
        &half,
        &nodes,
        &["x on a of old ready", "y on b of old ready", "z on c of old ready"],
        &["delete x", "delete y"],
    );
}

#[test]
fn with_surge_one_comes_before_the_other_goes() {
    let set = with_surge();
    let nodes = ["a run", "b run"];
    check(&set, &nodes, &["x on a of old ready", "y on b of old ready"], &["create on a"]);
    check(&set, &nodes, &["x on a of old ready", "y on b of old ready", "z on a of new waiting"], &[]);
    check(&set, &nodes, &["x on a of old ready", "y on b of old ready", "z on a of new ready"], &["delete x"]);
    check(&set, &nodes, &["x on a of old waiting", "y on b of old ready", "z on a of new waiting"], &["delete x"]);
    check(&set, &nodes, &["x on a of old waiting", "y on b of old waiting"], &["create on a", "create on b"]);
    check(&set, &nodes, &["x on a of new ready going", "y on b of new ready"], &["create on a"]);
    check(&set, &["a stay", "b run"], &["x on a of old waiting", "y on b of new ready"], &["delete x"]);
    check(&set, &["a stay", "b run"], &["x on a of old ready", "y on b of new waiting"], &[]);
    check(&set, &["a stay", "b run"], &["x on a of old ready", "y on b of new ready"], &["delete x"]);
}

#[test]
fn on_delete_replaces_nothing() {
    let mut set = in_place();
    set.spec.update_strategy.as_mut().unwrap().type_ = Some("OnDelete".to_owned());
    check(&set, &["a run"], &["x on a of old ready"], &[]);
}

#[test]
fn the_status_counts_nodes() {
    let set = in_place();
    let sites = [site("a", "run"), site("b", "run"), site("c", "run"), site("d", "leave")];
    let pods =
        [pod(&set, "x", "a", NEW, "ready"), pod(&set, "y", "b", "old", "waiting"), pod(&set, "z", "d", NEW, "ready")];
    let (status, again) = status(&View::new(&set, &sites, &pods, NEW, now()));
    assert_eq!(again, None);
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({
            "currentNumberScheduled": 2, "desiredNumberScheduled": 3, "numberAvailable": 1, "numberMisscheduled": 1,
            "numberReady": 1, "numberUnavailable": 2, "observedGeneration": 1, "updatedNumberScheduled": 1,
        })
    );
}

// === random lives ===

#[derive(Clone, Debug)]
enum Event {
    Node(usize, &'static str),
    Ready(usize),
    Fail(usize),
    Gone(usize),
    Update,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..5_usize, prop_oneof![Just("run"), Just("stay"), Just("leave")]).prop_map(|(node, verdict)| Event::Node(node, verdict)),
        8 => (0..12_usize).prop_map(Event::Ready),
        1 => (0..12_usize).prop_map(Event::Fail),
        6 => (0..12_usize).prop_map(Event::Gone),
        1 => Just(Event::Update),
    ]
}

struct Life {
    node: String,
    revision: usize,
    state: &'static str,
    is_going: bool,
}

struct Model {
    set: DaemonSet,
    nodes: BTreeMap<String, &'static str>,
    pods: BTreeMap<usize, Life>,
    revision: usize,
    n_created: usize,
}

impl Model {
    fn pick(&self, at: usize, passes: impl Fn(&Life) -> bool) -> Option<usize> {
        let fit: Vec<usize> = self.pods.iter().filter(|(_, life)| passes(life)).map(|(name, _)| *name).collect();
        fit.get(at % fit.len().max(1)).copied()
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Node(number, verdict) => drop(self.nodes.insert(format!("node-{number}"), verdict)),
            Event::Ready(at) => {
                if let Some(name) = self.pick(at, |life| life.state == "waiting") {
                    self.pods.get_mut(&name).unwrap().state = "ready";
                }
            }
            Event::Fail(at) => {
                if let Some(name) = self.pick(at, |_| true) {
                    self.pods.get_mut(&name).unwrap().state = "failed";
                }
            }
            Event::Gone(at) => {
                if let Some(name) = self.pick(at, |life| life.is_going) {
                    self.pods.remove(&name);
                }
            }
            Event::Update => self.revision += 1,
        }
    }

    /// The number of Nodes that should have a Pod and have no ready one that stays.
    fn n_without(&self) -> usize {
        let is_served = |node: &String| {
            self.pods.values().any(|life| &life.node == node && life.state == "ready" && !life.is_going)
        };
        self.nodes.iter().filter(|(node, verdict)| **verdict == "run" && !is_served(node)).count()
    }

    fn reconcile(&mut self) -> usize {
        let sites: Vec<_> = self.nodes.iter().map(|(name, verdict)| site(name, verdict)).collect();
        let pods: Vec<_> = self
            .pods
            .iter()
            .map(|(name, life)| {
                let state = format!("{}{}", life.state, if life.is_going { " going" } else { "" });
                pod(&self.set, &format!("{name:05}"), &life.node, &life.revision.to_string(), &state)
            })
            .collect();
        let hash = self.revision.to_string();
        let view = View::new(&self.set, &sites, &pods, &hash, now());
        let managed = manage(&view, |_| Ok(()));
        let is_update = managed.is_nothing();
        let change = if is_update { roll(&view) } else { managed };
        let n_without = self.n_without();
        for pod in &change.delete {
            let life = self.pods.get_mut(&pod.metadata.name.as_ref().unwrap().parse::<usize>().unwrap()).unwrap();
            assert!(!life.is_going, "nothing is deleted twice");
            life.is_going = true;
        }
        for node in &change.create {
            assert_eq!(self.nodes[node], "run");
            self.n_created += 1;
            let life = Life { node: node.clone(), revision: self.revision, state: "waiting", is_going: false };
            self.pods.insert(self.n_created, life);
        }
        if is_update {
            let allowed = if crate::loops::workloads::daemonset::plan::surge(&self.set.spec, 5) > 0 { 0 } else { 1 };
            assert!(self.n_without() <= n_without.max(allowed), "an update takes away no more than it may");
        }
        for node in self.nodes.keys() {
            let n = self
                .pods
                .values()
                .filter(|life| &life.node == node && !life.is_going && life.state != "failed")
                .count();
            assert!(n <= 2, "{n} Pods on {node}");
        }
        change.create.len() + change.delete.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_happens_each_node_gets_its_pod(surges in any::<bool>(), events in proptest::collection::vec(event(), 0..80)) {
        let set = if surges { with_surge() } else { in_place() };
        let nodes = (0..3).map(|number| (format!("node-{number}"), "run")).collect();
        let mut model = Model { set, nodes, pods: BTreeMap::new(), revision: 1, n_created: 0 };
        for event in &events {
            model.happen(event);
            model.reconcile();
        }
        for _ in 0..60 {
            model.reconcile();
            model.pods.retain(|_, life| !life.is_going);
            for life in model.pods.values_mut().filter(|life| life.state == "waiting") {
                life.state = "ready";
            }
        }
        prop_assert_eq!(model.reconcile(), 0, "nothing is left to do");
        for (node, verdict) in &model.nodes {
            let on_it: Vec<_> = model.pods.values().filter(|life| &life.node == node).collect();
            match *verdict {
                "run" => {
                    prop_assert_eq!(on_it.len(), 1);
                    prop_assert_eq!((on_it[0].state, on_it[0].revision), ("ready", model.revision));
                }
                "leave" => prop_assert_eq!(on_it.len(), 0),
                _ => prop_assert!(on_it.len() <= 1),
            }
        }
    }
}
