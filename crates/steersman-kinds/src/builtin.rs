//! The kinds that are built into Kubernetes, served from data: one row of `kind::Kind` for each, with the functions
//! that only it needs, behind one [`crate::strategy::Strategy`] for all of them.
//!
//! To add a kind, write its row (and its defaults, rules and cells, where it has any) in a file of its own and name it
//! in `KINDS`. Types, unknown fields, patch strategies and OpenAPI come from the schema crate's definitions.
//! CustomResourceDefinition, which defines kinds, is in [`crate::crd`].

use crate::builtin::kind::Kind;
use crate::catalog::Resource;
use crate::runtime_config::{self, RuntimeConfig, Subject};
use std::sync::Arc;

pub mod age;
pub mod service;

mod access;
pub mod admission_registration;
pub mod api_service;
mod autoscaler;
mod batch;
mod binding;
mod built_in;
mod cells;
pub mod certificate_signing_request;
mod component_status;
mod config_map;
mod controller_revision;
mod csi;
mod daemon_set;
mod deployment;
mod device;
pub mod disruption_budget;
mod endpoint_slice;
mod endpoints;
mod event;
pub mod flow;
mod ingress;
mod ingress_class;
mod int_or_percent;
mod ip_address;
mod kind;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
pub mod place;
pub mod pod;
mod pod_template;
mod priority_class;
mod replica_set;
mod replication_controller;
pub mod resource_metrics;
pub mod resource_name;
pub mod resource_quota;
mod review;
pub mod rules;
mod runtime_class;
mod secret;
pub mod selector;
mod service_account;
mod service_cidr;
mod stateful_set;
mod storage_class;
#[cfg(test)]
mod tests;
mod volume_attachment;
mod volume_attributes_class;
mod volume_claim;
mod workload;

pub use crate::builtin::priority_class::SYSTEM_CLASSES;

/// Every row, in the order in which discovery lists the groups.
const KINDS: &[&Kind] = &[
    &binding::KIND,
    &component_status::KIND,
    &config_map::KIND,
    &endpoints::KIND,
    &event::CORE,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &volume_claim::KIND,
    &persistent_volume::KIND,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &secret::KIND,
    &service_account::KIND,
    &service::KIND,
    &api_service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &event::EVENTS,
    &review::SELF_SUBJECT,
    &review::TOKEN,
    &review::LOCAL_SUBJECT_ACCESS,
    &review::SELF_SUBJECT_ACCESS,
    &review::SELF_SUBJECT_RULES,
    &review::SUBJECT_ACCESS,
    &autoscaler::KIND,
    &batch::cron_job::KIND,
    &batch::job::KIND,
    &certificate_signing_request::KIND,
    &ingress_class::KIND,
    &ingress::KIND,
    &ip_address::KIND,
    &network_policy::KIND,
    &service_cidr::KIND,
    &disruption_budget::KIND,
    &access::CLUSTER_ROLE_BINDING,
    &access::CLUSTER_ROLE,
    &access::ROLE_BINDING,
    &access::ROLE,
    &csi::driver::KIND,
    &csi::node::KIND,
    &csi::capacity::KIND,
    &storage_class::KIND,
    &volume_attachment::KIND,
    &volume_attributes_class::KIND,
    &admission_registration::policy::MUTATING,
    &admission_registration::policy::MUTATING_BINDING,
    &admission_registration::webhook::MUTATING,
    &admission_registration::policy::VALIDATING,
    &admission_registration::policy::VALIDATING_BINDING,
    &admission_registration::webhook::VALIDATING,
    &priority_class::KIND,
    &lease::KIND,
    &runtime_class::KIND,
    &endpoint_slice::KIND,
    &device::class::KIND,
    &device::claim::KIND,
    &device::claim_template::KIND,
    &device::slice::KIND,
    &flow::schema::KIND,
    &flow::level::KIND,
];

/// The rows of `metrics.k8s.io`, which is served only where a source of metrics is set.
const RESOURCE_METRICS: [&Kind; 2] = [&resource_metrics::NODES, &resource_metrics::PODS];

/// The built-in kinds as resources of a catalog; the configuration decides which versions are served.
pub fn resources(config: &RuntimeConfig) -> Vec<Arc<Resource>> {
    kinds(config.has_initializers()).map(|kind| Arc::new(kind.resource(config))).collect()
}

/// The resources of `metrics.k8s.io`; the configuration decides which versions are served.
pub fn resource_metrics(config: &RuntimeConfig) -> Vec<Arc<Resource>> {
    RESOURCE_METRICS.iter().map(|kind| Arc::new(kind.resource(config))).collect()
}

fn kinds(has_initializers: bool) -> impl Iterator<Item = &'static Kind> {
    let initializers = has_initializers.then_some(&admission_registration::initializer::KIND);
    KINDS.iter().copied().chain(initializers)
}

/// Parses entries such as `apps/v1=false`, which enable and disable built-in kinds; an entry without a value enables.
///
/// # Errors
/// When an entry cannot be parsed, or names something unknown.
pub fn runtime_config<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<RuntimeConfig, runtime_config::Error> {
    read_config(entries, false)
}

/// The same for a server with initializers.
///
/// # Errors
/// Like [`runtime_config`].
pub fn runtime_config_with_initializers<'a>(
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<RuntimeConfig, runtime_config::Error> {
    read_config(entries, true).map(RuntimeConfig::with_initializers)
}

fn read_config<'a>(
    entries: impl IntoIterator<Item = &'a str>,
    has_initializers: bool,
) -> Result<RuntimeConfig, runtime_config::Error> {
    let kinds = kinds(has_initializers).chain(RESOURCE_METRICS);
    let all: Vec<Subject<'static>> = kinds.flat_map(Kind::subjects).collect();
    RuntimeConfig::parse(entries, &all)
}
