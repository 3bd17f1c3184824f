//! The control loops of a Kubernetes control plane.
//!
//! They depend on no server and no store: they access everything through a `kube::Client`, and use only parts of the
//! controller library that a user's controller can use too. [`ControlLoop`] is the table of them.

mod bootstrap_tokens;
pub mod certificates;
mod clock;
mod control_loop;
mod cron_job;
mod daemonset;
mod dependents;
mod deployment;
mod discovery;
mod disruption;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod endpoints;
mod garbage_collector;
mod history;
mod horizontal_pod_autoscaler;
mod host_port;
mod job;
pub mod kubelet;
mod labels;
mod legacy_tokens;
mod namespace;
mod namespaces;
mod node_lifecycle;
mod node_ttl;
mod note;
mod pod_gc;
mod pods;
mod refusal;
mod replicas;
mod resource_claims;
mod resource_quota;
mod root_ca;
mod scaled;
pub mod scheduler;
mod selectors;
mod served;
mod service_account;
mod service_cidr;
mod service_pods;
mod settings;
mod stale;
mod statefulset;
mod taint_eviction;
mod template_hash;
mod tolerations;
mod ttl_after_finished;
mod volumes;

pub use crate::control_loop::ControlLoop;
pub use crate::settings::{Parts, Settings};
