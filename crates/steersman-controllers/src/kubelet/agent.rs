//! The kubelet API of simulated nodes: logs describe the container that would run, and exec and the like are refused.

pub(crate) mod logs;
pub(crate) mod measurements;
pub(crate) mod usage;

use crate::kubelet::node;
use crate::kubelet::stage::Observed;
use crate::kubelet::written::Written;
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

/// The agents of all simulated nodes of a cluster. Clones share their state. No agent answers until the value was given
/// to a [`Simulation`](crate::kubelet::Simulation).
#[derive(Clone, Default)]
pub struct Agent {
    caches: Arc<RwLock<Option<Caches>>>,
}

/// The caches of nodes, of their Pods, and of the objects that set how Pods behave.
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

    /// The usage of a Pod's running containers, as metrics-server would have measured it by `now`. `None` while there
    /// are no measurements: the Pod does not run, one of its containers has only just started, or its node is away or
    /// not simulated.
    pub fn pod_usage(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage> {
        let caches = self.caches.read().clone()?;
        let pod = caches.pod(namespace, name)?;
        caches.heard_of(pod.spec.as_ref()?.node_name.as_deref()?)?;
        measurements::of_pod(&pod, caches.usages(&pod), now)
    }

    /// The usage of a node, which is the sum of the running containers of its Pods. `None` if the node is not
    /// simulated, is away, or is new.
    pub fn node_usage(&self, name: &str, now: Timestamp) -> Option<NodeUsage> {
        let caches = self.caches.read().clone()?;
        let node = caches.heard_of(name)?;
        let pods = caches.pods_by_node.get(name).unwrap_or_default();
        let usages = pods.iter().flat_map(|pod| caches.usages(pod)).map(|(_, usage)| usage);
        measurements::of_node(&node, usages, now)
    }

    /// The answer of a node's agent to a request of the kubelet API, such as `/containerLogs/default/web/nginx`. For a node
    /// that is away it is the failure to reach it. `None` if the node is not simulated.
    pub fn answer(&self, node: &str, request: &Request<()>) -> Option<Response<Bytes>> {
        let caches = self.caches.read().clone()?;
        if caches.simulated(node)?.1 == Presence::Away {
            let why = "the node is simulated, and an annotation or a Stage says that it is away";
            let why = format!("error dialing backend: {node} does not answer: {why}");
            return Some(text(500, why));
        }
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (code, said) = match path[..] {
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
        Some(text(code, said))
    }
}

/// Whether a simulated node answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Presence {
    Here,
    Away,
}

fn text(code: u16, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
    response
}

impl Caches {
    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let key = ObjectKey::namespaced(namespace, name);
        self.written.or(&key, || self.pods.get(&key).ok())
    }

    /// A node that is simulated.
    fn simulated(&self, name: &str) -> Option<(Arc<Node>, Presence)> {
        let node = self.nodes.get(&ObjectKey::cluster(name)).ok().filter(|node| node::is_simulated(node))?;
        let presence = if self.observed.is_away(&node) { Presence::Away } else { Presence::Here };
        Some((node, presence))
    }

    /// A node that is simulated, and not away.
    fn heard_of(&self, name: &str) -> Option<Arc<Node>> {
        self.simulated(name).filter(|(_, presence)| *presence == Presence::Here).map(|(node, _)| node)
    }

    /// The usage of each running container of a Pod; init containers come last.
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
