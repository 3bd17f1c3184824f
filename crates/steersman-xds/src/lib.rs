//! A control plane for Envoy: the aggregated discovery service (ADS) of xDS.
//!
//! A [`Source`] says what a proxy should have, as a [`View`]: encoded [`Resource`]s by type and name. The server brings every
//! proxy there, in an order in which no request is lost, and reports what each has. It knows the protocol of Envoy and nothing
//! of where views come from.

mod kind;
mod report;
mod resource;
pub mod resources;
mod server;
mod session;
mod source;
mod subscriber;
mod transport;
mod view;

pub use crate::kind::Kind;
pub use crate::report::{Certainty, Hurried, ProxyReport, Rejection, ResourceReport, StreamId, Variant};
pub use crate::resource::{Need, Resource, Version};
pub use crate::server::{ConnectionError, Options, Server};
pub use crate::source::{Refusal, Source};
pub use crate::subscriber::{Locality, Node, Peer, Subscriber, Token, Value};
pub use crate::view::{Set, View};
