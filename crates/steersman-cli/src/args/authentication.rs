//! The flags about who is who. They are named, and mean, what kube-apiserver's do.

use crate::args::duration;
use clap::{ArgAction, Args};
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
    /// The audiences of this server: it refuses tokens that are for others only. Without it, the issuers.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) api_audiences: Vec<String>,
}
