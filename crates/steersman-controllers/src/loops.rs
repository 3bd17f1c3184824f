//! The control loops, by what they look after. `ControlLoop` is their table.

/// Accounts, tokens and certificates.
pub(crate) mod access {
    pub(crate) mod bootstrap_tokens;
    pub mod certificates;
    pub(crate) mod legacy_tokens;
    pub(crate) mod root_ca;
    pub(crate) mod service_account;
}
/// Garbage, namespaces that end, and quotas.
pub(crate) mod cleanup {
    pub(crate) mod garbage_collector;
    pub(crate) mod namespace;
    pub(crate) mod resource_quota;
}
/// Services and their endpoints.
pub(crate) mod network {
    pub(crate) mod endpoint_slice_mirroring;
    pub(crate) mod endpoint_slices;
    pub(crate) mod endpoints;
    pub(crate) mod service_cidr;
    pub(crate) mod service_pods;
}
/// Nodes, and the Pods on them.
pub(crate) mod nodes {
    pub(crate) mod node_lifecycle;
    pub(crate) mod node_ttl;
    pub(crate) mod pod_gc;
    pub(crate) mod taint_eviction;
}
/// How many Pods there are, and how many may be missing.
pub(crate) mod scaling {
    pub(crate) mod disruption;
    pub(crate) mod horizontal_pod_autoscaler;
    pub(crate) mod scaled;
}
/// Claims, volumes and devices.
pub(crate) mod storage {
    pub(crate) mod resource_claims;
    pub(crate) mod volumes;
}
/// Pods for their owners.
pub(crate) mod workloads {
    pub(crate) mod cron_job;
    pub(crate) mod daemonset;
    pub(crate) mod deployment;
    pub(crate) mod history;
    pub(crate) mod job;
    pub(crate) mod replicas;
    pub(crate) mod statefulset;
    pub(crate) mod template_hash;
    pub(crate) mod ttl_after_finished;
}
