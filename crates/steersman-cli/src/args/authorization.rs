//! The flags of who decides whether a request is allowed, named as kube-apiserver names them.

use crate::args::duration;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct AuthorizationOptions {
    /// Who decides whether a request is allowed, asked in this order: `Node`, `RBAC`, `ABAC`, `Webhook`, `AlwaysAllow`,
    /// `AlwaysDeny`. Node and RBAC unless told otherwise; members of system:masters are always allowed.
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    pub(crate) authorization_mode: Vec<String>,
    /// The policies of the mode ABAC, a JSON object in each line.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_policy_file: Option<PathBuf>,
    /// The webhook of the mode Webhook, in the format of a kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_webhook_config_file: Option<PathBuf>,
    /// For how long an allowance of the webhook is remembered; 5m unless told otherwise, 0s for not at all.
    #[arg(long, value_parser = duration::any, value_name = "DURATION")]
    pub(crate) authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// For how long a refusal of the webhook is remembered; 30s unless told otherwise, 0s for not at all.
    #[arg(long, value_parser = duration::any, value_name = "DURATION")]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// The version of the SubjectAccessReviews that are sent to the webhook: `v1` (unless told otherwise) or `v1beta1`.
    #[arg(long, value_name = "VERSION")]
    pub(crate) authorization_webhook_version: Option<String>,
    /// The same and more in a file: an AuthorizationConfiguration of apiserver.config.k8s.io, in place of the flags.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_config: Option<PathBuf>,
}
