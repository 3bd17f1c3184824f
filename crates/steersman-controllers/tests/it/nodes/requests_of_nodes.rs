//! Events during requests of simulated nodes: the nodes here have clients whose answers can be held back.

use http::{Method, Request};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::{Manager, ManagerError, ObjectKey};
use steersman_controllers::Identity;
use steersman_controllers::kubelet::Simulation;
use steersman_testkit::{ApiService, ControlPlane, User};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// Selects requests by method and path.
type Selects = fn(&Method, &str) -> bool;

/// The treatment of selected requests, after they were carried out.
#[derive(Clone)]
enum Treatment {
    /// Their answers are held back until this is true.
    Hold(watch::Receiver<bool>),
    Panic,
}

/// A control plane with one simulated node.
struct Simulated {
    plane: ControlPlane,
    lets_go: watch::Sender<bool>,
    /// The number of selected requests that have been carried out.
    n_selected: watch::Receiver<usize>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ManagerError>>,
}

fn client(service: ApiService, selects: Selects, treatment: Treatment, n_selected: watch::Sender<usize>) -> Client {
    let answer = move |request: Request<kube::client::Body>| {
        let is_selected = selects(request.method(), request.uri().path());
        let (service, treatment, n_selected) = (service.clone(), treatment.clone(), n_selected.clone());
        async move {
            let answer = service.oneshot(request).await;
            if is_selected {
                n_selected.send_modify(|n| *n += 1);
                match treatment {
                    Treatment::Hold(mut lets_go) => drop(lets_go.wait_for(|lets_go| *lets_go).await),
                    Treatment::Panic => panic!("because the test wants it"),
                }
            }
            answer
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

impl Simulated {
    /// Holds back the answers to the node's selected requests, or panics instead.
    async fn start(selects: Selects, panics: bool) -> Simulated {
        let plane = ControlPlane::start().await;
        plane.apply("{kind: ServiceAccount, apiVersion: v1, metadata: {name: default, namespace: default}}").await;
        let (lets_go, held) = watch::channel(false);
        let (selected, n_selected) = watch::channel(0);
        let treatment = if panics { Treatment::Panic } else { Treatment::Hold(held) };
        // One service for each user, created before the plane is moved.
        let node = plane.service_as(User::authenticated("system:node:node-1", ["system:nodes".to_owned()]));
        let controller = plane.service_as(User::master("controller"));
        let client_of = move |identity: Identity| match identity.user.as_str() {
            "system:node:node-1" => client(node.clone(), selects, treatment.clone(), selected.clone()),
            _ => client(controller.clone(), |_, _| false, treatment.clone(), selected.clone()),
        };
        let manager = Simulation::new(1, Arc::new(client_of)).add_to(Manager::new(plane.client()));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(manager.run(async move { drop(stopped.await) }));
        Simulated { plane, lets_go, n_selected, stop, running }
    }

    /// Waits until a request was selected and its answer is held back.
    async fn until_held(&mut self) {
        self.n_selected.wait_for(|n| *n > 0).await.unwrap();
    }

    async fn run(&self, name: &str, spec: Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx"}]},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        self.plane.apply(&pod.to_string()).await;
    }

    async fn until_ready(&self, name: &str) {
        self.plane.until(&ObjectKey::namespaced("default", name), is_ready).await;
    }

    async fn stop(self) {
        self.lets_go.send_replace(true);
        self.stop.send(()).unwrap();
        self.running.await.unwrap().unwrap();
        self.plane.stop().await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_written_over_while_the_node_writes_it_is_written_again() {
    let is_status = |method: &Method, path: &str| method == Method::PATCH && path.ends_with("/pods/p/status");
    let mut nodes = Simulated::start(is_status, false).await;
    nodes.run("p", json!({})).await;
    nodes.until_held().await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let pods = Api::<Pod>::namespaced(nodes.plane.client(), "default");
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(unready)).await.unwrap();
    // By now the node's informer has delivered the change, since it has delivered a later one.
    nodes.run("other", json!({})).await;
    nodes.until_ready("other").await;
    nodes.lets_go.send_replace(true);
    nodes.until_ready("p").await;
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_said_to_be_unready_while_it_posts_its_status_posts_it_again() {
    let is_status = |method: &Method, path: &str| method == Method::PATCH && path.ends_with("/nodes/node-1/status");
    let mut nodes = Simulated::start(is_status, false).await;
    nodes.until_held().await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let api = Api::<Node>::all(nodes.plane.client());
    api.patch_status("node-1", &PatchParams::default(), &Patch::Strategic(unready)).await.unwrap();
    // By now the node's informer has delivered the change, since it has delivered a later one.
    nodes.run("other", json!({})).await;
    nodes.until_ready("other").await;
    nodes.lets_go.send_replace(true);
    nodes.plane.until(&ObjectKey::cluster("node-1"), is_node_ready).await;
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_refers_to_is_known_although_the_answer_came_while_the_node_was_away() {
    let is_look = |method: &Method, path: &str| method == Method::GET && path.ends_with("/configmaps/there");
    let mut nodes = Simulated::start(is_look, false).await;
    nodes.plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: there, namespace: default}}").await;
    let env = json!([{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "there"}}]}]);
    nodes.run("p", json!({"containers": env})).await;
    nodes.until_held().await;
    let api = Api::<Node>::all(nodes.plane.client());
    let away = |value: Option<&str>| {
        Patch::Merge(json!({"metadata": {"annotations": {"simulate.steersman.dev/goes-away": value}}}))
    };
    // When this other node, which is not away, is ready, the task has processed the change before.
    let other = "{kind: Node, apiVersion: v1, metadata: {name: other, labels: {simulate.steersman.dev/node: 'true'}}}";
    api.patch("node-1", &PatchParams::default(), &away(Some("true"))).await.unwrap();
    nodes.plane.apply(other).await;
    nodes.plane.until(&ObjectKey::cluster("other"), is_node_ready).await;
    nodes.lets_go.send_replace(true);
    nodes.run("q", json!({"nodeName": "other"})).await;
    nodes.until_ready("q").await;
    api.patch("node-1", &PatchParams::default(), &away(None)).await.unwrap();
    nodes.until_ready("p").await;
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_panics_ends_the_simulation_with_an_error() {
    let is_lease = |_: &Method, path: &str| path.contains("/leases");
    let nodes = Simulated::start(is_lease, true).await;
    assert!(nodes.running.await.unwrap().is_err());
    nodes.plane.stop().await;
}
