//! The kinds that are built into Kubernetes, served from data: one row of `kind::Kind` for each, with the functions
//! that only it needs, behind one [`crate::strategy::Strategy`] for all of them.
//!
//! To add a kind, write its row (and its defaults, rules and cells, where it has any) in a file of its own and name it
//! in `KINDS`. Regular rules of fields are rows ([`rules::rule`]); irregular ones are functions that rows call. Types, unknown fields, patch
//! strategies and OpenAPI come from the schema crate's definitions.
//! CustomResourceDefinition, which defines kinds, is in [`crate::crd`].

use crate::builtin::kind::Kind;
use crate::catalog::Resource;
use crate::runtime_config::{self, RuntimeConfig, VersionedResource};
use std::sync::Arc;
use steersman_schema::Edition;

/// Permissions, accounts, certificates and reviews.
pub mod access {
    pub mod certificate_signing_request;
    pub mod rbac;
    pub mod review;
    pub mod service_account;
}
/// The cluster itself: nodes, namespaces, Events, Leases, and the registrations that extend and protect the API server.
pub mod cluster {
    pub mod admission_registration;
    pub mod api_service;
    pub mod component_status;
    pub mod event;
    pub mod flow;
    pub mod lease;
    pub mod namespace;
    pub mod node;
    pub mod priority_class;
    pub mod resource_metrics;
    pub mod runtime_class;
}
/// Services, and the ways to reach them.
pub mod network {
    pub mod endpoint_slice;
    pub mod endpoints;
    pub mod ingress;
    pub mod ingress_class;
    pub mod ip_address;
    pub mod network_policy;
    pub mod service;
    pub mod service_cidr;
}
/// Pods, their configuration, limits and devices.
pub mod pods {
    pub mod binding;
    pub mod config_map;
    pub mod device;
    pub mod disabled;
    pub mod limit_range;
    pub mod pod;
    pub mod pod_template;
    pub mod resource_quota;
    pub mod secret;
}
/// Volumes, claims, classes and drivers.
pub mod storage {
    pub mod csi;
    pub mod persistent_volume;
    pub mod storage_class;
    pub mod volume_attachment;
    pub mod volume_attributes_class;
    pub mod volume_claim;
    pub mod volume_source;
}
/// The owners of Pods: apps, batch, autoscaling, disruption budgets.
pub mod workloads {
    pub mod autoscaler;
    pub mod batch;
    pub mod controller_revision;
    pub mod daemon_set;
    pub mod deployment;
    pub mod disruption_budget;
    pub mod replica_set;
    pub mod replication_controller;
    pub mod stateful_set;
    pub mod workload;
}

mod built_in;
mod kind;
pub mod rules;
#[cfg(test)]
mod tests;

pub use crate::builtin::cluster::priority_class::SYSTEM_CLASSES;

/// Every row, in the order in which discovery lists the groups.
const KINDS: &[&Kind] = &[
    &pods::binding::KIND,
    &cluster::component_status::KIND,
    &pods::config_map::KIND,
    &network::endpoints::KIND,
    &cluster::event::CORE,
    &pods::limit_range::KIND,
    &cluster::namespace::KIND,
    &cluster::node::KIND,
    &storage::volume_claim::KIND,
    &storage::persistent_volume::KIND,
    &pods::pod::KIND,
    &pods::pod_template::KIND,
    &workloads::replication_controller::KIND,
    &pods::resource_quota::KIND,
    &pods::secret::KIND,
    &access::service_account::KIND,
    &network::service::KIND,
    &cluster::api_service::KIND,
    &workloads::controller_revision::KIND,
    &workloads::daemon_set::KIND,
    &workloads::deployment::KIND,
    &workloads::replica_set::KIND,
    &workloads::stateful_set::KIND,
    &cluster::event::EVENTS,
    &access::review::SELF_SUBJECT,
    &access::review::TOKEN,
    &access::review::LOCAL_SUBJECT_ACCESS,
    &access::review::SELF_SUBJECT_ACCESS,
    &access::review::SELF_SUBJECT_RULES,
    &access::review::SUBJECT_ACCESS,
    &workloads::autoscaler::KIND,
    &workloads::batch::cron_job::KIND,
    &workloads::batch::job::KIND,
    &access::certificate_signing_request::KIND,
    &network::ingress_class::KIND,
    &network::ingress::KIND,
    &network::ip_address::KIND,
    &network::network_policy::KIND,
    &network::service_cidr::KIND,
    &workloads::disruption_budget::KIND,
    &access::rbac::CLUSTER_ROLE_BINDING,
    &access::rbac::CLUSTER_ROLE,
    &access::rbac::ROLE_BINDING,
    &access::rbac::ROLE,
    &storage::csi::driver::KIND,
    &storage::csi::node::KIND,
    &storage::csi::capacity::KIND,
    &storage::storage_class::KIND,
    &storage::volume_attachment::KIND,
    &storage::volume_attributes_class::KIND,
    &cluster::admission_registration::policy::MUTATING,
    &cluster::admission_registration::policy::MUTATING_BINDING,
    &cluster::admission_registration::webhook::MUTATING,
    &cluster::admission_registration::policy::VALIDATING,
    &cluster::admission_registration::policy::VALIDATING_BINDING,
    &cluster::admission_registration::webhook::VALIDATING,
    &cluster::priority_class::KIND,
    &cluster::lease::KIND,
    &cluster::runtime_class::KIND,
    &network::endpoint_slice::KIND,
    &pods::device::class::KIND,
    &pods::device::claim::KIND,
    &pods::device::claim_template::KIND,
    &pods::device::slice::KIND,
    &cluster::flow::schema::KIND,
    &cluster::flow::level::KIND,
];

/// The rows of `metrics.k8s.io`, which is served only where a source of metrics is set.
const RESOURCE_METRICS: [&Kind; 2] = [&cluster::resource_metrics::NODES, &cluster::resource_metrics::PODS];

/// The built-in kinds as resources of a catalog; the configuration decides which versions are served.
pub fn resources(config: &RuntimeConfig) -> Vec<Arc<Resource>> {
    kinds(config.edition()).map(|kind| Arc::new(kind.resource(config))).collect()
}

/// The resources of `metrics.k8s.io`; the configuration decides which versions are served.
pub fn resource_metrics(config: &RuntimeConfig) -> Vec<Arc<Resource>> {
    RESOURCE_METRICS.iter().map(|kind| Arc::new(kind.resource(config))).collect()
}

fn kinds(edition: Edition) -> impl Iterator<Item = &'static Kind> {
    let initializers = match edition {
        Edition::Kubernetes => None,
        Edition::WithInitializers => Some(&cluster::admission_registration::initializer::KIND),
    };
    KINDS.iter().copied().chain(initializers)
}

/// Parses entries such as `apps/v1=false`, which enable and disable built-in kinds; an entry without a value enables.
///
/// # Errors
/// When an entry cannot be parsed, or names something unknown.
pub fn runtime_config<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<RuntimeConfig, runtime_config::Error> {
    read_config(entries, Edition::Kubernetes)
}

/// The same for a server with initializers.
///
/// # Errors
/// Like [`runtime_config()`].
pub fn runtime_config_with_initializers<'a>(
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<RuntimeConfig, runtime_config::Error> {
    read_config(entries, Edition::WithInitializers).map(RuntimeConfig::with_initializers)
}

fn read_config<'a>(
    entries: impl IntoIterator<Item = &'a str>,
    edition: Edition,
) -> Result<RuntimeConfig, runtime_config::Error> {
    let kinds = kinds(edition).chain(RESOURCE_METRICS);
    let all: Vec<VersionedResource<'static>> = kinds.flat_map(Kind::versioned_resources).collect();
    RuntimeConfig::parse(entries, &all)
}
