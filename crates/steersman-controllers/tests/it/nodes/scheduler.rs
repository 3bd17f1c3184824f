//! Pods that get nodes or do not, on a whole control plane with Nodes without kubelets.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, PodCondition};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use steersman::{Manager, ManagerError, ObjectKey};
use steersman_controllers::ControlLoop;
use steersman_controllers::scheduler::{Configuration, Scheduler};
use steersman_testkit::{ControlPlane, Fault, User};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A control plane with the scheduler and nothing else.
struct ScheduledPlane {
    plane: ControlPlane,
    stop: CancellationToken,
    scheduler: JoinHandle<Result<(), ManagerError>>,
}

impl ScheduledPlane {
    async fn start() -> ScheduledPlane {
        ScheduledPlane::on(ControlPlane::start().await, Configuration::default(), Timestamp::now)
    }

    /// Runs the scheduler on a control plane, with profiles and a clock of its own.
    fn on(plane: ControlPlane, configuration: Configuration, clock: fn() -> Timestamp) -> ScheduledPlane {
        let manager = Manager::new(plane.client_as(User::authenticated(ControlLoop::READER, []))).name("scheduler");
        let client = plane.client_as(User::authenticated(Scheduler::USER, []));
        let manager = Scheduler::add(manager, client, configuration, clock);
        let stop = CancellationToken::new();
        let scheduler = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        ScheduledPlane { plane, stop, scheduler }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.scheduler.await.unwrap().unwrap();
        self.plane.stop().await;
    }

    /// Applies a node with this many cores.
    async fn node(&self, name: &str, cpu: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        });
        self.plane.apply(&node.to_string()).await;
        // A new node is tainted until it is ready, which no kubelet reports here.
        let nodes = Api::<Node>::all(self.plane.client());
        let untainted = json!({"spec": {"taints": null}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(untainted)).await.unwrap();
        let amounts = json!({"cpu": cpu, "memory": "64Gi", "pods": "5000"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    async fn pod(&self, name: &str, cpu: &str, priority_class: Option<&str>) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "priorityClassName": priority_class,
                "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}],
            },
        });
        self.plane.apply(&pod.to_string()).await;
    }

    async fn node_of(&self, name: &str) -> String {
        let pod = self.plane.until(&key(name), |pod: &Pod| node_of(pod).is_some()).await;
        node_of(&pod).unwrap_or_default().to_owned()
    }

    async fn event(&self, reason: &str) -> Event {
        let events = Api::<Event>::namespaced(self.plane.client(), "default");
        loop {
            let all = events.list(&ListParams::default()).await.unwrap();
            if let Some(found) = all.items.into_iter().find(|event| event.reason.as_deref() == Some(reason)) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A fixed time.
fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "PodScheduled")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_to_the_node_that_has_room_and_an_event_says_so() {
    let scheduled_plane = ScheduledPlane::start().await;
    scheduled_plane.node("small", "1").await;
    scheduled_plane.node("large", "8").await;
    scheduled_plane.pod("p", "4", None).await;
    assert_eq!(scheduled_plane.node_of("p").await, "large");
    let pod = scheduled_plane
        .plane
        .until(&key("p"), |pod: &Pod| scheduled(pod).is_some_and(|one| one.status == "True"))
        .await;
    assert!(scheduled(&pod).is_some());
    let event = scheduled_plane.event("Scheduled").await;
    assert_eq!(event.note.as_deref(), Some("Successfully assigned default/p to large"));
    assert_eq!(event.reporting_controller.as_deref(), Some("default-scheduler"));
    assert_eq!(event.action.as_deref(), Some("Binding"));
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_node_says_why_and_gets_one_when_one_comes() {
    let scheduled_plane = ScheduledPlane::on(ControlPlane::start().await, Configuration::default(), noon);
    scheduled_plane.node("small", "1").await;
    scheduled_plane.pod("p", "4", None).await;
    let said = |pod: &Pod| scheduled(pod).is_some_and(|one| one.reason.as_deref() == Some("Unschedulable"));
    let pod = scheduled_plane.plane.until(&key("p"), said).await;
    assert_eq!(
        scheduled(&pod).and_then(|one| one.message.as_deref()),
        Some(
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not \
             helpful for scheduling."
        )
    );
    assert_eq!(scheduled(&pod).and_then(|one| one.last_transition_time.as_ref()).map(|time| time.0), Some(noon()));
    assert_eq!(scheduled_plane.event("FailedScheduling").await.type_.as_deref(), Some("Warning"));
    scheduled_plane.node("large", "8").await;
    assert_eq!(scheduled_plane.node_of("p").await, "large");
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_less_important_pod_makes_room() {
    let scheduled_plane = ScheduledPlane::start().await;
    scheduled_plane.node("n", "4").await;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}";
    scheduled_plane.plane.apply(class).await;
    scheduled_plane.pod("low", "4", None).await;
    scheduled_plane.node_of("low").await;
    scheduled_plane.pod("high", "4", Some("high")).await;
    let low = scheduled_plane.plane.until(&key("low"), |pod: &Pod| pod.metadata.deletion_timestamp.is_some()).await;
    let conditions = low.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    assert_eq!(target.message.as_deref(), Some("default-scheduler: preempting to accommodate a higher priority pod"));
    let nominated = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some());
    let high = scheduled_plane.plane.until(&key("high"), nominated).await;
    let uid = high.metadata.uid.unwrap();
    let event = scheduled_plane.event("Preempted").await;
    assert_eq!(event.note, Some(format!("Preempted by pod {uid} on node n")));
    let now = DeleteParams::default().grace_period(0);
    Api::<Pod>::namespaced(scheduled_plane.plane.client(), "default").delete("low", &now).await.unwrap();
    assert_eq!(scheduled_plane.node_of("high").await, "n");
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_fails_is_tried_again() {
    let scheduled_plane = ScheduledPlane::start().await;
    scheduled_plane.node("n", "4").await;
    let is_binding = |_: &http::Method, path: &str| path.ends_with("/binding");
    scheduled_plane.plane.fail_next_where(1, Fault::Refused(500), is_binding);
    scheduled_plane.pod("p", "1", None).await;
    assert_eq!(scheduled_plane.node_of("p").await, "n");
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_for_its_consumer_is_told_the_node() {
    let scheduled_plane = ScheduledPlane::start().await;
    scheduled_plane.node("n", "4").await;
    scheduled_plane.plane.apply("
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: example.com/disks, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: nginx}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}
").await;
    let selected = "volume.kubernetes.io/selected-node";
    let is_told = |claim: &PersistentVolumeClaim| {
        claim.metadata.annotations.as_ref().is_some_and(|all| all.get(selected).is_some_and(|node| node == "n"))
    };
    scheduled_plane.plane.until(&key("data"), is_told).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(scheduled_plane.plane.client(), "default");
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"},
    });
    scheduled_plane.plane.apply("{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: fast, hostPath: {path: /disk}}}").await;
    claims.patch("data", &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
    assert_eq!(scheduled_plane.node_of("p").await, "n");
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_pods_are_spread_evenly() {
    let scheduled_plane = ScheduledPlane::start().await;
    for at in 0..10 {
        scheduled_plane.node(&format!("n{at}"), "64").await;
    }
    let pods = Api::<Pod>::namespaced(scheduled_plane.plane.client(), "default");
    let created = (0..300).map(|at| {
        let pods = pods.clone();
        async move {
            let pod = json!({
                "metadata": {"name": format!("p{at}")},
                "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}]},
            });
            let pod = serde_json::from_value(pod).unwrap();
            pods.create(&PostParams::default(), &pod).await.unwrap();
        }
    });
    futures::future::join_all(created).await;
    let mut counts = BTreeMap::<String, usize>::new();
    for at in 0..300 {
        *counts.entry(scheduled_plane.node_of(&format!("p{at}")).await).or_default() += 1;
    }
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(counts.len() == 10 && most - least <= 20, "{counts:?}");
    scheduled_plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_panics_ends_the_scheduler_with_an_error() {
    // The clock is read for the condition of a Pod that finds no node.
    let scheduled_plane =
        ScheduledPlane::on(ControlPlane::start().await, Configuration::default(), || panic!("the clock is broken"));
    scheduled_plane.pod("p", "1", None).await;
    let ended =
        tokio::time::timeout(Duration::from_secs(30), scheduled_plane.scheduler).await.expect("the scheduler goes on");
    let error = ended.unwrap().unwrap_err();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let said: Vec<String> = causes.map(ToString::to_string).collect();
    assert!(said.iter().any(|said| said == "a request of the scheduler panicked"), "{said:?}");
    scheduled_plane.plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_profile_binds_and_reports_under_its_own_name() {
    let configuration = Configuration::read(&json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": "packing", "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]},
        ],
    }));
    let scheduled_plane = ScheduledPlane::on(ControlPlane::start().await, configuration.unwrap(), Timestamp::now);
    scheduled_plane.node("small", "2").await;
    scheduled_plane.node("large", "64").await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "schedulerName": "packing",
            "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
    });
    scheduled_plane.plane.apply(&pod.to_string()).await;
    assert_eq!(scheduled_plane.node_of("p").await, "small");
    let event = scheduled_plane.event("Scheduled").await;
    assert_eq!(event.reporting_controller.as_deref(), Some("packing"));
    scheduled_plane.stop().await;
}

/// Serves an extender that allows only the node `chosen`, and binds by itself with this client.
async fn serve_extender(client: kube::Client) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let client = client.clone();
            let answer = service_fn(move |request| answer_of_extender(request, client.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    address
}

async fn answer_of_extender(
    request: Request<Incoming>,
    client: kube::Client,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let answer = match path.as_str() {
        "/filter" => {
            let nodes = request["Nodes"]["items"].as_array().unwrap();
            let (chosen, others): (Vec<&Value>, Vec<&Value>) =
                nodes.iter().partition(|node| node["metadata"]["labels"]["kubernetes.io/hostname"] == "chosen");
            let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
            let failed: BTreeMap<String, &str> = others.into_iter().map(|node| (name(node), "not chosen")).collect();
            json!({"nodes": {"items": chosen}, "failedNodes": failed})
        }
        "/bind" => {
            let name = request["PodName"].as_str().unwrap();
            let binding = json!({
                "metadata": {"name": name, "uid": request["PodUID"]},
                "target": {"kind": "Node", "name": request["Node"]},
            });
            let pods = Api::<Pod>::namespaced(client, request["PodNamespace"].as_str().unwrap());
            let bound: Result<Value, kube::Error> =
                pods.create_subresource("binding", name, &PostParams::default(), &binding).await;
            json!({"Error": bound.err().map(|error| error.to_string()).unwrap_or_default()})
        }
        other => panic!("{other}"),
    };
    Ok(Response::new(Full::from(answer.to_string())))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_chooses_the_node_and_binds_the_pod() {
    let plane = ControlPlane::start().await;
    let address = serve_extender(plane.client_as(User::authenticated(Scheduler::USER, []))).await;
    let configuration = Configuration::read(&json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": format!("http://{address}"), "filterVerb": "filter", "bindVerb": "bind"}],
    }));
    let scheduled_plane = ScheduledPlane::on(plane, configuration.unwrap(), Timestamp::now);
    scheduled_plane.node("other", "64").await;
    scheduled_plane.pod("p", "1", None).await;
    let pod = scheduled_plane.plane.until(&key("p"), |pod: &Pod| scheduled(pod).is_some()).await;
    let message = scheduled(&pod).and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    assert!(message.starts_with("0/1 nodes are available: 1 not chosen."), "{message}");
    // The new node is an event that lets the Pod be tried again.
    scheduled_plane.node("chosen", "2").await;
    assert_eq!(scheduled_plane.node_of("p").await, "chosen");
    scheduled_plane.event("Scheduled").await;
    scheduled_plane.stop().await;
}
