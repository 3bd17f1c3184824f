//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not. [`ControlLoop`] is the table of them.

mod bootstrap_tokens;
pub mod certificates;
mod control_loop;
mod dependents;
mod legacy_tokens;
mod namespace;
mod node_lifecycle;
mod node_ttl;
mod pods;
mod refusal;
mod root_ca;
mod service_account;
mod service_cidr;
mod stale;
mod taint_eviction;
mod tolerations;

pub use crate::control_loop::{ControlLoop, Parts, Settings};
