//! The messages that resources are made of, written by hand after Envoy's definitions (API v3, Envoy 1.40, Apache-2.0): those that a
//! service mesh needs, and of those the fields that it needs.
//!
//! Names and numbers are Envoy's; a field that is missing here is skipped when a message is read. The wrappers of protobuf (`BoolValue`,
//! `UInt32Value`) are an `Option` of a message: prost reads and writes `bool` and `u32` so. Maps are sorted, because a resource's version is a
//! hash of its bytes. `to_resource` of the four types also says what a resource refers to.

pub mod cluster;
pub mod core;
pub mod endpoints;
pub mod filters;
pub mod listener;
pub mod route;

pub use self::cluster::Cluster;
pub use self::core::{Address, Any, ConfigSource, Duration, Typed};
pub use self::endpoints::ClusterLoadAssignment;
pub use self::filters::{HttpConnectionManager, Router, TcpProxy};
pub use self::listener::Listener;
pub use self::route::RouteConfiguration;

#[cfg(test)]
mod tests;
