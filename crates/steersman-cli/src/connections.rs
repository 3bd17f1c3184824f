//! The sockets and their connections, from the handshake to the end.

pub(crate) mod accept;
pub(crate) mod activity;
pub(crate) mod client_certificates;
pub(crate) mod connection;
pub(crate) mod serving;
pub(crate) mod socket;
pub(crate) mod tasks;
pub(crate) mod tls_policy;
pub(crate) mod unauthenticated;
pub(crate) mod websocket;
