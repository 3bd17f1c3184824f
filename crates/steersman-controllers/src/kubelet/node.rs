//! The Node, its status and its Lease as a kubelet writes them.
//!
//! Follows kubernetes' `pkg/kubelet/kubelet_node_status.go` and `pkg/kubelet/nodestatus`.

pub(crate) mod addresses;
pub(crate) mod images;
pub(crate) mod resources;

use crate::kubelet::node::images::Images;
use crate::kubelet::stage::seed::seed;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// The label of simulated nodes.
pub(crate) const LABEL: &str = "simulate.steersman.dev/node";
/// The annotation of nodes that go away: they send no heartbeats.
pub(crate) const GOES_AWAY: &str = "simulate.steersman.dev/goes-away";
/// The taint of a node that has not reported yet that it is ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const LEASES: &str = "kube-node-lease";
/// The duration of a Lease, and how often it is renewed.
pub(crate) const LEASE_SECONDS: i32 = 40;
pub(crate) const LEASE_PERIOD: Duration = Duration::from_secs(10);
/// How often an unchanged status is posted.
pub(crate) const STATUS_PERIOD: Duration = Duration::from_secs(300);

const VERSION: &str = "v1.36.2";
/// The port of a kubelet.
const PORT: i32 = 10_250;
const ZONES: usize = 3;
/// The most images that a node's status lists, as with a kubelet.
const IMAGES_MAX: usize = 50;

/// The conditions of a node: type, status, reason and message.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The reasons and messages of the Events that a kubelet records at its start.
pub(crate) fn first_events(name: &str) -> [(&'static str, String); 6] {
    let is_now = |state: &str| format!("Node {name} status is now: {state}");
    [
        ("Starting", "Starting kubelet.".to_owned()),
        ("NodeHasSufficientMemory", is_now("NodeHasSufficientMemory")),
        ("NodeHasNoDiskPressure", is_now("NodeHasNoDiskPressure")),
        ("NodeHasSufficientPID", is_now("NodeHasSufficientPID")),
        ("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods".to_owned()),
        ("NodeReady", is_now("NodeReady")),
    ]
}

/// Whether a Node is simulated.
pub(crate) fn is_simulated(node: &Node) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)).is_some_and(|value| value == "true")
}

/// Whether a Node is away according to its annotation; `None` without the annotation.
pub(crate) fn is_away(node: &Node) -> Option<bool> {
    Some(node.metadata.annotations.as_ref()?.get(GOES_AWAY)? == "true")
}

/// Whether the server has the node's condition `Ready` as true.
pub(crate) fn is_known_as_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The address in the node's status.
pub(crate) fn address(node: &Node) -> Option<IpAddr> {
    let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.find(|one| one.type_ == "InternalIP")?.address.parse().ok()
}

/// The Node that a kubelet registers.
pub(crate) fn registered(name: &str, index: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "simulated",
                LABEL: "true",
                "topology.kubernetes.io/region": "simulated",
                "topology.kubernetes.io/zone": format!("simulated-{}", index % ZONES + 1),
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
    })
}

/// A patch of the status of a node. Resources that somebody else has set stay.
pub(crate) fn status(node: &Node, host: IpAddr, images: &Images, now: Timestamp) -> Value {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let known = node.status.as_ref();
    let since = |type_: &str, status: &str| {
        let conditions = known.and_then(|known| known.conditions.as_deref()).unwrap_or_default();
        let same = conditions.iter().find(|one| one.type_ == type_ && one.status == status);
        same.and_then(|one| one.last_transition_time.clone()).unwrap_or(Time(now))
    };
    let condition = |(type_, status, reason, message): (&str, &str, &str, &str)| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": Time(now), "lastTransitionTime": since(type_, status),
        })
    };
    let resources = json!({
        "cpu": "32", "ephemeral-storage": "1Ti", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": "256Gi", "pods": "110",
    });
    let capacity = known.and_then(|known| known.capacity.as_ref()).filter(|capacity| !capacity.is_empty());
    let allocatable = known.and_then(|known| known.allocatable.as_ref()).filter(|all| !all.is_empty());
    let given = capacity.or(allocatable).map_or(resources, |all| json!(all));
    let id = |what: &str| {
        let (high, low) = (seed((name, what, 0)), seed((name, what, 1)));
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        )
    };
    let images: Vec<Value> = images
        .iter()
        .take(IMAGES_MAX)
        .map(|image| json!({"names": [images::id(image), images::reference(image)], "sizeBytes": Images::size(image)}))
        .collect();
    json!({"status": {
        "addresses": [{"type": "InternalIP", "address": host}, {"type": "Hostname", "address": name}],
        "allocatable": allocatable.map_or_else(|| given.clone(), |all| json!(all)),
        "capacity": given,
        "conditions": CONDITIONS.map(condition),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
        "images": images,
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": id("boot"),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.0-simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": VERSION,
            "machineID": id("machine").replace('-', ""),
            "operatingSystem": "linux",
            "osImage": "Steersman (simulated)",
            "systemUUID": id("system"),
        },
    }})
}

/// The Lease of a node to create.
pub(crate) fn lease(node: &Node, now: Timestamp) -> Value {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASES,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(now)},
    })
}

/// A patch that renews a Lease.
pub(crate) fn renewal(name: &str, now: Timestamp) -> Value {
    json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(now)}})
}

/// A patch that removes the taint of a new node; `None` if it has none.
pub(crate) fn without_taint(node: &Node) -> Option<Value> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    let is_it = |key: &str, effect: &str| key == NOT_READY && effect == "NoSchedule";
    let left: Vec<_> = taints.iter().filter(|taint| !is_it(&taint.key, &taint.effect)).collect();
    (left.len() < taints.len()).then(|| {
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": left}})
    })
}
