//! What the API of a kubelet answers for simulated nodes: logs that say what would run, and that nothing can be done in a container.

use crate::kubelet::stage::Observed;
use crate::kubelet::usage::{self, Usage};
use crate::kubelet::{logs, node};
use http::{Request, Response};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use steersman::{Lister, ObjectKey};

/// The agents of all simulated nodes of a cluster. Clones are the same. Until a [`Simulation`](crate::kubelet::Simulation) was given it,
/// there are none.
#[derive(Clone, Default)]
pub struct Agent {
    caches: Arc<RwLock<Option<Caches>>>,
}

/// Of the nodes, of the Pods on them, and of what says how these behave.
#[derive(Clone)]
struct Caches {
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    observed: Observed,
}

impl Agent {
    pub(crate) fn connect(&self, nodes: Lister<Node>, pods: Lister<Pod>, observed: Observed) {
        *self.caches.write() = Some(Caches { nodes, pods, observed });
    }

    /// What a container of a Pod uses. `None` if it does not run, or its node is not simulated.
    pub fn usage(&self, pod: &Pod, container: &str) -> Option<Usage> {
        let Caches { nodes, observed, .. } = self.caches.read().clone()?;
        let node = pod.spec.as_ref()?.node_name.as_deref()?;
        nodes.get(&ObjectKey::cluster(node)).ok().filter(|node| node::is_simulated(node))?;
        usage::usage(pod, container, observed.behaviors(pod).0.container(container))
    }

    /// The answer of the agent of a node to a request as kubelets get them, such as `/containerLogs/default/web/nginx`. `None` if the
    /// node is not simulated, or away.
    pub fn answer(&self, node: &str, request: &Request<()>) -> Option<Response<String>> {
        let Caches { nodes, pods, observed } = self.caches.read().clone()?;
        let is_there = |node: &Arc<Node>| node::is_simulated(node) && !observed.is_away(node);
        nodes.get(&ObjectKey::cluster(node)).ok().filter(is_there)?;
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (code, text) = match path[..] {
            ["containerLogs", namespace, name, container] => {
                let pod = pods.get(&ObjectKey::namespaced(namespace, name)).ok();
                let options = logs::Options::parse(request.uri().query().unwrap_or_default());
                logs::of(pod.as_deref(), name, container, &options)
            }
            ["exec" | "attach" | "run", _, name, container] => {
                (400, format!("nothing runs in container {container} of pod {name}: the node {node} is simulated"))
            }
            ["portForward", _, name] => (400, format!("nothing listens in pod {name}: the node {node} is simulated")),
            _ => (404, "404 page not found".to_owned()),
        };
        let mut response = Response::new(text);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
        Some(response)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
