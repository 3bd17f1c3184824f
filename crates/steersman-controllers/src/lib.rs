//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not. [`ControlLoop`] is the table of them.

pub mod certificates;
mod control_loop;
mod dependents;
mod discovery;
mod disruption;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod endpoints;
mod horizontal_pod_autoscaler;
mod namespace;
mod pods;
mod refusal;
mod resource_quota;
mod service_cidr;
mod service_pods;
mod stale;

pub use crate::control_loop::{ControlLoop, Parts, Settings};
