//! The kinds that make Pods, and those that count them.

pub(crate) mod autoscalers;
pub(crate) mod cron_jobs;
pub(crate) mod daemon_sets;
pub(crate) mod deployments;
pub(crate) mod disruption;
pub(crate) mod jobs;
pub(crate) mod replicas;
pub(crate) mod stateful_sets;
