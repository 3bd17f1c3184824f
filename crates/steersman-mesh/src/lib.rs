//! The mesh: an Envoy beside every Pod.
//!
//! [`inject`] adds it to Pods on their way in, as an initializer, as a mutating webhook, or both. The crate depends on
//! neither a server nor a store: everything goes through a `kube::Client`, so it works with any Kubernetes.

pub mod inject;
pub mod permissions;
