//! Requests to the other side of a connection, which is a kubelet, or listens on a node, in a Pod or behind a Service.
//!
//! Checks and the address come first; the connection is made in the future that an answer of this module has
//! ([`Answer::later`]), which ends when the client disconnects or the server stops.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::passing::{self, Upgrade};
use crate::shared::nodes::connections::{Peer, SendError};
use crate::shared::request::passed_headers as headers;
use crate::shared::request::unread::{Unread, UnreadBody};
use crate::shared::status::Failure;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use std::time::Duration;
use tokio::time::Instant;

/// The time within which the other side must have sent the error with which it refuses an upgrade.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(10);

/// The other side of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Backend {
    pub(super) peer: Peer,
    scheme: &'static str,
    /// The host and the port.
    pub(super) authority: String,
}

impl Backend {
    pub(super) fn new(peer: Peer, scheme: &'static str, host: &str, port: u16) -> Backend {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Backend { peer, scheme, authority: format!("{host}:{port}") }
    }

    /// A request for a path, with the method of the client's.
    ///
    /// # Errors
    /// When the address of the other side, or the path, cannot be part of a URI.
    pub(super) fn request(
        &self,
        cx: &Context<'_>,
        path: &str,
        headers: HeaderMap,
        body: UnreadBody,
    ) -> Result<Request<UnreadBody>, Failure> {
        let Backend { scheme, authority, .. } = self;
        let request = Request::builder().method(cx.parts.method.clone()).uri(format!("{scheme}://{authority}{path}"));
        let mut request = request.body(body).map_err(|error| {
            Failure::unclassified(format!("error dialing backend: {scheme}://{authority} cannot be called: {error}"))
        })?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Has the other side upgrade the connection of the client.
    ///
    /// # Errors
    /// When the user has no place for another connection, or the request cannot be made.
    pub(super) fn upgrade(
        &self,
        cx: &Context<'_>,
        path: &str,
        upgrade: Upgrade,
        unread: Unread,
    ) -> Result<Answer, Failure> {
        let place = passing::place(cx.state, cx.payer)?;
        let headers = headers(cx, &unread, Some(&upgrade.protocol));
        let request = self.request(cx, path, headers, unread.body)?;
        let (state, peer) = (cx.state.clone(), self.peer);
        Ok(Answer::later(Box::pin(async move {
            let response = state.connections.send(peer, request).await.map_err(|error| not_dialed(&error))?;
            if passing::is_refusal(response.status()) {
                let deadline = Instant::now() + REFUSAL_TIME_MAX;
                return Ok(passing::streamed(&state, response, Some(deadline), Some(place)));
            }
            passing::upgraded(&state, upgrade, place, response)
                .map_err(|error| Failure::unclassified(error.to_string()))
        })))
    }
}

/// The headers of the client's request for the other side.
pub(super) fn headers(cx: &Context<'_>, unread: &Unread, upgrade: Option<&HeaderValue>) -> HeaderMap {
    let is_identity = |name: &str| cx.state.authenticator.is_identity_header(name);
    let mut headers = headers::without_user(&cx.parts.headers, unread.source, upgrade, is_identity);
    // As upstream, the other side learns by which name the client has called this server.
    if let Some(host) = host(cx.parts) {
        headers.insert(HOST, host);
    }
    headers
}

/// The name by which the client has called this server.
pub(super) fn host(parts: &Parts) -> Option<HeaderValue> {
    let of_uri = || parts.uri.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
    parts.headers.get(HOST).cloned().or_else(of_uri)
}

/// The failure of a connection to a kubelet, or of an upgrade.
pub(super) fn not_dialed(error: &SendError) -> Failure {
    Failure::unclassified(match error {
        SendError::Dial(why) => format!("error dialing backend: {why}"),
        SendError::Request(why) => format!("error reading the answer of the backend: {why}"),
    })
}
