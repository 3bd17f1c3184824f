//! Whether a node takes a Pod: its resources, and the labels and the ports that the Pod asks for.
//!
//! Follows kubernetes' `pkg/kubelet/lifecycle/predicate.go` in the checks, their order and the messages.

use crate::kubelet::pod::container::{self, Role};
use crate::shared::host_port::HostPort;
use crate::shared::labels::{Labels, RequiredNodes};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource as k8s;
use std::collections::BTreeMap;
use steersman_machinery::quantity::Quantity;

/// Amounts by resource name: millicores of CPU, and whole units of other resources.
pub(crate) type Amounts = BTreeMap<String, i64>;
type Quantities = BTreeMap<String, k8s::Quantity>;

/// Why a Pod is not admitted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The total of the requests of the Pods on a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Used {
    pub(crate) n_pods: i64,
    pub(crate) amounts: Amounts,
}

impl Used {
    pub(crate) fn add(&mut self, requests: &Amounts) {
        self.n_pods = self.n_pods.saturating_add(1);
        for (name, amount) in requests {
            let sum = self.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, requests: &Amounts) {
        self.n_pods = self.n_pods.saturating_sub(1);
        for (name, amount) in requests {
            if let Some(sum) = self.amounts.get_mut(name) {
                *sum = sum.saturating_sub(*amount);
            }
        }
    }
}

/// The amount of a quantity. An invalid quantity counts as zero.
fn amount(name: &str, quantity: &k8s::Quantity) -> i64 {
    counted(name, &quantity.0).map_or(0, |amount| i64::try_from(amount).unwrap_or(i64::MAX))
}

/// Millicores of CPU, or whole units of another resource. `None` if the text is not a quantity, or negative.
pub(crate) fn parse(name: &str, text: &str) -> Option<u64> {
    let amount = counted(name, text).filter(|amount| *amount >= 0)?;
    Some(u64::try_from(amount).unwrap_or(u64::MAX))
}

/// The amount, rounded up, in thousandths for CPU.
fn counted(name: &str, text: &str) -> Option<i128> {
    let nanos = Quantity::parse(text.trim()).ok()?.nanos();
    let unit = if name == "cpu" { 1_000_000 } else { 1_000_000_000 };
    Some(nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0))
}

fn amounts(quantities: Option<&Quantities>) -> Amounts {
    quantities.into_iter().flatten().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

fn add(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// The requests of a Pod: those of its containers together, or of an init container with the sidecars before it if that
/// is more, plus the overhead.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    let (mut sum, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (spec, role) in container::all(pod) {
        let own = amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        match role {
            Role::Main => add(&mut sum, &own),
            Role::Sidecar => {
                add(&mut sum, &own);
                add(&mut sidecars, &own);
            }
            Role::Init => {
                let mut at_once = sidecars.clone();
                add(&mut at_once, &own);
                for (name, amount) in at_once {
                    let known = most.entry(name).or_default();
                    *known = (*known).max(amount);
                }
            }
        }
    }
    for (name, amount) in most {
        let known = sum.entry(name).or_default();
        *known = (*known).max(amount);
    }
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.as_ref());
    sum.extend(amounts(of_pod));
    add(&mut sum, &amounts(spec.and_then(|spec| spec.overhead.as_ref())));
    sum
}

/// Why a node does not admit a Pod in addition to the Pods that it has.
pub(crate) fn rejection(node: &Node, used: &Used, pod: &Pod, requests: &Amounts) -> Option<Rejection> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let capacity = |name: &str| allocatable.and_then(|all| all.get(name)).map(|quantity| amount(name, quantity));
    let lacking = |name: &str, requested: i64, used: i64| {
        let capacity = capacity(name).unwrap_or_default();
        let is_lacking = requested > 0 && requested > capacity.saturating_sub(used);
        is_lacking.then(|| Rejection {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        })
    };
    let first = ["cpu", "memory", "ephemeral-storage"];
    // Resources that the node does not list are ignored.
    let others = requests.keys().map(String::as_str).filter(|name| !first.contains(name) && capacity(name).is_some());
    let of_requests = |name: &str| {
        let requested = requests.get(name).copied().unwrap_or_default();
        lacking(name, requested, used.amounts.get(name).copied().unwrap_or_default())
    };
    lacking("pods", 1, used.n_pods).or_else(|| first.into_iter().chain(others).find_map(of_requests)).or_else(|| {
        (!is_selected(node, pod)).then(|| Rejection {
            reason: "NodeAffinity".to_owned(),
            message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
        })
    })
}

/// The ports of its node that a Pod asks for.
pub(crate) fn ports(pod: &Pod) -> Vec<HostPort> {
    pod.spec.as_ref().map(HostPort::of).unwrap_or_default()
}

/// Why a node does not take a Pod if these of its ports are taken.
pub(crate) fn port_conflict(mut taken: impl Iterator<Item = HostPort>, pod: &Pod) -> Option<Rejection> {
    let wanted = Some(ports(pod)).filter(|ports| !ports.is_empty())?;
    let is_taken = taken.any(|port| wanted.iter().any(|one| one.conflicts(&port)));
    is_taken.then(|| Rejection {
        reason: "NodePorts".to_owned(),
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
    })
}

/// Whether the node has the labels that the Pod asks for.
fn is_selected(node: &Node, pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let (name, labels) = (node.metadata.name.as_deref().unwrap_or_default(), node.metadata.labels.as_ref());
    RequiredNodes::read(spec).matches(name, labels.unwrap_or(&Labels::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn node(allocatable: serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd", "rack": "7"}}, "status": {"allocatable": allocatable},
        }))
        .unwrap()
    }

    #[test]
    fn amounts_are_rounded_up_to_thousandths_of_a_cpu_and_to_bytes() {
        let amount = |name, text: &str| amount(name, &k8s::Quantity(text.to_owned()));
        assert_eq!(["0.1", "1.5", "1u", "1e3"].map(|text| amount("cpu", text)), [100, 1500, 1, 1_000_000]);
        assert_eq!(["100m", "0.5Gi", "2k", "nothing"].map(|text| amount("memory", text)), [1, 536_870_912, 2000, 0]);
    }

    #[test]
    fn an_init_container_counts_only_if_it_needs_more_than_the_rest() {
        let of = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let pod = pod(json!({
            "initContainers": [sidecar, of("1")], "containers": [of("300m"), of("200m")], "overhead": {"cpu": "10m"},
        }));
        assert_eq!(requests(&pod)["cpu"], 1110);
    }

    #[test]
    fn what_lacks_first_is_said() {
        let node = node(json!({"cpu": "1", "memory": "1Gi", "pods": "1"}));
        let pod = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}]}));
        let says = |used: &Used| rejection(&node, used, &pod, &requests(&pod)).unwrap();
        let first = says(&Used::default());
        assert_eq!(first.reason, "OutOfcpu");
        assert_eq!(first.message, "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000");
        let full = says(&Used { n_pods: 1, amounts: Amounts::new() });
        assert_eq!(full.message, "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1");
    }

    #[test]
    fn a_pod_for_other_nodes_is_not_taken() {
        let node = node(json!({"pods": "1"}));
        let reason = |spec| {
            let pod = pod(spec);
            rejection(&node, &Used::default(), &pod, &requests(&pod)).map(|rejection| rejection.reason)
        };
        let requires = |key: &str, operator: &str, values: &[&str]| {
            let expression = json!({"key": key, "operator": operator, "values": values});
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
        };
        assert_eq!(reason(json!({"containers": [], "nodeSelector": {"disk": "ssd"}})), None);
        assert_eq!(reason(json!({"containers": [], "nodeSelector": {"disk": "hdd"}})).as_deref(), Some("NodeAffinity"));
        assert_eq!(reason(requires("rack", "Gt", &["6"])), None);
        assert_eq!(reason(requires("rack", "Lt", &["6"])).as_deref(), Some("NodeAffinity"));
        assert_eq!(reason(requires("disk", "NotIn", &["ssd"])).as_deref(), Some("NodeAffinity"));
    }

    #[test]
    fn a_pod_is_not_taken_whose_port_of_the_node_another_pod_has() {
        let with = |ports: serde_json::Value| pod(json!({"containers": [{"name": "c", "ports": ports}]}));
        let other = with(
            json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 81, "hostIP": "10.0.0.1"}]),
        );
        let reason =
            |ports| port_conflict(super::ports(&other).into_iter(), &with(ports)).map(|rejection| rejection.reason);
        assert_eq!(reason(json!([{"containerPort": 1, "hostPort": 80}])).as_deref(), Some("NodePorts"));
        assert_eq!(reason(json!([{"containerPort": 1, "hostPort": 81}])).as_deref(), Some("NodePorts"));
        assert_eq!(reason(json!([{"containerPort": 1, "hostPort": 81, "hostIP": "10.0.0.2"}])), None);
        assert_eq!(reason(json!([{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}])), None);
        assert_eq!(reason(json!([{"containerPort": 80}])), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = amount("cpu", &k8s::Quantity(text));
        }

        #[test]
        fn what_was_added_can_be_subtracted(amounts in proptest::collection::btree_map("[a-c]", 0_i64..1000, 0..3)) {
            let mut used = Used::default();
            used.add(&amounts);
            used.subtract(&amounts);
            prop_assert_eq!(used.n_pods, 0);
            prop_assert!(used.amounts.values().all(|amount| *amount == 0));
        }
    }
}
