//! The control loops that a Kubernetes control plane itself is made of.
//!
//! They know no server and no store: everything goes through a `kube::Client`, and they use nothing of the controller
//! library that a user's controller could not. [`ControlLoop`] is the table of them.

mod bootstrap_tokens;
pub mod certificates;
mod control_loop;
mod cron_job;
mod daemonset;
mod dependents;
mod disruption;
mod deployment;
mod endpoint_slices;
mod endpoints;
mod garbage_collector;
mod history;
mod job;
pub mod kubelet;
mod legacy_tokens;
mod namespace;
mod node_lifecycle;
mod node_ttl;
mod pod_gc;
mod pods;
mod refusal;
mod replicas;
mod root_ca;
mod scaled;
mod selectors;
mod served;
mod service_account;
mod resource_quota;
pub mod scheduler;
mod service_cidr;
mod service_pods;
mod stale;
mod ttl_after_finished;
mod volumes;
mod taint_eviction;
mod tolerations;
mod service_cidr;
mod service_pods;
mod stale;
mod statefulset;
mod ttl_after_finished;
mod volumes;
mod service_cidr;
mod service_pods;
mod stale;
mod template_hash;
mod ttl_after_finished;
mod volumes;

pub use crate::control_loop::{ControlLoop, Parts, Settings};
