//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not. [`ControlLoop`] is the table of them.

mod bootstrap_tokens;
pub mod certificates;
mod control_loop;
mod cron_job;
mod dependents;
mod garbage_collector;
mod job;
mod endpoint_slices;
mod endpoints;
mod legacy_tokens;
mod daemonset;
mod dependents;
mod history;
pub mod kubelet;
mod namespace;
mod node_ttl;
mod pods;
mod refusal;
mod replicas;
mod selectors;
mod served;
mod root_ca;
mod service_account;
mod scaled;
pub mod scheduler;
mod service_cidr;
mod service_pods;
mod stale;
mod volumes;
mod ttl_after_finished;

pub use crate::control_loop::{ControlLoop, Parts, Settings};
