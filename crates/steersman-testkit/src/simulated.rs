//! How the server reaches the agents of simulated nodes, and learns what they use.

use bytes::Bytes;
use futures::future::{self, BoxFuture};
use http::{Request, Response};
use jiff::Timestamp;
use steersman_controllers::kubelet::{self, Agent};
use steersman_server::{Agents, NodeUsage, PodUsage, ResourceMetrics, Usage};

/// The agents of simulated nodes, for the server.
#[derive(Debug)]
pub(crate) struct Simulated(pub(crate) Agent);

impl Agents for Simulated {
    fn ask(&self, node: &str, request: Request<()>) -> Option<BoxFuture<'static, Response<Bytes>>> {
        let response = self.0.answer(node, &request)?;
        Some(Box::pin(future::ready(response.map(Bytes::from))))
    }
}

impl ResourceMetrics for Simulated {
    fn of_node(&self, name: &str, now: Timestamp) -> Option<NodeUsage> {
        let found = self.0.node_usage(name, now)?;
        Some(NodeUsage { window: found.window, usage: usage(found.usage) })
    }

    fn of_pod(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage> {
        let found = self.0.pod_usage(namespace, name, now)?;
        let containers = found.containers.into_iter().map(|(name, used)| (name, usage(used))).collect();
        Some(PodUsage { window: found.window, containers })
    }
}

/// In the units of the server.
fn usage(used: kubelet::Usage) -> Usage {
    Usage { cpu_nanos: used.cpu_millis.saturating_mul(1_000_000), memory_bytes: used.memory_bytes }
}
