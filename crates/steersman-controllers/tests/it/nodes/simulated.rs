//! Simulated nodes and the life of Pods on them, on a whole control plane.

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod, PodCondition, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

/// A control plane with this number of simulated nodes and nothing else.
pub(crate) async fn start(n_nodes: usize) -> ControlPlane {
    let plane = ControlPlane::start_with(Loops::none().nodes(n_nodes)).await;
    plane.apply("{kind: ServiceAccount, apiVersion: v1, metadata: {name: default, namespace: default}}").await;
    for name in 1..=n_nodes {
        let key = ObjectKey::cluster(&format!("node-{name}"));
        plane.until(&key, |node: &Node| taints(node).is_empty() && has(node, "Ready", "True")).await;
    }
    plane
}

fn taints(node: &Node) -> Vec<&str> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| taint.key.as_str()).collect()
}

pub(crate) fn has(node: &Node, type_: &str, status: &str) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == type_ && one.status == status)
}

pub(crate) fn pod_key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// A Pod on `node-1` with one container; `annotations` and `spec` are merged in.
async fn run(plane: &ControlPlane, name: &str, annotations: Value, spec: Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    plane.apply(&pod.to_string()).await;
}

pub(crate) fn status(pod: &Pod) -> PodStatus {
    pod.status.clone().unwrap_or_default()
}

pub(crate) fn phase(pod: &Pod) -> String {
    status(pod).phase.unwrap_or_default()
}

fn condition(pod: &Pod, type_: &str) -> Option<String> {
    let conditions = status(pod).conditions.unwrap_or_default();
    conditions.into_iter().find(|one| one.type_ == type_).map(|one| one.status)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").as_deref() == Some("True")
}

pub(crate) fn container(pod: &Pod) -> ContainerStatus {
    status(pod).container_statuses.unwrap_or_default().into_iter().next().unwrap_or_default()
}

/// The reason why the container waits.
pub(crate) fn waits_for(pod: &Pod) -> Option<String> {
    container(pod).state?.waiting?.reason
}

async fn events_of(plane: &ControlPlane, name: &str) -> Vec<(String, String)> {
    let selector = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let mut events = Api::<Event>::all(plane.client()).list(&selector).await.unwrap().items;
    events
        .sort_by_key(|event| event.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok()));
    events.into_iter().map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
}

pub(crate) async fn delete(plane: &ControlPlane, name: &str) {
    Api::<Pod>::namespaced(plane.client(), "default").delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_registers_with_its_resources_its_address_and_a_lease() {
    let plane = start(2).await;
    let node = Api::<Node>::all(plane.client()).get("node-2").await.unwrap();
    let status = node.status.unwrap();
    assert_eq!(status.allocatable.unwrap()["pods"].0, "110");
    assert_eq!(status.node_info.unwrap().operating_system, "linux");
    assert_eq!(status.addresses.unwrap().len(), 2);
    assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/hostname"], "node-2");
    let key = ObjectKey::namespaced("kube-node-lease", "node-2");
    let lease: Lease = plane.until(&key, |_| true).await;
    assert_eq!(lease.metadata.owner_references.unwrap()[0].name, "node-2");
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("node-2"), Some(40)));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_is_ready_and_ends_when_it_is_deleted() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    let pod = plane.until(&pod_key("p"), is_ready).await;
    let found = status(&pod);
    assert_eq!(found.phase.as_deref(), Some("Running"));
    assert!(found.pod_ip.is_some() && found.host_ip.is_some() && found.start_time.is_some());
    for type_ in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, type_).as_deref(), Some("True"), "{type_}");
    }
    let container = container(&pod);
    assert!(container.state.unwrap().running.is_some() && container.ready && container.started == Some(true));
    assert!(container.container_id.unwrap().starts_with("containerd://"));
    assert!(container.image_id.starts_with("docker.io/library/nginx@sha256:"));
    delete(&plane, "p").await;
    plane.until_gone::<Pod>(&pod_key("p")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_has_as_long_as_its_grace_period() {
    let plane = start(1).await;
    let slow = json!({"simulate.steersman.dev/stop-delay": "1h"});
    run(&plane, "p", slow, json!({"terminationGracePeriodSeconds": 1})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let began = tokio::time::Instant::now();
    delete(&plane, "p").await;
    let pod = plane
        .until(&pod_key("p"), |pod: &Pod| container(pod).state.is_some_and(|state| state.terminated.is_some()))
        .await;
    let ended = container(&pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("Error")));
    assert_eq!(phase(&pod), "Failed");
    plane.until_gone::<Pod>(&pod_key("p")).await;
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_the_words_of_a_kubelet() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let wanted = ["Pulling", "Pulled", "Created", "Started"];
    let events = loop {
        let mut events = events_of(&plane, "p").await;
        // The Events are sent concurrently.
        events.sort_by_key(|(reason, _)| wanted.iter().position(|one| one == reason));
        if events.len() >= wanted.len() {
            break events;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(events.iter().map(|(reason, _)| reason.as_str()).collect::<Vec<_>>(), wanted);
    assert_eq!(events[0].1, "Pulling image \"nginx\"");
    assert!(events[1].1.starts_with("Successfully pulled image \"nginx\" in 0s (0s including waiting). Image size: "));
    assert_eq!(events[3].1, "Container started");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_crashes_backs_off() {
    let plane = start(1).await;
    let crashes = json!({"simulate.steersman.dev/crash-loop": "true", "simulate.steersman.dev/exit-code": "3"});
    run(&plane, "p", crashes, json!({})).await;
    let pod = plane.until(&pod_key("p"), |pod| waits_for(pod).as_deref() == Some("CrashLoopBackOff")).await;
    let container = container(&pod);
    assert_eq!(phase(&pod), "Running");
    assert_eq!(container.restart_count, 1);
    let message = container.state.unwrap().waiting.unwrap().message.unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=p_default("), "{message}");
    assert_eq!(container.last_state.unwrap().terminated.unwrap().exit_code, 3);
    delete(&plane, "p").await;
    plane.until_gone::<Pod>(&pod_key("p")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_complete_completes() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({"restartPolicy": "Never"})).await;
    let pod = plane.until(&pod_key("p"), |pod| phase(pod) == "Succeeded").await;
    assert_eq!(container(&pod).state.unwrap().terminated.unwrap().reason.as_deref(), Some("Completed"));
    run(&plane, "q", json!({"simulate.steersman.dev/fail-after": "0"}), json!({"restartPolicy": "Never"})).await;
    plane.until(&pod_key("q"), |pod| phase(pod) == "Failed").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_what_it_refers_to() {
    let plane = start(1).await;
    let env = json!([{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "absent"}}]}]);
    run(&plane, "p", json!({}), json!({"containers": env})).await;
    let pod = plane.until(&pod_key("p"), |pod| waits_for(pod).as_deref() == Some("CreateContainerConfigError")).await;
    let waiting = container(&pod).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.message.as_deref(), Some("configmap \"absent\" not found"));
    assert_eq!(phase(&pod), "Pending");
    plane
        .apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: there, namespace: default}, data: {key: value}}")
        .await;
    let env = json!([{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "there"}}]}]);
    run(&plane, "q", json!({}), json!({"containers": env})).await;
    plane.until(&pod_key("q"), is_ready).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_rejected() {
    let plane = start(1).await;
    let wants = json!([{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "33"}}}]);
    run(&plane, "p", json!({}), json!({"containers": wants})).await;
    let pod = plane.until(&pod_key("p"), |pod| phase(pod) == "Failed").await;
    let status = status(&pod);
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 33000, used: 0, capacity: 32000";
    assert_eq!(status.message.as_deref(), Some(message));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readiness_gate_keeps_a_pod_from_being_ready_until_it_is_opened() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({"readinessGates": [{"conditionType": "example.com/gate"}]})).await;
    let pod = plane.until(&pod_key("p"), |pod| condition(pod, "ContainersReady").as_deref() == Some("True")).await;
    assert!(!is_ready(&pod));
    let gate = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(gate)).await.unwrap();
    plane.until(&pod_key("p"), is_ready).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_users_own_is_played_when_it_is_labelled_and_keeps_its_resources() {
    let plane = start(1).await;
    plane
        .apply(
            "{kind: Node, apiVersion: v1, metadata: {name: small, labels: {simulate.steersman.dev/node: 'true'}}, status: {allocatable: {cpu: '2', memory: 4Gi, pods: '3'}}}",
        )
        .await;
    let node = plane
        .until(&ObjectKey::cluster("small"), |node: &Node| has(node, "Ready", "True") && taints(node).is_empty())
        .await;
    assert!(node.status.unwrap().allocatable.is_some());
    run(&plane, "p", json!({}), json!({"nodeName": "small"})).await;
    plane.until(&pod_key("p"), is_ready).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_goes_away_lets_nothing_happen_until_it_is_back() {
    let plane = start(2).await;
    run(&plane, "before", json!({}), json!({})).await;
    plane.until(&pod_key("before"), is_ready).await;
    go_away(&plane, Some("true")).await;
    until_unheard_of(&plane, "before").await;
    run(&plane, "p", json!({}), json!({})).await;
    // By the time that a later Pod runs on another node, the change has been processed.
    run(&plane, "q", json!({}), json!({"nodeName": "node-2"})).await;
    plane.until(&pod_key("q"), is_ready).await;
    let pod = Api::<Pod>::namespaced(plane.client(), "default").get("p").await.unwrap();
    assert_eq!(phase(&pod), "Pending");
    go_away(&plane, None).await;
    plane.until(&pod_key("p"), is_ready).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_on_where_they_were_when_the_nodes_are_started_anew() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    let before = plane.until(&pod_key("p"), is_ready).await;
    let plane = plane.with_loops(Loops::none()).await.with_loops(Loops::none().nodes(1)).await;
    run(&plane, "q", json!({}), json!({})).await;
    let other = plane.until(&pod_key("q"), is_ready).await;
    let after = Api::<Pod>::namespaced(plane.client(), "default").get("p").await.unwrap();
    assert_eq!(container(&after).container_id, container(&before).container_id);
    assert_eq!(container(&after).restart_count, 0);
    assert_ne!(status(&other).pod_ip, status(&after).pod_ip);
    plane.stop().await;
}

fn node_address(node: &Node) -> Option<&str> {
    Some(&node.status.as_ref()?.addresses.as_ref()?.first()?.address)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_no_pod_gets_the_address_of_a_pod_on_another_node() {
    let plane = start(2).await;
    run(&plane, "p", json!({}), json!({})).await;
    let before = plane.until(&pod_key("p"), is_ready).await;
    let plane = plane.with_loops(Loops::none()).await.with_loops(Loops::none().nodes(2)).await;
    run(&plane, "q", json!({}), json!({"nodeName": "node-2"})).await;
    let other = plane.until(&pod_key("q"), is_ready).await;
    assert_ne!(status(&other).pod_ip, status(&before).pod_ip);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_no_node_gets_the_address_of_another() {
    let plane = start(2).await.with_loops(Loops::none()).await;
    Api::<Node>::all(plane.client()).delete("node-1", &DeleteParams::default()).await.unwrap();
    let plane = plane.with_loops(Loops::none().nodes(2)).await;
    let has_address = |node: &Node| node_address(node).is_some();
    let nodes = [
        plane.until(&ObjectKey::cluster("node-1"), has_address).await,
        plane.until(&ObjectKey::cluster("node-2"), has_address).await,
    ];
    assert_ne!(node_address(&nodes[0]), node_address(&nodes[1]));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_somebody_says_has_failed_is_ended_and_stays_so() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let failed = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "somebody's decision"}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(failed)).await.unwrap();
    let has_ended = |pod: &Pod| container(pod).state.is_some_and(|state| state.terminated.is_some());
    let pod = plane.until(&pod_key("p"), has_ended).await;
    let found = status(&pod);
    assert_eq!((found.phase.as_deref(), found.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("False"));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_just_now_is_looked_for_again_and_does_not_count_as_found() {
    let plane = start(1).await;
    plane.fail_next_where(1, Fault::Refused(429), |_, path| path.ends_with("/configmaps/absent"));
    let env = json!([{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "absent"}}]}]);
    run(&plane, "p", json!({}), json!({"containers": env})).await;
    plane.until(&pod_key("p"), |pod| waits_for(pod).as_deref() == Some("CreateContainerConfigError")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_taint_of_a_new_node_goes_although_taking_it_away_fails_at_first() {
    let plane = ControlPlane::start().await;
    let is_untainting = |method: &Method, path: &str| method == Method::PATCH && path.ends_with("/nodes/node-1");
    plane.fail_next_where(1, Fault::Refused(500), is_untainting);
    let plane = plane.with_loops(Loops::none().nodes(1)).await;
    let is_clean = |node: &Node| taints(node).is_empty() && has(node, "Ready", "True");
    plane.until(&ObjectKey::cluster("node-1"), is_clean).await;
    assert_eq!(plane.n_faults_left(), 0);
    plane.stop().await;
}

const SMALL: &str = "{kind: Node, apiVersion: v1, metadata: {name: small, labels: {simulate.steersman.dev/node: 'true'}}, status: {allocatable: {cpu: '2', memory: 4Gi, pods: '9'}}}";

fn resize_condition(pod: &Pod, type_: &str) -> Option<PodCondition> {
    status(pod).conditions.unwrap_or_default().into_iter().find(|one| one.type_ == type_)
}

/// The CPU requests of a container: the allocated ones, and those in force.
fn cpu(pod: &Pod) -> (String, String) {
    let container = container(pod);
    let given = container.allocated_resources.unwrap_or_default();
    let actual = container.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let cpu = |amounts: &std::collections::BTreeMap<String, _>| {
        amounts
            .get("cpu")
            .map_or_else(String::new, |cpu: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| cpu.0.clone())
    };
    (cpu(&given), cpu(&actual))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_to_have_more_waits_until_the_node_has_it() {
    let plane = start(1).await;
    plane.apply(SMALL).await;
    let with_cpu = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"nodeName": "small", "containers": [{"name": "c", "image": "nginx", "resources": resources}]})
    };
    run(&plane, "p", json!({}), with_cpu("500m")).await;
    run(&plane, "q", json!({}), with_cpu("1")).await;
    for name in ["p", "q"] {
        plane.until(&pod_key(name), is_ready).await;
    }
    let more = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_subresource("resize", "p", &PatchParams::default(), &Patch::Strategic(more)).await.unwrap();
    let pod = plane.until(&pod_key("p"), |pod| resize_condition(pod, "PodResizePending").is_some()).await;
    let pending = resize_condition(&pod, "PodResizePending").unwrap();
    assert_eq!((pending.status.as_str(), pending.reason.as_deref()), ("True", Some("Deferred")));
    let message = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000";
    assert_eq!(pending.message.as_deref(), Some(message));
    assert_eq!(cpu(&pod), ("500m".to_owned(), "500m".to_owned()));
    delete(&plane, "q").await;
    let is_at_it = |pod: &Pod| resize_condition(pod, "PodResizeInProgress").is_some();
    let pod = plane.until(&pod_key("p"), is_at_it).await;
    assert!(resize_condition(&pod, "PodResizePending").is_none());
    assert_eq!(cpu(&pod), ("1500m".to_owned(), "500m".to_owned()));
    let pod = plane.until(&pod_key("p"), |pod: &Pod| !is_at_it(pod)).await;
    assert_eq!(cpu(&pod), ("1500m".to_owned(), "1500m".to_owned()));
    assert!(is_ready(&pod) && container(&pod).restart_count == 0);
    // The new requests count: the node has only half a CPU left.
    run(&plane, "r", json!({}), with_cpu("600m")).await;
    plane.until(&pod_key("r"), |pod| status(pod).reason.as_deref() == Some("OutOfcpu")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_containers_run_in_a_pod_that_runs() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let added = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_subresource("ephemeralcontainers", "p", &PatchParams::default(), &Patch::Strategic(added))
        .await
        .unwrap();
    let debug = |pod: &Pod| status(pod).ephemeral_container_statuses.unwrap_or_default().into_iter().next();
    let runs = |pod: &Pod| debug(pod).and_then(|one| one.state).is_some_and(|state| state.running.is_some());
    plane.until(&pod_key("p"), runs).await;
    let log = kube::api::LogParams { container: Some("debug".to_owned()), ..kube::api::LogParams::default() };
    assert_eq!(pods.logs("p", &log).await.unwrap(), "simulated: busybox would run here\n");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_answers_nobody() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    plane.until(&pod_key("p"), is_ready).await;
    go_away(&plane, Some("true")).await;
    until_unheard_of(&plane, "p").await;
    plane.stop().await;
}

/// Makes `node-1` go away, or come back.
async fn go_away(plane: &ControlPlane, value: Option<&str>) {
    let away = json!({"metadata": {"annotations": {"simulate.steersman.dev/goes-away": value}}});
    Api::<Node>::all(plane.client()).patch("node-1", &PatchParams::default(), &Patch::Merge(away)).await.unwrap();
}

/// Waits until the server reports, in its answer for the Pod's log, that it cannot reach the Pod's node.
async fn until_unheard_of(plane: &ControlPlane, name: &str) {
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let params = kube::api::LogParams::default();
    let unheard_of = async {
        while !pods.logs(name, &params).await.is_err_and(|error| error.to_string().contains("error dialing backend")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), unheard_of).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_say_what_would_run_and_what_does_not() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let log = |previous| kube::api::LogParams { previous, ..kube::api::LogParams::default() };
    assert_eq!(pods.logs("p", &log(false)).await.unwrap(), "simulated: nginx would run here\n");
    let none = kube::api::LogParams { tail_lines: Some(0), ..log(false) };
    assert_eq!(pods.logs("p", &none).await.unwrap(), "");
    let dated =
        kube::api::LogParams { timestamps: true, since_seconds: Some(3_600), limit_bytes: Some(3), ..log(false) };
    assert_eq!(pods.logs("p", &dated).await.unwrap().len(), 3);
    let error = pods.logs("p", &log(true)).await.unwrap_err().to_string();
    assert!(error.contains("previous terminated container \"c\" in pod \"p\" not found"), "{error}");
    run(&plane, "q", json!({"simulate.steersman.dev/delay": "1h"}), json!({})).await;
    plane.until(&pod_key("q"), |pod| waits_for(pod).is_some()).await;
    // The agent learns of the Pod independently of this client.
    let error = loop {
        match pods.logs("q", &log(false)).await {
            Err(error) => break error.to_string(),
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert!(error.contains("container \"c\" in pod \"q\" is waiting to start: ContainerCreating"), "{error}");
    plane.stop().await;
}

/// The nodes' informers deliver the nodes' own writes no earlier than those of others.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_sees_that_a_pod_runs_can_read_its_log() {
    let plane = start(1).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let none = pods.list(&ListParams::default()).await.unwrap();
    let version = none.metadata.resource_version.unwrap();
    let events = pods.watch(&kube::api::WatchParams::default(), &version).await.unwrap();
    let ready = events.filter_map(|event| async move {
        match event.unwrap() {
            kube::core::WatchEvent::Modified(pod) if is_ready(&pod) => pod.metadata.name,
            _ => None,
        }
    });
    let params = kube::api::LogParams::default();
    let logs = ready.map(|name: String| {
        let (pods, params) = (pods.clone(), &params);
        async move { pods.logs(&name, params).await }
    });
    let mut logs = std::pin::pin!(logs.buffer_unordered(N_LOGS).take(N_LOGS));
    let names: Vec<String> = (0..N_LOGS).map(|n| format!("p-{n}")).collect();
    let runs = names.iter().map(|name| run(&plane, name, json!({}), json!({})));
    let reads = async {
        while let Some(log) = logs.next().await {
            assert_eq!(log.unwrap(), "simulated: nginx would run here\n");
        }
    };
    tokio::join!(futures::future::join_all(runs), reads);
    plane.stop().await;
}

/// Enough Pods to make it likely that a log is requested too early.
const N_LOGS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_says_of_a_pod_that_runs_its_node_puts_right() {
    let plane = start(1).await;
    run(&plane, "p", json!({}), json!({})).await;
    let before = plane.until(&pod_key("p"), is_ready).await;
    let foreign = json!([{"name": "x", "image": "x", "imageID": "", "ready": false, "restartCount": 7}]);
    let other = json!({"status": {
        "phase": "Pending", "podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}], "containerStatuses": [],
        "initContainerStatuses": foreign,
    }});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let written = pods.patch_status("p", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    assert_eq!(phase(&written), "Pending");
    let is_right = |pod: &Pod| status(pod).pod_ips == status(&before).pod_ips && phase(pod) == "Running";
    let after = plane.until(&pod_key("p"), is_right).await;
    let containers =
        |pod: &Pod| [&status(pod).container_statuses, &status(pod).init_container_statuses].map(Clone::clone);
    assert_eq!(containers(&after), containers(&before));
    assert_eq!(status(&after).pod_ip, status(&before).pod_ip);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_becomes_available_and_goes_on_when_its_pods_are_deleted() {
    let plane = ControlPlane::start_with(Loops::only(["deployment", "replicaset"]).nodes(2)).await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}});
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    plane.apply(&web.to_string()).await;
    let is_available = |deployment: &k8s_openapi::api::apps::v1::Deployment| {
        deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(3))
    };
    let key = ObjectKey::namespaced("default", "web");
    plane.until(&key, is_available).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    let first = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    delete(&plane, &first.metadata.name.clone().unwrap()).await;
    plane.until_gone::<Pod>(&ObjectKey::of(&first)).await;
    plane.until(&key, is_available).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_scheduler_and_the_nodes_write_is_managed_by_programs_of_their_names() {
    let plane = start(1).await;
    let resources = json!({"requests": {"cpu": "100k"}});
    let spec = json!({"nodeName": null, "containers": [{"name": "c", "image": "nginx", "resources": resources}]});
    run(&plane, "large", json!({}), spec).await;
    let is_refused = |pod: &Pod| condition(pod, "PodScheduled").as_deref() == Some("False");
    let large = plane.until(&pod_key("large"), is_refused).await;
    assert!(managers(&large).contains(&"kube-scheduler"), "{:?}", large.metadata.managed_fields);
    run(&plane, "small", json!({}), json!({})).await;
    let small = plane.until(&pod_key("small"), is_ready).await;
    assert!(managers(&small).contains(&"kubelet"), "{:?}", small.metadata.managed_fields);
    plane.stop().await;
}

fn managers(pod: &Pod) -> Vec<&str> {
    pod.metadata.managed_fields.iter().flatten().filter_map(|one| one.manager.as_deref()).collect()
}
