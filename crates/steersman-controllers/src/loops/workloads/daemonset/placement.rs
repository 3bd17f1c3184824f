//! Decides on which Nodes a DaemonSet should have a Pod, and on which an existing Pod may stay.
//!
//! Follows upstream's `NodeShouldRunDaemonPod`: the node name, the node selector, the required node affinity, and the
//! NoSchedule and NoExecute taints against the tolerations of the template and those that every daemon has.

use crate::shared::labels::{Labels, RequiredNodes};
use crate::shared::tolerations::NodeTaint;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration,
};

const NAME_FIELD: &str = "metadata.name";
const NO_EXECUTE: &str = "NoExecute";
const NO_SCHEDULE: &str = "NoSchedule";

/// The fields of a Node that placement needs, so that checking all Nodes is cheap. Comparable, as the key of an index.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    labels: Labels,
    taints: Vec<NodeTaint>,
}

/// The constraints of a DaemonSet's template on Nodes.
pub(crate) struct Placement<'a> {
    node_name: Option<&'a str>,
    required: RequiredNodes,
    tolerations: Vec<Toleration>,
}

/// Whether a Node should have a Pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The Node should have a Pod.
    Run,
    /// The Node gets no Pod because of a NoSchedule taint, but an existing Pod stays.
    Stay,
    /// An existing Pod is deleted.
    Leave,
}

// === impl NodeFacts ===

impl NodeFacts {
    pub(crate) fn of(node: &Node) -> NodeFacts {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        NodeFacts {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.map(NodeTaint::of).collect(),
        }
    }
}

// === impl Placement ===

impl<'a> Placement<'a> {
    pub(crate) fn of(spec: &'a PodSpec) -> Placement<'a> {
        Placement {
            node_name: spec.node_name.as_deref().filter(|name| !name.is_empty()),
            required: RequiredNodes::read(spec),
            tolerations: tolerations(spec),
        }
    }

    pub(crate) fn on(&self, site: &NodeFacts) -> Verdict {
        let is_named = self.node_name.is_none_or(|name| name == site.name);
        if !is_named || !self.required.matches(&site.name, &site.labels) {
            return Verdict::Leave;
        }
        let repels = |effect: &str| {
            site.taints.iter().any(|taint| taint.effect == effect && !taint.is_tolerated(&self.tolerations))
        };
        match (repels(NO_EXECUTE), repels(NO_SCHEDULE)) {
            (true, _) => Verdict::Leave,
            (false, true) => Verdict::Stay,
            (false, false) => Verdict::Run,
        }
    }
}

/// The tolerations of a Pod of this template: a daemon stays on a Node in trouble, and may be placed on Nodes that
/// exclude other Pods.
pub(crate) fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    let of_network = ("network-unavailable", NO_SCHEDULE);
    let of_all = [
        ("not-ready", NO_EXECUTE),
        ("unreachable", NO_EXECUTE),
        ("disk-pressure", NO_SCHEDULE),
        ("memory-pressure", NO_SCHEDULE),
        ("pid-pressure", NO_SCHEDULE),
        ("unschedulable", NO_SCHEDULE),
    ];
    let of_network = (spec.host_network == Some(true)).then_some(of_network);
    for (condition, effect) in of_all.into_iter().chain(of_network) {
        let wanted = Toleration {
            effect: Some(effect.to_owned()),
            key: Some(format!("node.kubernetes.io/{condition}")),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        // The same toleration with a time limit is replaced by the one without.
        let is_same = |one: &Toleration| {
            one.key == wanted.key
                && one.effect == wanted.effect
                && one.operator == wanted.operator
                && one.value.as_deref().unwrap_or_default().is_empty()
        };
        match tolerations.iter_mut().find(|one| is_same(one)) {
            Some(known) => *known = wanted,
            None => tolerations.push(wanted),
        }
    }
    tolerations
}

/// Requires the Node of this name, in place of the template's requirements, which the DaemonSet has checked itself.
pub(crate) fn pin(affinity: &mut Option<Affinity>, node: &str) {
    let term = NodeSelectorTerm {
        match_expressions: None,
        match_fields: Some(vec![NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
    };
    affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_with(NodeAffinity::default)
        .required_during_scheduling_ignored_during_execution = Some(NodeSelector { node_selector_terms: vec![term] });
}

/// The Node that a Pod is bound to or assigned to.
pub(crate) fn target(spec: &PodSpec) -> Option<&str> {
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let by_name = fields.find(|field| field.key == NAME_FIELD && field.operator == "In")?;
    match by_name.values.as_deref() {
        Some([name]) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn site(node: Value) -> NodeFacts {
        NodeFacts::of(&serde_json::from_value(node).unwrap())
    }

    fn spec(spec: Value) -> PodSpec {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(spec).unwrap()
    }

    fn verdict(pod: Value, node: Value) -> Verdict {
        Placement::of(&spec(pod)).on(&site(node))
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {}, {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
        ]}}}})
    }

    #[test]
    fn selectors_and_affinity_decide_who_gets_a_pod() {
        let node = || json!({"metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}}});
        let cases = [
            (json!({}), Verdict::Run),
            (json!({"nodeName": "n"}), Verdict::Run),
            (json!({"nodeName": "m"}), Verdict::Leave),
            (json!({"nodeSelector": {"zone": "a"}}), Verdict::Run),
            (json!({"nodeSelector": {"zone": "b"}}), Verdict::Leave),
            (expression("zone", "In", &["a", "b"]), Verdict::Run),
            (expression("zone", "In", &[]), Verdict::Leave),
            (expression("zone", "NotIn", &["b"]), Verdict::Run),
            (expression("rack", "NotIn", &["b"]), Verdict::Run),
            (expression("zone", "Exists", &[]), Verdict::Run),
            (expression("rack", "DoesNotExist", &[]), Verdict::Run),
            (expression("cores", "Gt", &["7"]), Verdict::Run),
            (expression("cores", "Lt", &["7"]), Verdict::Leave),
            (expression("zone", "Gt", &["7"]), Verdict::Leave),
            (expression("zone", "Like", &["a"]), Verdict::Leave),
            (expression("rack", "Exists", &[]), Verdict::Leave),
        ];
        for (pod, expected) in cases {
            assert_eq!(verdict(pod.clone(), node()), expected, "{pod}");
        }
    }

    #[test]
    fn taints_keep_away_or_drive_away_unless_tolerated() {
        let node = |key: &str, effect: &str| json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "value": "v", "effect": effect}]}});
        let tolerating = |toleration: Value| json!({"tolerations": [toleration]});
        let cases = [
            (json!({}), node("x", "NoSchedule"), Verdict::Stay),
            (json!({}), node("x", "NoExecute"), Verdict::Leave),
            (json!({}), node("x", "PreferNoSchedule"), Verdict::Run),
            (json!({}), node("node.kubernetes.io/not-ready", "NoExecute"), Verdict::Run),
            (json!({}), node("node.kubernetes.io/not-ready", "NoSchedule"), Verdict::Stay),
            (json!({}), node("node.kubernetes.io/unschedulable", "NoSchedule"), Verdict::Run),
            (json!({}), node("node.kubernetes.io/network-unavailable", "NoSchedule"), Verdict::Stay),
            (json!({"hostNetwork": true}), node("node.kubernetes.io/network-unavailable", "NoSchedule"), Verdict::Run),
            (tolerating(json!({"operator": "Exists"})), node("x", "NoExecute"), Verdict::Run),
            (tolerating(json!({"key": "x", "value": "v"})), node("x", "NoExecute"), Verdict::Run),
            (tolerating(json!({"key": "x", "value": "w"})), node("x", "NoExecute"), Verdict::Leave),
            (
                tolerating(json!({"key": "x", "operator": "Exists", "effect": "NoSchedule"})),
                node("x", "NoExecute"),
                Verdict::Leave,
            ),
        ];
        for (pod, node, expected) in cases {
            assert_eq!(verdict(pod.clone(), node.clone()), expected, "{pod} {node}");
        }
    }

    #[test]
    fn a_toleration_for_a_time_becomes_one_for_ever() {
        let of = spec(json!({"tolerations": [
            {"key": "mine", "operator": "Exists"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        ]}));
        let tolerations = tolerations(&of);
        let keys: Vec<_> =
            tolerations.iter().map(|one| one.key.as_deref().unwrap().rsplit('/').next().unwrap()).collect();
        assert_eq!(
            keys,
            ["mine", "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"]
        );
        assert!(tolerations.iter().all(|one| one.toleration_seconds.is_none()));
    }

    #[test]
    fn a_pod_is_meant_for_the_node_that_it_is_pinned_to() {
        let mut pod = spec(expression("zone", "In", &["a"]));
        assert_eq!(target(&pod), None);
        pin(&mut pod.affinity, "n");
        assert_eq!(target(&pod), Some("n"));
        assert_eq!(Placement::of(&pod).on(&site(json!({"metadata": {"name": "m"}}))), Verdict::Leave);
        pod.node_name = Some("m".to_owned());
        assert_eq!(target(&pod), Some("m"));
    }
}
