//! Connects the server to the agents of simulated nodes, and reports the usage of nodes and Pods.

use bytes::Bytes;
use futures::future::{self, BoxFuture};
use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use steersman_controllers::kubelet::Agent;
use steersman_server::{Agents, NodeUsage, PodUsage, ResourceMetrics};

/// The name of the definition of the kind `Stage`, which simulated nodes bring.
pub(crate) const STAGES: &str = "stages.simulate.steersman.dev";

/// Whether the kind of a definition is served.
pub(crate) fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// The agents of simulated nodes, for the server.
#[derive(Debug)]
pub(crate) struct Simulated(pub(crate) Agent);

impl Agents for Simulated {
    fn ask(&self, node: &str, request: Request<()>) -> Option<BoxFuture<'static, Response<Bytes>>> {
        Some(Box::pin(future::ready(self.0.answer(node, &request)?)))
    }
}

impl ResourceMetrics for Simulated {
    fn of_node(&self, name: &str, now: Timestamp) -> Option<NodeUsage> {
        self.0.node_usage(name, now)
    }

    fn of_pod(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage> {
        self.0.pod_usage(namespace, name, now)
    }
}
