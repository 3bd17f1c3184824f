//! Requests to the agents of nodes.

use crate::http::answer::Answer;
use crate::shared::status::Failure;
use crate::state::State;
use http::header::CONTENT_TYPE;
use http::{Method, Request};

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
