//! Nodes that are not ready, send no heartbeats or are tainted, and their Pods.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops, Options};
use tokio::time::{Duration, Instant};

const LOOPS: [&str; 2] = ["nodelifecycle", "taint-eviction-controller"];

struct Nodes {
    plane: ControlPlane,
}

impl Nodes {
    async fn start() -> Nodes {
        let options = Options { loops: Loops::only(LOOPS), patience: Duration::from_secs(600), ..Options::default() };
        Nodes { plane: ControlPlane::try_start(options).await.unwrap() }
    }

    /// Creates a Node with these conditions.
    async fn node(&self, name: &str, conditions: &[(&str, &str)]) {
        self.plane.apply(&format!("{{kind: Node, apiVersion: v1, metadata: {{name: {name}}}}}")).await;
        self.beat(name, conditions, 0).await;
    }

    /// Sends a heartbeat of a Node, this many seconds after the first.
    async fn beat(&self, name: &str, conditions: &[(&str, &str)], secs: i64) {
        let time = Timestamp::from_second(1_700_000_000 + secs).unwrap().to_string();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({"type": type_, "status": status, "lastHeartbeatTime": time, "lastTransitionTime": time})
            })
            .collect();
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        let nodes = Api::<Node>::all(self.plane.client());
        nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until a Node has these taints, in any order.
    async fn until_taints(&self, name: &str, want: &[&str]) -> Node {
        self.plane.until(&ObjectKey::cluster(name), |node: &Node| taints(node) == want).await
    }

    /// Creates a ready Pod on a Node, with tolerations.
    async fn pod(&self, name: &str, node: &str, tolerations: Value) {
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        });
        self.plane.apply(&pod.to_string()).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let pods = Api::<Pod>::namespaced(self.plane.client(), "default");
        pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }

    async fn until_pod(&self, name: &str, condition: impl Fn(&Pod) -> bool) -> Pod {
        self.plane.until(&ObjectKey::namespaced("default", name), condition).await
    }

    /// The Events of an object, once there are this many.
    async fn events(&self, name: &str, n_wanted: usize) -> Vec<String> {
        let events = Api::<Event>::namespaced(self.plane.client(), "default");
        let begin = Instant::now();
        loop {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let about = all.iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
            let mut texts: Vec<String> = about
                .map(|event| {
                    let text = |part: &Option<String>| part.clone().unwrap_or_default();
                    let source = event.source.clone().unwrap_or_default();
                    format!(
                        "{} {}: {} ({})",
                        text(&event.type_),
                        text(&event.reason),
                        text(&event.message),
                        text(&source.component)
                    )
                })
                .collect();
            texts.sort();
            if texts.len() >= n_wanted || begin.elapsed() > Duration::from_secs(30) {
                return texts;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints: Vec<String> = taints
        .map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect))
        .collect();
    taints.sort();
    taints
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<(&'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default()))
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[tokio::test(start_paused = true)]
async fn conditions_become_taints_and_go_with_them() {
    let nodes = Nodes::start().await;
    nodes.node("other", &[("Ready", "True")]).await;
    nodes.node("a", &[("Ready", "True"), ("MemoryPressure", "True"), ("NetworkUnavailable", "True")]).await;
    nodes.until_taints("a", &["memory-pressure:NoSchedule", "network-unavailable:NoSchedule"]).await;
    nodes.beat("a", &[("MemoryPressure", "False"), ("NetworkUnavailable", "False")], 1).await;
    nodes.until_taints("a", &[]).await;
    nodes.beat("a", &[("Ready", "False")], 2).await;
    nodes.until_taints("a", &["not-ready:NoExecute", "not-ready:NoSchedule"]).await;
    nodes.beat("a", &[("Ready", "Unknown")], 3).await;
    nodes.until_taints("a", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await;
    nodes.beat("a", &[("Ready", "True")], 4).await;
    nodes.until_taints("a", &[]).await;
    let want = ["Normal RegisteredNode: Node a event: Registered Node a in Controller (node-controller)"];
    assert_eq!(nodes.events("a", 1).await, want);
    nodes.plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_is_unknown_after_fifty_seconds_and_its_pods_are_not_ready() {
    let nodes = Nodes::start().await;
    let leases = Api::<Lease>::namespaced(nodes.plane.client(), "kube-node-lease");
    let lease = |time: &str| json!({"spec": {"holderIdentity": "b", "renewTime": time}});
    nodes.plane.apply("{kind: Lease, apiVersion: coordination.k8s.io/v1, metadata: {name: b, namespace: kube-node-lease}, spec: {renewTime: '2020-01-01T00:00:00.000000Z'}}").await;
    nodes.node("b", &[("Ready", "True")]).await;
    nodes.node("a", &[("Ready", "True")]).await;
    nodes.pod("p", "a", json!([])).await;
    let begin = Instant::now();
    // The other Node renews its Lease, with a clock that is far behind.
    for secs in 1..6 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let time = format!("2020-01-01T00:00:{secs:02}.000000Z");
        leases.patch("b", &PatchParams::default(), &Patch::Merge(lease(&time))).await.unwrap();
        if secs == 4 {
            let node = Api::<Node>::all(nodes.plane.client()).get("a").await.unwrap();
            assert_eq!(taints(&node), [""; 0], "after 40 s");
        }
    }
    let silent = nodes.until_taints("a", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await;
    assert!((50..55).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let ready = &silent.status.unwrap().conditions.unwrap()[0];
    assert_eq!(ready.message.as_deref(), Some("Kubelet stopped posting node status."));
    nodes.until_pod("p", |pod| condition(pod, "Ready") == Some(("False", ""))).await;
    let want = [
        "Normal NodeNotReady: Node a status is now: NodeNotReady (node-controller)",
        "Normal RegisteredNode: Node a event: Registered Node a in Controller (node-controller)",
    ];
    assert_eq!(nodes.events("a", 2).await, want);
    assert_eq!(nodes.events("p", 1).await, ["Warning NodeNotReady: Node is not ready (node-controller)"]);
    let other = Api::<Node>::all(nodes.plane.client()).get("b").await.unwrap();
    assert_eq!(taints(&other), [""; 0]);
    nodes.plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_no_node_is_ready_none_is_tainted_to_evict() {
    let nodes = Nodes::start().await;
    for name in ["a", "b"] {
        nodes.node(name, &[("Ready", "True")]).await;
    }
    nodes.until_taints("a", &[]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    for name in ["a", "b"] {
        nodes.until_taints(name, &["unreachable:NoSchedule"]).await;
    }
    nodes.beat("b", &[("Ready", "True")], 1).await;
    nodes.until_taints("b", &[]).await;
    nodes.until_taints("a", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await;
    nodes.plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_says_anything_is_unknown_after_a_minute_and_forgotten_when_it_goes() {
    let nodes = Nodes::start().await;
    nodes.plane.apply("{kind: Node, apiVersion: v1, metadata: {name: a}}").await;
    let has_all = |node: &Node| {
        node.status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|conditions| conditions.len() == 4)
    };
    let node = nodes.plane.until(&ObjectKey::cluster("a"), has_all).await;
    let conditions = node.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().all(|condition| condition.reason.as_deref() == Some("NodeStatusNeverUpdated")));
    Api::<Node>::all(nodes.plane.client()).delete("a", &DeleteParams::default()).await.unwrap();
    let want = [
        "Normal RegisteredNode: Node a event: Registered Node a in Controller (node-controller)",
        "Normal RemovingNode: Node a event: Removing Node a from Controller (node-controller)",
    ];
    assert_eq!(nodes.events("a", 2).await, want);
    nodes.plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_by_taints_that_they_do_not_tolerate_for_longer() {
    let nodes = Nodes::start().await;
    nodes.node("a", &[("Ready", "True")]).await;
    let toleration = |seconds: Value| json!([{"key": "mine", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    nodes.pod("strict", "a", json!([])).await;
    nodes.pod("brief", "a", toleration(json!(100))).await;
    nodes.pod("patient", "a", toleration(json!(1_000))).await;
    nodes.pod("tolerant", "a", toleration(Value::Null)).await;
    let api = Api::<Node>::all(nodes.plane.client());
    let taint = |taints: Value| Patch::Strategic(json!({"spec": {"taints": taints}}));
    let begin = Instant::now();
    api.patch("a", &PatchParams::default(), &taint(json!([{"key": "mine", "effect": "NoExecute"}]))).await.unwrap();
    let strict = nodes.until_pod("strict", is_ending).await;
    assert_eq!(condition(&strict, "DisruptionTarget"), Some(("True", "DeletionByTaintManager")));
    assert_eq!(strict.metadata.deletion_grace_period_seconds, Some(30));
    assert!(begin.elapsed() < Duration::from_secs(50));
    // The Node has to send heartbeats, or it would be tainted as unreachable.
    for secs in 1..15 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        nodes.beat("a", &[("Ready", "True")], secs).await;
    }
    let brief = nodes.until_pod("brief", is_ending).await;
    assert_eq!(condition(&brief, "DisruptionTarget"), Some(("True", "DeletionByTaintManager")));
    api.patch("a", &PatchParams::default(), &taint(Value::Null)).await.unwrap();
    let want = ["Normal TaintManagerEviction: Cancelling deletion of Pod default/patient (taint-eviction-controller)"];
    assert_eq!(nodes.events("patient", 1).await, want);
    let want = ["Normal TaintManagerEviction: Marking for deletion Pod default/brief (taint-eviction-controller)"];
    assert_eq!(nodes.events("brief", 1).await, want);
    for name in ["patient", "tolerant"] {
        nodes.until_pod(name, |pod| !is_ending(pod)).await;
    }
    nodes.plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_to_a_node_that_is_not_ready_is_not_ready_either() {
    let nodes = Nodes::start().await;
    nodes.node("a", &[("Ready", "False")]).await;
    nodes.until_taints("a", &["not-ready:NoSchedule"]).await;
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    nodes.plane.apply(&pod.to_string()).await;
    let pods = Api::<Pod>::namespaced(nodes.plane.client(), "default");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    let binding = json!({
        "kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"},
    });
    pods.create_subresource::<Value, Value>("binding", "p", &PostParams::default(), &binding).await.unwrap();
    let marked = nodes.until_pod("p", |pod| condition(pod, "Ready") == Some(("False", ""))).await;
    assert_eq!(marked.name_any(), "p");
    nodes.plane.stop().await;
}
