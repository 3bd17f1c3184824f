//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not. [`ControlLoop`] is the table of them.

pub mod certificates;
mod control_loop;
mod dependents;
mod deployment;
mod namespace;
mod pods;
mod refusal;
mod replicas;
mod selectors;
mod service_cidr;
mod stale;
mod template_hash;

pub use crate::control_loop::{ControlLoop, Parts, Settings};
