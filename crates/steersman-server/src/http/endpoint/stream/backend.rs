//! Requests to the other side of a connection, which is a kubelet, or listens on a node, in a Pod or behind a Service.
//!
//! Checks and the address come first; the connection is made in the future that an answer of this module has
//! ([`Answer::later`]), which ends when the client disconnects or the server stops.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::passing::{self, Lasts, Upgrade};
use crate::shared::nodes::connections::{Peer, SendError};
use crate::shared::request::passed_headers;
use crate::shared::request::unread::{Unread, UnreadBody};
use crate::shared::status::Failure;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Uri};
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
        let mut request = Request::new(body);
        *request.method_mut() = cx.parts.method.clone();
        *request.uri_mut() = self.uri(path).map_err(|why| {
            let Backend { scheme, authority, .. } = self;
            Failure::unclassified(format!("error dialing backend: {scheme}://{authority} cannot be called: {why}"))
        })?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// The URI of a path. The host is what a node's status says, so that it may be nothing but a host: whatever follows in it would
    /// become the path of a request with the certificate of this server.
    fn uri(&self, path: &str) -> Result<Uri, String> {
        let is_host = !self.authority.starts_with(':') && !self.authority.contains('@');
        if !is_host {
            return Err("its address is no host".to_owned());
        }
        let uri = Uri::builder().scheme(self.scheme).authority(self.authority.as_str()).path_and_query(path);
        uri.build().map_err(|error| error.to_string())
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
        // The kubelet trusts this server: over another protocol, such as HTTP/2, the client could send it requests of its own.
        if self.peer != Peer::Other && !passed_headers::is_of_streams(&upgrade.protocol) {
            let protocol = String::from_utf8_lossy(upgrade.protocol.as_bytes());
            return Err(Failure::bad_request(format!(
                "connections to kubelets are upgraded to SPDY/3.1 or websocket, not to {protocol:?}"
            )));
        }
        let place = passing::place(cx.state, cx.payer)?;
        let request = self.request(cx, path, for_backend(cx, &unread, Some(&upgrade.protocol)), unread.body)?;
        let (state, peer) = (cx.state.clone(), self.peer);
        Ok(Answer::later(Box::pin(async move {
            let response = state.connections.send(peer, request).await.map_err(|error| not_dialed(&error))?;
            if passing::is_refusal(response.status()) {
                let deadline = Instant::now() + REFUSAL_TIME_MAX;
                return Ok(passing::streamed(&state, response, Lasts::Until(deadline), Some(place)));
            }
            passing::upgraded(&state, upgrade, place, response)
                .map_err(|error| Failure::unclassified(error.to_string()))
        })))
    }
}

/// The headers of the client's request for the other side.
pub(super) fn for_backend(cx: &Context<'_>, unread: &Unread, upgrade: Option<&HeaderValue>) -> HeaderMap {
    let is_identity = |name: &str| cx.state.authenticator.is_identity_header(name);
    let mut headers = passed_headers::without_user(&cx.parts.headers, unread.source, upgrade, is_identity);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_nothing_else() {
        let uri = |host: &str| Backend::new(Peer::Kubelet, "https", host, 10_250).uri("/logs?a=b");
        for (host, want) in [
            ("n.example.com", "https://n.example.com:10250/logs?a=b"),
            ("10.0.0.1", "https://10.0.0.1:10250/logs?a=b"),
            ("fd00::1", "https://[fd00::1]:10250/logs?a=b"),
        ] {
            assert_eq!(uri(host).unwrap(), want);
        }
        let others = [
            "10.96.0.1/api/v1/secrets?",
            "10.96.0.1?a",
            "10.96.0.1#a",
            "n@10.96.0.1",
            "10.96.0.1\\a",
            "a b",
            "",
            "fd00::1]:443/api?",
        ];
        for host in others {
            assert!(uri(host).is_err(), "{host:?} leads to {:?}", uri(host));
        }
    }
}
