//! The mesh: Envoy beside each program, told by Kubernetes objects where requests go.
//!
//! [`pilot`] serves the proxies their configuration, made of Services and of the routes of the Gateway API. Neither needs a
//! server of this project: any Kubernetes will do.

pub mod pilot;
