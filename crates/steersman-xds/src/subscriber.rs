//! The asking proxy: what it says of itself, and where its connection comes from.

use bytes::Bytes;
use std::fmt;
use std::net::SocketAddr;

/// A proxy that opens a stream.
#[derive(Clone, Debug)]
pub struct Subscriber {
    pub node: Node,
    pub peer: Peer,
    /// From the header `authorization` of the stream.
    pub token: Option<Token>,
}

/// The proxy as it describes itself. Nothing of it is verified. Its metadata is not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub id: String,
    pub cluster: String,
    pub locality: Locality,
    /// The program, for example `envoy`.
    pub user_agent: String,
}

/// The place of a proxy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Locality {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
}

/// The other end of a connection, as the one who accepted it knows it.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Absent for Unix sockets.
    pub address: Option<SocketAddr>,
    /// The client's certificate, verified, in DER.
    pub certificate: Option<Bytes>,
}

/// A bearer token, which is never printed.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(pub(crate) String);

// === impl Token ===

impl Token {
    #[must_use]
    pub fn new(token: impl Into<String>) -> Token {
        Token(token.into())
    }

    /// The token itself, for whoever verifies it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}
