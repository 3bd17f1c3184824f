//! The flags of the audit log, named as kube-apiserver names them.

use crate::args::duration;
use clap::{ArgAction, Args as ClapArgs, ValueEnum, value_parser};
use std::path::PathBuf;
use std::time::Duration;

/// The content and the destinations of the audit log. The flags are those of kube-apiserver.
#[derive(ClapArgs, Debug)]
pub(crate) struct AuditOptions {
    /// The policy that selects the events of the audit log and its webhook: a Policy of audit.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// Write the audit log to this file, a line of JSON for every event. `-` is standard output.
    #[arg(long, requires = "audit_policy_file", value_name = "FILE")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// The format of the lines.
    #[arg(long, value_enum, default_value_t = AuditFormat::Json, requires = "audit_log_path")]
    pub(crate) audit_log_format: AuditFormat,
    /// Rotate the audit log when it reaches this many megabytes.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..), requires = "audit_log_path", value_name = "MB")]
    pub(crate) audit_log_maxsize: u32,
    /// Remove rotated audit logs after this many days; 0 keeps them.
    #[arg(long, default_value_t = 0, requires = "audit_log_path", value_name = "DAYS")]
    pub(crate) audit_log_maxage: u32,
    /// The number of rotated audit logs to keep; 0 keeps all.
    #[arg(long, default_value_t = 0, requires = "audit_log_path", value_name = "N")]
    pub(crate) audit_log_maxbackup: u32,
    /// Compress rotated audit logs with gzip.
    #[arg(long, requires = "audit_log_path")]
    pub(crate) audit_log_compress: bool,
    /// Whether requests wait for the audit log.
    #[arg(long, value_enum, default_value_t = AuditMode::Batch, requires = "audit_log_path")]
    pub(crate) audit_log_mode: AuditMode,
    /// The number of events that may wait to be written. Further ones are dropped and counted.
    #[arg(long, default_value_t = 10_000, value_parser = n_events, requires = "audit_log_path", value_name = "N")]
    pub(crate) audit_log_batch_buffer_size: usize,
    /// The number of events that are written at a time.
    #[arg(long, default_value_t = 400, value_parser = n_events, requires = "audit_log_path", value_name = "N")]
    pub(crate) audit_log_batch_max_size: usize,
    #[command(flatten)]
    pub(crate) webhook: AuditWebhookOptions,
}

/// The webhook that receives the audit log.
#[derive(ClapArgs, Debug)]
pub(crate) struct AuditWebhookOptions {
    /// Send audit events to the webhook of this file, in the format of a kubeconfig.
    #[arg(long, requires = "audit_policy_file", value_name = "FILE")]
    pub(crate) audit_webhook_config_file: Option<PathBuf>,
    /// Whether requests wait for the webhook.
    #[arg(long, value_enum, default_value_t = AuditMode::Batch, requires = "audit_webhook_config_file")]
    pub(crate) audit_webhook_mode: AuditMode,
    /// The version of the events.
    #[arg(long, value_enum, default_value_t = AuditVersion::V1, requires = "audit_webhook_config_file")]
    pub(crate) audit_webhook_version: AuditVersion,
    /// The pause after the first failed call. Each further pause is half as long again.
    #[arg(long, alias = "audit-webhook-batch-initial-backoff", default_value = "10s", value_parser = duration::any, requires = "audit_webhook_config_file", value_name = "DURATION")]
    pub(crate) audit_webhook_initial_backoff: Duration,
    /// The number of events that may wait to be sent. Further ones are dropped and counted.
    #[arg(long, default_value_t = 10_000, value_parser = n_events, requires = "audit_webhook_config_file", value_name = "N")]
    pub(crate) audit_webhook_batch_buffer_size: usize,
    /// The number of events that are sent at a time.
    #[arg(long, default_value_t = 400, value_parser = n_events, requires = "audit_webhook_config_file", value_name = "N")]
    pub(crate) audit_webhook_batch_max_size: usize,
    /// The longest that an event waits for others to be sent with it.
    #[arg(long, default_value = "30s", value_parser = duration::any, requires = "audit_webhook_config_file", value_name = "DURATION")]
    pub(crate) audit_webhook_batch_max_wait: Duration,
    /// Limit the batches sent, as the next two flags say.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, requires = "audit_webhook_config_file", value_name = "true|false")]
    pub(crate) audit_webhook_batch_throttle_enable: bool,
    /// The average number of batches sent per second.
    #[arg(long, default_value_t = 10.0, value_parser = rate, requires = "audit_webhook_config_file", value_name = "N")]
    pub(crate) audit_webhook_batch_throttle_qps: f64,
    /// The number of batches that may be sent at once after a quieter time.
    #[arg(long, default_value_t = 15, value_parser = value_parser!(u32).range(1..=100_000), requires = "audit_webhook_config_file", value_name = "N")]
    pub(crate) audit_webhook_batch_throttle_burst: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum AuditVersion {
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum AuditFormat {
    /// Events of audit.k8s.io/v1.
    Json,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum AuditMode {
    /// No request waits.
    Batch,
    /// A request is answered when its event is written.
    Blocking,
}

/// A number of events.
fn n_events(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| "want a number from 1 to 1000000".to_owned())
}

/// A number of batches per second.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=100_000.0).contains(number));
    number.ok_or_else(|| "want a number from 0.001 to 100000".to_owned())
}
