//! The audit policy and the destinations of its events: a file or standard output (`audit_log`), a webhook, or both.

use crate::Failure;
use crate::access::audit_log;
use crate::args::{AuditMode, AuditOptions, AuditWebhookOptions};
use crate::chain;
use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use steersman_server::audit::webhook::{Sender, Settings, Throttle, Webhook};
use steersman_server::audit::{Audit, Policy, Sink, Sinks};
use steersman_server::webhook::{Client, read_kubeconfig};

/// The checked options of the audit log, before it starts.
pub(crate) struct Plan {
    policy: Policy,
    log: Option<audit_log::Plan>,
    webhook: Option<(Client, Settings)>,
}

/// The writers of audit events. Must be closed after the server has stopped.
#[derive(Debug)]
pub(crate) struct Writers {
    log: Option<audit_log::Writer>,
    webhook: Option<Sender>,
}

impl Plan {
    /// Reads the policy and opens the log, if there is a policy.
    pub(crate) fn new(options: &AuditOptions) -> Result<Option<Plan>, Failure> {
        let Some(path) = &options.audit_policy_file else { return Ok(None) };
        if options.audit_log_path.is_none() && options.webhook.audit_webhook_config_file.is_none() {
            let why = "--audit-policy-file needs to be told where events go: add --audit-log-path or --audit-webhook-config-file";
            return Err(Failure::Refused(why.to_owned()));
        }
        let refused = |why: String| Failure::Refused(format!("cannot use the audit policy {}: {why}", path.display()));
        let text = fs::read_to_string(path)
            .map_err(|error| refused(format!("{error}; name a readable file with --audit-policy-file")))?;
        let policy = Policy::parse(&text).map_err(|error| refused(error.to_string()))?;
        let webhook = match &options.webhook.audit_webhook_config_file {
            Some(path) => Some((client(path)?, settings(&options.webhook))),
            None => None,
        };
        Ok(Some(Plan { policy, log: audit_log::Plan::new(options)?, webhook }))
    }

    /// Starts the thread of the log and the task of the webhook.
    pub(crate) fn start(self) -> anyhow::Result<(Audit, Writers)> {
        let mut sinks: Vec<Arc<dyn Sink>> = Vec::new();
        let log = match self.log {
            Some(plan) => {
                let (sink, writer) = plan.start().context("the audit log cannot be started")?;
                sinks.push(sink);
                Some(writer)
            }
            None => None,
        };
        let webhook = self.webhook.map(|(client, settings)| {
            let (sink, sender) = Webhook::start(client, settings);
            sinks.push(Arc::new(sink));
            sender
        });
        let sink = match <[_; 1]>::try_from(sinks) {
            Ok([sink]) => sink,
            Err(several) => Arc::new(Sinks(several)),
        };
        Ok((Audit::new(self.policy, sink), Writers { log, webhook }))
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Writers {
    /// Writes the queued events, and ends.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Some(sender) = self.webhook {
            sender.close().await;
        }
        if let Some(writer) = self.log {
            tokio::task::spawn_blocking(move || writer.close()).await.context("the audit log could not be ended")?;
        }
        Ok(())
    }
}

fn client(path: &Path) -> Result<Client, Failure> {
    read_kubeconfig(path).and_then(Client::new).map_err(|error| {
        Failure::Refused(format!("cannot use --audit-webhook-config-file {}: {}", path.display(), chain(&error)))
    })
}

fn settings(options: &AuditWebhookOptions) -> Settings {
    let throttle =
        Throttle { qps: options.audit_webhook_batch_throttle_qps, burst: options.audit_webhook_batch_throttle_burst };
    Settings {
        is_blocking: options.audit_webhook_mode == AuditMode::Blocking,
        buffer_size: options.audit_webhook_batch_buffer_size,
        batch_max_size: options.audit_webhook_batch_max_size,
        batch_max_wait: options.audit_webhook_batch_max_wait,
        throttle: options.audit_webhook_batch_throttle_enable.then_some(throttle),
        initial_backoff: options.audit_webhook_initial_backoff,
    }
}
