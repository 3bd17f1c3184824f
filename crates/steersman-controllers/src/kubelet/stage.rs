//! Stages: objects that set the behavior of Pods on simulated nodes, and which of these nodes are away, in place of
//! annotations on each.
//!
//! Similar to KWOK's kind of this name. [`Stages`] is the compiled form of all Stages, rebuilt whenever one changes
//! (`watch`). It is pure: from a Pod and the labels of its node and namespace it yields the behavior of the containers.
//! [`Observed`] gives nodes and their agents access to it. The kind is defined in `api` and `schema`. Where several
//! Stages set the same field, the one with the greatest weight wins, and among Stages of the same weight the one whose
//! name comes first. Annotations take precedence over all Stages.

mod api;
pub(crate) mod behavior;
pub(crate) mod duration;
mod schema;
pub(crate) mod seed;
pub(crate) mod watch;

use crate::kubelet::node::resources;
use crate::kubelet::stage::api::{LabelSelector, Stage};
use crate::kubelet::stage::behavior::{Behaviors, Layer, Layers, Range};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::core::{Expression, Selector, SelectorExt};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman::{Lister, ObjectKey};

/// Labels by key.
pub(crate) type Labels = BTreeMap<String, String>;

/// All Stages, in order of precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stages {
    all: Vec<Rule>,
}

/// A compiled Stage.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    weight: i32,
    name: String,
    pods: Selector,
    namespaces: Namespaces,
    nodes: Option<Selector>,
    goes_away: Option<bool>,
    layers: Layers,
}

/// The namespaces that a Stage applies to.
#[derive(Clone, Debug, PartialEq)]
enum Namespaces {
    All,
    Labelled(Selector),
    Named(Vec<String>),
}

/// The Stages, and the caches of the nodes and namespaces that they select. Clones share their state.
#[derive(Clone)]
pub(crate) struct Observed {
    /// `None` until the Stages of the cluster have been listed, or it is known that there are none.
    pub(crate) stages: tokio::sync::watch::Receiver<Option<Arc<Stages>>>,
    pub(crate) nodes: Lister<Node>,
    pub(crate) namespaces: Lister<Namespace>,
}

// === impl Stages ===

impl Stages {
    /// Compiles Stages given in any order. Also returns messages about what cannot be read, which counts as absent.
    pub(crate) fn of<'a>(stages: impl IntoIterator<Item = &'a Stage>) -> (Stages, Vec<String>) {
        let mut faults = Vec::new();
        let mut all: Vec<Rule> = stages.into_iter().map(|stage| Rule::of(stage, &mut faults)).collect();
        all.sort_by(|a, b| (Reverse(a.weight), &a.name).cmp(&(Reverse(b.weight), &b.name)));
        (Stages { all }, faults)
    }

    /// Whether any Stage selects by labels of nodes.
    pub(crate) fn read_nodes(&self) -> bool {
        self.all.iter().any(|rule| rule.nodes.is_some())
    }

    /// Whether any Stage selects by labels of namespaces.
    pub(crate) fn read_namespaces(&self) -> bool {
        self.all.iter().any(|rule| matches!(rule.namespaces, Namespaces::Labelled(_)))
    }

    /// The layers of the Stages that select a Pod, by the labels of its namespace and node; unknown labels are given as
    /// empty.
    fn about(&self, pod: &Pod, namespace: &Labels, node: &Labels) -> Vec<&Layers> {
        let empty = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
        let name = pod.metadata.namespace.as_deref().unwrap_or_default();
        let selects = |rule: &&Rule| {
            rule.pods.matches(labels)
                && rule.namespaces.has(name, namespace)
                && rule.nodes.as_ref().is_none_or(|nodes| nodes.matches(node))
        };
        self.all.iter().filter(selects).map(|rule| &rule.layers).collect()
    }

    /// Whether the Stages set a node with these labels to be away.
    fn is_away(&self, node: &Labels) -> bool {
        let selects = |rule: &&Rule| rule.nodes.as_ref().is_some_and(|nodes| nodes.matches(node));
        self.all.iter().filter(selects).find_map(|rule| rule.goes_away).unwrap_or_default()
    }
}

// === impl Rule ===

impl Rule {
    fn of(stage: &Stage, faults: &mut Vec<String>) -> Rule {
        let name = stage.metadata.name.clone().unwrap_or_default();
        let spec = &stage.spec;
        let mut unusable = |field: &str, value: &str| {
            faults.push(format!("the field {field} of the stage {name:?} cannot be used: {value:?}"));
        };
        let namespaces = match (&spec.namespaces, &spec.namespace_selector) {
            (Some(names), _) => Namespaces::Named(names.clone()),
            (None, Some(selector)) => Namespaces::Labelled(selector_of(selector)),
            (None, None) => Namespaces::All,
        };
        let general = layer(&spec.behavior, &mut unusable);
        let containers = spec.containers.iter().map(|one| (one.name.clone(), layer(&one.behavior, &mut unusable)));
        let layers = Layers { general, containers: containers.collect() };
        Rule {
            weight: spec.weight,
            pods: spec.pod_selector.as_ref().map(selector_of).unwrap_or_default(),
            namespaces,
            nodes: spec.node_selector.as_ref().map(selector_of),
            goes_away: spec.goes_away,
            layers,
            name,
        }
    }
}

impl Namespaces {
    fn has(&self, name: &str, labels: &Labels) -> bool {
        match self {
            Namespaces::All => true,
            Namespaces::Labelled(selector) => selector.matches(labels),
            Namespaces::Named(names) => names.iter().any(|one| one == name),
        }
    }
}

/// The compiled form of a label selector. The definition rejects unknown operators; one that is unknown nevertheless
/// selects nothing.
fn selector_of(selector: &LabelSelector) -> Selector {
    let labels = selector.match_labels.iter().map(|(key, value)| Expression::Equal(key.clone(), value.clone()));
    let others = selector.match_expressions.iter().map(|one| {
        let (key, values) = (one.key.clone(), one.values.iter().cloned().collect());
        match one.operator.as_str() {
            "In" => Expression::In(key, values),
            "NotIn" => Expression::NotIn(key, values),
            "Exists" => Expression::Exists(key),
            "DoesNotExist" => Expression::DoesNotExist(key),
            _ => Expression::In(key, [].into()),
        }
    });
    let mut all = Selector::default();
    all.extend(labels.chain(others));
    all
}

fn layer(of: &api::Behavior, unusable: &mut impl FnMut(&str, &str)) -> Layer {
    let mut duration = |field: &str, text: &Option<String>| {
        let text = text.as_ref()?;
        let range = Range::parse(text);
        if range.is_none() {
            unusable(field, text);
        }
        range
    };
    let mut layer = Layer {
        pull_delay: duration("pullDelay", &of.pull_delay),
        ready_delay: duration("readyDelay", &of.ready_delay),
        never_ready: of.never_ready,
        crash_loop: of.crash_loop,
        fail_after: duration("failAfter", &of.fail_after),
        succeed_after: duration("succeedAfter", &of.succeed_after),
        exit_code: of.exit_code,
        liveness_fails_after: duration("livenessFailsAfter", &of.liveness_fails_after),
        stop_delay: duration("stopDelay", &of.stop_delay),
        image_missing: of.image_missing,
        cpu_usage: None,
        memory_usage: None,
    };
    let mut quantity = |name: &str, quantity: &Option<api::Quantity>| {
        let text = quantity.as_ref()?.text();
        let amount = resources::parse(name, &text);
        if amount.is_none() {
            unusable(&format!("usage.{name}"), &text);
        }
        amount
    };
    let usage = of.usage.clone().unwrap_or_default();
    layer.cpu_usage = quantity("cpu", &usage.cpu);
    layer.memory_usage = quantity("memory", &usage.memory);
    layer
}

// === impl Observed ===

impl Observed {
    /// The current Stages.
    pub(crate) fn stages(&self) -> Arc<Stages> {
        self.stages.borrow().clone().unwrap_or_default()
    }

    /// The behavior of a Pod's containers, and messages about annotations that cannot be read.
    pub(crate) fn behaviors(&self, pod: &Pod) -> (Behaviors, Vec<String>) {
        let (annotations, faults) = Layer::of(pod);
        let stages = self.stages();
        let namespace = stages.read_namespaces().then(|| {
            let found = self.namespaces.get(&ObjectKey::cluster(pod.metadata.namespace.as_deref()?)).ok()?;
            found.metadata.labels.clone()
        });
        let node = stages.read_nodes().then(|| {
            let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())?;
            self.nodes.get(&ObjectKey::cluster(name)).ok()?.metadata.labels.clone()
        });
        let (namespace, node) = (namespace.flatten().unwrap_or_default(), node.flatten().unwrap_or_default());
        (Behaviors::of(&annotations, &stages.about(pod, &namespace, &node)), faults)
    }

    /// Whether a node is away, according to its annotation, or otherwise to the Stages.
    pub(crate) fn is_away(&self, node: &Node) -> bool {
        let empty = Labels::new();
        let by_stage = || self.stages().is_away(node.metadata.labels.as_ref().unwrap_or(&empty));
        crate::kubelet::node::is_away(node).unwrap_or_else(by_stage)
    }
}

#[cfg(test)]
mod tests;
