//! What the API of a kubelet answers for simulated nodes: logs that say what would run, and that nothing can be done in a container.

use crate::kubelet::measurements;
use crate::kubelet::stage::Observed;
use crate::kubelet::usage;
use crate::kubelet::written::Written;
use crate::kubelet::{logs, node};
use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use steersman::cache::Index;
use steersman::{Lister, ObjectKey};
use steersman_machinery::usage::{NodeUsage, PodUsage, Usage};

/// The agents of all simulated nodes of a cluster. Clones are the same. Until a [`Simulation`](crate::kubelet::Simulation) was given it,
/// there are none.
#[derive(Clone, Default)]
pub struct Agent {
    caches: Arc<RwLock<Option<Caches>>>,
}

/// Of the nodes, of the Pods on them, and of what says how these behave.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) nodes: Lister<Node>,
    pub(crate) pods: Lister<Pod>,
    pub(crate) pods_by_node: Index<Pod, String>,
    pub(crate) observed: Observed,
    pub(crate) written: Written,
}

impl Agent {
    pub(crate) fn connect(&self, caches: Caches) {
        *self.caches.write() = Some(caches);
    }

    /// What the containers of a Pod use that run, as metrics-server would have measured it by a time. `None` while there are no
    /// measurements: the Pod does not run, one of its containers has only begun, or its node is not simulated, or away.
    pub fn pod_usage(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage> {
        let caches = self.caches.read().clone()?;
        let pod = caches.pod(namespace, name)?;
        caches.heard_of(pod.spec.as_ref()?.node_name.as_deref()?)?;
        measurements::of_pod(&pod, caches.usages(&pod), now)
    }

    /// What a node uses, which is what the containers of all its Pods use that run. `None` if it is not simulated, or away, or new.
    pub fn node_usage(&self, name: &str, now: Timestamp) -> Option<NodeUsage> {
        let caches = self.caches.read().clone()?;
        let node = caches.heard_of(name)?;
        let pods = caches.pods_by_node.get(name).unwrap_or_default();
        let usages = pods.iter().flat_map(|pod| caches.usages(pod)).map(|(_, usage)| usage);
        measurements::of_node(&node, usages, now)
    }

    /// The answer of the agent of a node to a request as kubelets get them, such as `/containerLogs/default/web/nginx`. `None` if the
    /// node is not simulated, or away.
    pub fn answer(&self, node: &str, request: &Request<()>) -> Option<Response<Bytes>> {
        let caches = self.caches.read().clone()?;
        caches.heard_of(node)?;
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (code, text) = match path[..] {
            ["containerLogs", namespace, name, container] => {
                let pod = caches.pod(namespace, name);
                let options = logs::Options::parse(request.uri().query().unwrap_or_default());
                logs::of(pod.as_deref(), name, container, &options)
            }
            ["exec" | "attach" | "run", _, name, container] => {
                (400, format!("nothing runs in container {container} of pod {name}: the node {node} is simulated"))
            }
            ["portForward", _, name] => (400, format!("nothing listens in pod {name}: the node {node} is simulated")),
            _ => (404, "404 page not found".to_owned()),
        };
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
        Some(response)
    }
}

impl Caches {
    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let key = ObjectKey::namespaced(namespace, name);
        self.written.or(&key, || self.pods.get(&key).ok())
    }

    /// A node that is simulated, and not away.
    fn heard_of(&self, name: &str) -> Option<Arc<Node>> {
        let node = self.nodes.get(&ObjectKey::cluster(name)).ok()?;
        (node::is_simulated(&node) && !self.observed.is_away(&node)).then_some(node)
    }

    /// What each container of a Pod uses that runs; init containers come last.
    fn usages<'a>(&self, pod: &'a Pod) -> Vec<(&'a ContainerStatus, Usage)> {
        let (behaviors, _) = self.observed.behaviors(pod);
        let statuses = pod.status.iter();
        let statuses = statuses
            .flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten());
        let usage = |status: &ContainerStatus| usage::usage(pod, &status.name, behaviors.container(&status.name));
        statuses.filter_map(|status| Some((status, usage(status)?))).collect()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
