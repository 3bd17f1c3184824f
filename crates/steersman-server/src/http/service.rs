//! The server as a `tower::Service`: the only entry, for sockets, tests and controllers alike.

use crate::access::authn::Peer;
use crate::http::chain::Chain;
use crate::shared::request::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answers requests. Cheap to clone and always ready: requests beyond the limits are answered with 429.
#[derive(Clone)]
pub struct Service {
    chain: Arc<Chain>,
    peer: Option<Peer>,
    source: Option<IpAddr>,
}

impl Service {
    pub(crate) fn new(chain: Arc<Chain>, peer: Option<Peer>) -> Service {
        Service { chain, peer, source: None }
    }

    /// The same service for another connection: `None` if its peer has shown no certificate.
    #[must_use]
    pub fn with_peer(&self, peer: Option<Peer>) -> Service {
        Service { chain: self.chain.clone(), peer, source: self.source }
    }

    /// The same service for a connection from this address, which the audit log names.
    #[must_use]
    pub fn with_source(self, source: Option<IpAddr>) -> Service {
        Service { source, ..self }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Only the transport may set the peer: a `Peer` that came with the request is removed.
        request.extensions_mut().remove::<Peer>();
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        let (chain, source) = (self.chain.clone(), self.source);
        Box::pin(async move { Ok(chain.handle(request, source).await) })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("peer", &self.peer).finish_non_exhaustive()
    }
}
