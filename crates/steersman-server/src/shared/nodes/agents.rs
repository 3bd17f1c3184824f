//! The interface by which an embedder makes nodes reachable whose agents run in the same process.
//!
//! For the logs of a Pod and for actions within its containers, the server connects to the kubelet of the node
//! (`nodes::connections`), unless [`Agents`] answer for it. The requests are those that a kubelet serves:
//! `/containerLogs/NAMESPACE/POD/CONTAINER`, `/exec/...`, `/attach/...`, `/portForward/NAMESPACE/POD`. The client's query
//! parameters that select a part of a log are passed on, with `sinceSeconds` as a `sinceTime`.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::fmt;

/// The agents of nodes.
pub trait Agents: fmt::Debug + Send + Sync {
    /// The answer of the agent of a node; `None` if the node has none here.
    fn ask(&self, node: &str, request: Request<()>) -> Option<BoxFuture<'static, Response<Bytes>>>;
}
