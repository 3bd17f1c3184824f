//! A control plane for Envoy: the aggregated discovery service (ADS) of xDS.
//!
//! A [`Source`] says what a proxy should have, as a [`View`]: encoded [`Resource`]s by type and name. A [`Server`] brings every
//! proxy there, in an order in which no request is lost, and reports what each has. It knows the protocol of Envoy and nothing
//! of where views come from.
//!
//! From below: `transport` has the messages of the protocol, `session` is one stream without IO (what the proxy has, and what is sent to it
//! next), `server` carries streams over HTTP/2. [`resources`] has the messages of which resources are made.
//!
//! # What a source must keep to
//! - A resource says what it refers to, as `to_resource` of the messages does. That decides what waits for what.
//! - A view has endpoints for each cluster that refers to some, be they empty: a proxy waits 15 s for endpoints that do not come.
//! - Resources, sets and views that have not changed are the same `Arc`s: comparing them is then a comparison of pointers.
//!
//! # Memory
//! A resource is encoded once, in the form in which both variants of the protocol have it, and shared by all streams. A stream has an entry of some
//! 100 bytes for each name.

mod field;
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
#[cfg(feature = "fuzzing")]
pub use crate::server::fuzzing;
pub use crate::server::{ConnectionError, Options, Server};
pub use crate::source::{Refusal, Source, Subscription};
pub use crate::subscriber::{Locality, Node, Peer, Subscriber, Token};
pub use crate::view::{Set, View};
