//! The kinds that Kubernetes itself brings, served from data: one row of `kind::Kind` each, with the functions that are
//! particular about it, behind one [`crate::strategy::Strategy`] for all of them.
//!
//! To add a kind, write its row (and its defaults, rules and cells, where it has any) in a file of its own and name it in
//! `KINDS`. Types, unknown fields, patch strategies and OpenAPI come from the schema crate's definitions.
//! CustomResourceDefinition, which makes kinds, is in [`crate::crd`].

use crate::builtin::kind::Kind;
use crate::catalog::Resource;
use std::sync::Arc;

pub mod age;
pub mod service;

mod access;
mod autoscaler;
mod batch;
mod built_in;
mod cells;
mod config_map;
mod controller_revision;
mod daemon_set;
mod deployment;
pub(crate) mod disruption_budget;
mod endpoint_slice;
mod endpoints;
mod event;
mod ingress;
mod ingress_class;
mod int_or_percent;
mod kind;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
pub(crate) mod place;
pub(crate) mod pod;
mod pod_template;
mod priority_class;
mod replica_set;
mod replication_controller;
pub(crate) mod resource_name;
pub(crate) mod resource_quota;
mod review;
pub(crate) mod rules;
mod secret;
pub(crate) mod selector;
mod service_account;
mod stateful_set;
mod storage_class;
#[cfg(test)]
mod tests;
mod volume_claim;
mod workload;

pub(crate) use crate::builtin::priority_class::SYSTEM_CLASSES;

/// Every row, in the order in which discovery lists the groups.
const KINDS: &[&Kind] = &[
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
    &ingress_class::KIND,
    &ingress::KIND,
    &network_policy::KIND,
    &disruption_budget::KIND,
    &access::CLUSTER_ROLE_BINDING,
    &access::CLUSTER_ROLE,
    &access::ROLE_BINDING,
    &access::ROLE,
    &storage_class::KIND,
    &priority_class::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
];

/// The built-in kinds as resources of a catalog.
pub fn resources() -> Vec<Arc<Resource>> {
    KINDS.iter().map(|kind| Arc::new(kind.resource())).collect()
}
