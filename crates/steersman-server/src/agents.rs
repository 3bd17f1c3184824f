//! The interface by which an embedder makes nodes reachable whose agents run in the same process.
//!
//! kube-apiserver connects to the kubelet of a node for the logs of a Pod and for actions within its containers. This
//! server makes no connections, but calls [`Agents`] if it was given some. The requests are those that a kubelet
//! serves: `/containerLogs/NAMESPACE/POD/CONTAINER`, `/exec/...`, `/attach/...`, `/portForward/NAMESPACE/POD`. The
//! client's query parameters that select a part of a log are passed on, with `sinceSeconds` as a `sinceTime`.

use crate::answer::Answer;
use crate::state::State;
use crate::status::Failure;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use std::fmt;

/// The agents of nodes.
pub trait Agents: fmt::Debug + Send + Sync {
    /// The answer of the agent of a node; `None` if the node has none here.
    fn ask(&self, node: &str, request: Request<()>) -> Option<BoxFuture<'static, Response<Bytes>>>;
}

/// Sends a request to the agent of a node; `None` if the node has none here. A refusal of the agent is returned to the
/// client in its words.
pub(crate) async fn ask(state: &State, node: &str, method: Method, path: String) -> Option<Result<Answer, Failure>> {
    let agents = state.agents.as_ref()?;
    let request = match Request::builder().method(method).uri(path).body(()) {
        Ok(request) => request,
        Err(error) => return Some(Err(Failure::bad_request(format!("the request cannot be passed on: {error}")))),
    };
    let response = agents.ask(node, request)?.await;
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        let content_type =
            parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("text/plain");
        return Some(Ok(Answer::bytes(parts.status.as_u16(), content_type, body)));
    }
    let why = String::from_utf8_lossy(&body).trim().to_owned();
    Some(Err(match parts.status.as_u16() {
        400 => Failure::bad_request(why),
        404 => Failure::new(404, "NotFound", why),
        _ => Failure::internal(why),
    }))
}
