//! What the API of a kubelet answers for simulated nodes: logs that say what would run, and that nothing can be done in a container.

use crate::kubelet::node;
use crate::kubelet::stage::Observed;
use crate::kubelet::usage::{self, Usage};
use http::{Request, Response};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};
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
    /// node is not simulated.
    pub fn answer(&self, node: &str, request: &Request<()>) -> Option<Response<String>> {
        let Caches { nodes, pods, .. } = self.caches.read().clone()?;
        nodes.get(&ObjectKey::cluster(node)).ok().filter(|node| node::is_simulated(node))?;
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (code, text) = match path[..] {
            ["containerLogs", namespace, name, container] => {
                let wants_previous =
                    request.uri().query().unwrap_or_default().split('&').any(|one| one == "previous=true");
                match pods.get(&ObjectKey::namespaced(namespace, name)) {
                    Ok(pod) => log(&pod, container, wants_previous),
                    Err(_) => (404, format!("pod {name:?} not found")),
                }
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

/// What a container would have written.
fn log(pod: &Pod, container: &str, wants_previous: bool) -> (u16, String) {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let spec = pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let Some(spec) = spec.into_iter().find(|one| one.name == container) else {
        return (400, format!("container {container} is not valid for pod {name}"));
    };
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten());
    let status = statuses.into_iter().find(|status| status.name == container);
    let has_ended = status.and_then(|status| status.last_state.as_ref()).is_some_and(|last| last.terminated.is_some());
    if wants_previous && !has_ended {
        return (400, format!("previous terminated container {container:?} in pod {name:?} not found"));
    }
    if let Some(waiting) = status.filter(|_| !has_ended).and_then(|status| status.state.as_ref()?.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().unwrap_or("ContainerCreating");
        return (400, format!("container {container:?} in pod {name:?} is waiting to start: {reason}"));
    }
    (200, line(spec, status))
}

fn line(spec: &Container, status: Option<&ContainerStatus>) -> String {
    let words = spec.command.iter().chain(&spec.args).flatten().map(|word| format!(" {word:?}"));
    let image = spec.image.as_deref().unwrap_or_default();
    let n = status.map_or(0, |status| status.restart_count);
    let again = if n > 0 { format!(", begun again {n} times") } else { String::new() };
    format!("simulated: {image}{} would run here{again}\n", words.collect::<String>())
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
