//! The flags about who is who. They are named, and mean, what kube-apiserver's do.

use crate::args::duration;
use clap::{ArgAction, Args};
use http::HeaderName;
use std::path::PathBuf;
use std::time::Duration;
use steersman_server::authn::DEFAULT_ISSUER;

/// Of authentication.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationOptions {
    /// Users who sign in by a token: a file with a line `token,user,uid,"group1,group2"` for each.
    #[arg(long, value_name = "CSV")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// Answer requests without credentials too, as those of system:anonymous in the group system:unauthenticated.
    #[arg(long, value_name = "BOOL", default_value_t = false, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) anonymous_auth: bool,
    /// The issuer of ServiceAccount tokens. Given more than once, the first issues and the tokens of all are taken.
    #[arg(long, value_name = "ISSUER", default_value = DEFAULT_ISSUER)]
    pub(crate) service_account_issuer: Vec<String>,
    /// A PEM file of keys, public or private, with which ServiceAccount tokens are verified. May be given more than once.
    #[arg(long, value_name = "PEM")]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// The private key that signs ServiceAccount tokens. Without it, RS256 keys are made when the first token is asked for, kept
    /// in the data directory and replaced every 90 days.
    #[arg(long, value_name = "PEM")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// Where the discovery document says that the keys of the tokens are, in place of /openid/v1/jwks of this server.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
    /// The longest that a ServiceAccount token is issued for, from 1h on; without it, as long as is asked.
    #[arg(long, value_parser = duration::token, value_name = "DURATION")]
    pub(crate) service_account_max_token_expiration: Option<Duration>,
    /// Let the tokens that kubelets fetch for pods be good for a year, for programs that read theirs but once.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) service_account_extend_token_expiration: bool,
    /// Take the tokens of Secrets of the type bootstrap.kubernetes.io/token in kube-system, with which new nodes join.
    #[arg(long, value_name = "BOOL", default_value_t = false, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// The CA of proxies that authenticate users and say in headers who they are. From others such headers count for nothing.
    #[arg(long, value_name = "PEM")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of the proxies. Without it, whoever has a certificate of their CA is one.
    #[arg(long, value_delimiter = ',', value_name = "A,B", requires = "requestheader_client_ca_file")]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Headers in which a proxy names the user. The first that is there counts.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-User"
    )]
    pub(crate) requestheader_username_headers: Vec<HeaderName>,
    /// Headers in which a proxy gives the uid of the user. The first that is there counts.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-Uid"
    )]
    pub(crate) requestheader_uid_headers: Vec<HeaderName>,
    /// Headers in which a proxy names the groups of the user.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-Group"
    )]
    pub(crate) requestheader_group_headers: Vec<HeaderName>,
    /// What the names of headers begin with in which a proxy gives extra fields of the user.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-Extra-"
    )]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
    /// The audiences of this server: it refuses tokens that are for others only. Without it, the issuers.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) api_audiences: Vec<String>,
}
