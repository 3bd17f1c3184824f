//! The flags of authorization, named as kube-apiserver names them.

use crate::args::duration;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct AuthorizationOptions {
    /// The authorizers that decide whether a request is allowed, in this order: `Node`, `RBAC`, `ABAC`, `Webhook`,
    /// `AlwaysAllow`, `AlwaysDeny`. Node and RBAC by default; members of system:masters are always allowed.
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    pub(crate) authorization_mode: Vec<String>,
    /// The policies of the mode ABAC, a JSON object in each line.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_policy_file: Option<PathBuf>,
    /// The webhook of the mode Webhook, in the format of a kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_webhook_config_file: Option<PathBuf>,
    /// The time for which an allowing answer of the webhook is cached; 5m by default, 0s disables the cache.
    #[arg(long, value_parser = duration::any, value_name = "DURATION")]
    pub(crate) authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// The time for which a refusing answer of the webhook is cached; 30s by default, 0s disables the cache.
    #[arg(long, value_parser = duration::any, value_name = "DURATION")]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// The version of the SubjectAccessReviews that are sent to the webhook: `v1` (the default) or `v1beta1`.
    #[arg(long, value_name = "VERSION")]
    pub(crate) authorization_webhook_version: Option<String>,
    /// A file with the same options and more: an AuthorizationConfiguration of apiserver.config.k8s.io, instead of the
    /// flags.
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_config: Option<PathBuf>,
}
