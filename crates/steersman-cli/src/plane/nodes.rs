//! Simulated nodes beside the control plane: their number, and the server's access to their agents and usage.

use crate::Failure;
use bytes::Bytes;
use futures::future::{self, BoxFuture};
use http::{Request, Response};
use jiff::Timestamp;
use std::sync::Arc;
use steersman_controllers::kubelet::{Agent, Simulation};
use steersman_server::authz::{Authorization, Mode};
use steersman_server::{Agents, NodeUsage, PodUsage, ResourceMetrics};

/// The requested nodes.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// The number of simulated nodes.
    pub(crate) count: usize,
    pub(crate) agent: Agent,
    pub(crate) joining: Joining,
}

/// Whether kubelets may join the cluster with a bootstrap token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Joining {
    Refused,
    Allowed,
}

/// The agents of simulated nodes, for the server.
#[derive(Debug)]
pub(crate) struct Simulated(pub(crate) Agent);

impl Nodes {
    pub(crate) fn new(count: u32, joining: Joining) -> Nodes {
        Nodes { count: usize::try_from(count).unwrap_or(usize::MAX), agent: Agent::default(), joining }
    }

    /// The usage of the nodes and their Pods; `None` if there are no nodes.
    pub(crate) fn resource_metrics(&self) -> Option<Arc<dyn ResourceMetrics>> {
        (self.count > 0).then(|| Arc::new(Simulated(self.agent.clone())) as Arc<dyn ResourceMetrics>)
    }

    /// Refuses nodes if no authorizer would allow their requests: as in Kubernetes, no role is bound to kubelets.
    pub(crate) fn check(&self, authorization: &Authorization) -> Result<(), Failure> {
        let Authorization::Modes(modes) = authorization else { return Ok(()) };
        // The decisions of a webhook or a policy file are not known here.
        let may_be_allowed = |mode: &Mode| matches!(mode, Mode::AlwaysAllow | Mode::Node | Mode::Other(_));
        if self.count == 0 || modes.iter().any(may_be_allowed) {
            return Ok(());
        }
        Err(Failure::Refused(
            "simulated nodes have the rights of kubelets, which only the authorization modes Node and AlwaysAllow give: add Node to --authorization-mode, or ask for no nodes with --simulate-nodes 0"
                .to_owned(),
        ))
    }

    /// The names of the nodes, for people.
    pub(crate) fn described(&self) -> Option<String> {
        let mut names = Simulation::names(self.count);
        let first = names.next()?;
        Some(match names.last() {
            None => format!("{first} (simulated)"),
            Some(last) => format!("{first} to {last} (simulated)"),
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_refused_where_nobody_allows_them_anything() {
        let check =
            |count, modes: Vec<Mode>| Nodes::new(count, Joining::Refused).check(&Authorization::Modes(modes)).is_ok();
        assert!(check(0, vec![Mode::Rbac]) && check(1, vec![Mode::Rbac, Mode::AlwaysAllow]));
        assert!(!check(1, vec![Mode::Rbac]) && !check(1, vec![Mode::AlwaysDeny]));
        assert!(Nodes::new(1, Joining::Refused).check(&Authorization::default()).is_ok());
    }

    #[test]
    fn nodes_are_named_from_the_first_to_the_last() {
        let described = |count| Nodes::new(count, Joining::Refused).described();
        assert_eq!(described(0), None);
        assert_eq!(described(1).as_deref(), Some("node-1 (simulated)"));
        assert_eq!(described(10).as_deref(), Some("node-1 to node-10 (simulated)"));
    }
}
