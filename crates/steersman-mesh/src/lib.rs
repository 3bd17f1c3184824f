//! The mesh: an Envoy beside every Pod, which Kubernetes objects tell where requests go.
//!
//! [`inject`] adds Envoy to Pods on their way in, as an initializer, as a mutating webhook, or both. [`pilot`] serves the
//! proxies their configuration, made of Services and of the routes of the Gateway API. The crate depends on neither a
//! server nor a store: everything goes through a `kube::Client`, so it works with any Kubernetes.

pub mod inject;
pub mod permissions;
pub mod pilot;
