//! The pilot of a control plane.

mod envoy;
mod identity;
mod permissions;
mod statuses;
mod views;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman::{Manager, ManagerError};
use steersman_mesh::pilot::{Options, Proxies, Trust, add_to};
use steersman_testkit::ControlPlane;
use steersman_xds::{Kind, Node, Peer, Refusal, Source, StreamId, Subscriber, Subscription, View};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The definitions of the Gateway API.
const DEFINITIONS: [&str; 3] = [
    include_str!("../../../../manifests/mesh/gateway-api/httproutes.yaml"),
    include_str!("../../../../manifests/mesh/gateway-api/grpcroutes.yaml"),
    include_str!("../../../../manifests/mesh/gateway-api/referencegrants.yaml"),
];

/// A control plane with a pilot.
pub(crate) struct Mesh {
    pub(crate) plane: ControlPlane,
    pub(crate) proxies: Arc<Proxies>,
    streams: AtomicU64,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

/// A proxy's stream.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) owner: Arc<str>,
    views: watch::Receiver<Option<Arc<View>>>,
}

impl Mesh {
    /// A pilot that trusts what proxies say of themselves.
    pub(crate) async fn start() -> Mesh {
        Mesh::trusting(Trust { node_ids: true, ..Trust::default() }).await
    }

    pub(crate) async fn trusting(trust: Trust) -> Mesh {
        let plane = ControlPlane::start().await;
        let manager = Manager::new(plane.client());
        Mesh::with(plane, manager, trust).await
    }

    /// A pilot in this manager.
    pub(crate) async fn with(plane: ControlPlane, manager: Manager, trust: Trust) -> Mesh {
        for definition in DEFINITIONS {
            plane.apply(definition).await;
        }
        let stop = CancellationToken::new();
        let options = Options { trust, ..Options::default() };
        let (manager, proxies) = add_to(manager, &options);
        let task = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        Mesh { plane, proxies, streams: AtomicU64::default(), stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.plane.stop().await;
    }

    /// A Pod that runs at this address.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, address: &str, more: Value) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
        });
        merge(&mut pod, &more);
        self.plane.apply(&pod.to_string()).await;
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        let pods = Api::<Pod>::namespaced(self.plane.client(), namespace);
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap()
    }

    /// The stream of a proxy, once the pilot knows its Pod.
    pub(crate) async fn connect(&self, subscriber: &Subscriber) -> Result<Stream, Refusal> {
        let subscriber = Arc::new(subscriber.clone());
        loop {
            let id = StreamId(self.streams.fetch_add(1, Ordering::Relaxed));
            match self.proxies.subscribe(id, &subscriber).await {
                Ok(Subscription { owner, views }) => return Ok(Stream { id, owner, views }),
                // The caches are behind.
                Err(Refusal::NotReady | Refusal::Unknown(_)) => tokio::task::yield_now().await,
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// The stream of a Pod's proxy that is believed.
    pub(crate) async fn proxy(&self, namespace: &str, pod: &str) -> Stream {
        self.connect(&node(namespace, pod)).await.unwrap()
    }
}

impl Stream {
    /// The view, once it is as wanted.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&View) -> bool) -> Arc<View> {
        let found = self.views.wait_for(|view| view.as_ref().is_some_and(|view| wanted(view))).await;
        found.expect("the stream has ended").clone().unwrap()
    }

    /// Whether the pilot has ended the stream.
    pub(crate) async fn ended(&mut self) {
        while self.views.changed().await.is_ok() {}
    }
}

/// A proxy that names its Pod.
pub(crate) fn node(namespace: &str, pod: &str) -> Subscriber {
    let node = Node { id: format!("sidecar~10.0.0.1~{pod}.{namespace}"), ..Node::default() };
    Subscriber { node, peer: Peer::default(), token: None }
}

pub(crate) fn names(view: &View, kind: Kind) -> Vec<String> {
    view.set(kind).iter().map(|resource| resource.name().to_string()).collect()
}

/// A Service with a port 80 of HTTP and an endpoint.
pub(crate) fn service(namespace: &str, name: &str, endpoint: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{namespace: {namespace}, name: {name}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{namespace: {namespace}, name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: [{endpoint}]}}]
"
    )
}

/// A route for the Service `web` of its namespace, which sends parts to `v1` and to `v2`.
pub(crate) fn split(namespace: &str, first: u32, second: u32) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{namespace: {namespace}, name: split}}
spec:
  parentRefs: [{{group: \"\", kind: Service, name: web}}]
  rules: [{{backendRefs: [{{name: v1, port: 80, weight: {first}}}, {{name: v2, port: 80, weight: {second}}}]}}]
"
    )
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
