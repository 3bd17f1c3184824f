//! Requests whose bodies are not read here, because another server reads them: the transport takes the body of the client
//! as it comes.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use std::fmt;
use std::net::IpAddr;

/// The body of a request, to be read by the transport to another server.
pub(crate) type UnreadBody = UnsyncBoxBody<Bytes, BodyError>;

/// Why the body of a client's request could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request could not be read: {0}")]
pub(crate) struct BodyError(String);

/// The parts of a request that matter only to the server that it is passed on to.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) body: UnreadBody,
    /// The address of the client.
    pub(crate) source: Option<IpAddr>,
}

impl Default for Unread {
    fn default() -> Unread {
        Unread { body: empty(), source: None }
    }
}

/// The body of a client's request.
pub(crate) fn body<B>(body: B) -> UnreadBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    UnreadBody::new(body.map_err(|error| BodyError(error.to_string())))
}

/// An empty body.
pub(crate) fn empty() -> UnreadBody {
    UnreadBody::new(Empty::new().map_err(|never| match never {}))
}
