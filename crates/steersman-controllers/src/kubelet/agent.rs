//! What the API of a kubelet answers for simulated nodes: logs that say what would run, and that nothing can be done in a container.

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

/// Of the nodes and of the Pods on them.
type Caches = (Lister<Node>, Lister<Pod>);

impl Agent {
    pub(crate) fn connect(&self, nodes: Lister<Node>, pods: Lister<Pod>) {
        *self.caches.write() = Some((nodes, pods));
    }

    /// The answer of the agent of a node to a request as kubelets get them, such as `/containerLogs/default/web/nginx`. `None` if the
    /// node is not simulated, or away.
    pub fn answer(&self, node: &str, request: &Request<()>) -> Option<Response<String>> {
        let (nodes, pods) = self.caches.read().clone()?;
        let is_there = |node: &Arc<Node>| node::is_simulated(node) && !node::is_away(node);
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
