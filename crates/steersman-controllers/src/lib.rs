//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not.

pub mod certificates;
pub mod namespace;
pub mod service_cidr;
