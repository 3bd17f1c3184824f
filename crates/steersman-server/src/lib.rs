//! A Kubernetes-compatible API server: bytes in, bytes out.
//!
//! [`Server`] holds the store and the catalog of what is served; `Server::service()` is a `tower::Service`, the same for a
//! TLS socket, a test in the same process and the built-in controllers. There is no other door.
//!
//! Deliberately not here: sockets, command lines, process state (`steersman-cli`), and the control loops
//! (`steersman-controllers`), which are clients like any other.

pub mod builtin;
pub mod catalog;
pub mod crd;
pub mod discovery;
pub mod openapi;
pub mod status;
pub mod strategy;
pub mod user;

mod version_order;
