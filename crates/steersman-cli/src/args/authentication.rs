//! The flags of authentication. They have the names and meanings of kube-apiserver's.

use crate::args::duration;
use clap::{ArgAction, Args, ValueEnum};
use http::HeaderName;
use std::path::PathBuf;
use std::time::Duration;
use steersman_server::authn::{Algorithm, DEFAULT_ISSUER};

/// A version of TokenReview.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum WebhookVersion {
    V1,
    V1beta1,
}

/// The options of authentication.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationOptions {
    /// A file of static tokens, with a line `token,user,uid,"group1,group2"` for each user.
    #[arg(long, value_name = "CSV")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// Answer requests without credentials too, as those of system:anonymous in the group system:unauthenticated. Off
    /// by default.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) anonymous_auth: Option<bool>,
    /// The default of `anonymous_auth`, unless a file sets it.
    #[arg(skip)]
    pub(crate) anonymous_default: bool,
    /// The issuer of ServiceAccount tokens. If given more than once, the first issues new tokens, and tokens of all are
    /// accepted.
    #[arg(long, value_name = "ISSUER", default_value = DEFAULT_ISSUER)]
    pub(crate) service_account_issuer: Vec<String>,
    /// A PEM file of keys, public or private, with which ServiceAccount tokens are verified. May be given more than once.
    #[arg(long, value_name = "PEM")]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// The private key that signs ServiceAccount tokens. Without it, RS256 keys are made when the first token is
    /// requested, kept in the data directory and replaced every 90 days.
    #[arg(long, value_name = "PEM")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// The URL of the token keys in the discovery document, instead of /openid/v1/jwks of this server.
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
    /// The longest lifetime of a ServiceAccount token, 1h or more; without it, as long as is requested.
    #[arg(long, value_parser = duration::token, value_name = "DURATION")]
    pub(crate) service_account_max_token_expiration: Option<Duration>,
    /// Make the tokens that kubelets request for pods valid for a year, for programs that read their token only once.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) service_account_extend_token_expiration: bool,
    /// Let nodes join: accept the tokens of Secrets of the type bootstrap.kubernetes.io/token in kube-system, and run the
    /// scheduler and the controllers that nodes need. `steersman node token` makes a token.
    #[arg(long, value_name = "BOOL", default_value_t = false, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// The lifetime of the certificates that CertificateSigningRequests are answered with, those of kubelets among them,
    /// unless a request asks for a shorter one.
    #[arg(long, default_value = "365d", value_parser = duration::more_than_none, value_name = "DURATION")]
    pub(crate) cluster_signing_duration: Duration,
    /// The URL of an OIDC issuer whose tokens are accepted, as it stands in the tokens.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub(crate) oidc_issuer_url: Option<String>,
    /// The audience that tokens of the OIDC issuer must have.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub(crate) oidc_client_id: Option<String>,
    /// The claim with the name of the user.
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = "oidc_issuer_url")]
    pub(crate) oidc_username_claim: String,
    /// The prefix of user names; `-` for none. Without it, the issuer and `#`, but none for an email.
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true, requires = "oidc_issuer_url")]
    pub(crate) oidc_username_prefix: Option<String>,
    /// The claim with the groups of the user.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub(crate) oidc_groups_claim: Option<String>,
    /// The prefix of group names.
    #[arg(long, value_name = "PREFIX", requires = "oidc_groups_claim")]
    pub(crate) oidc_groups_prefix: Option<String>,
    /// A claim that a token must have, with its value. May be given more than once.
    #[arg(long, value_name = "CLAIM=VALUE", value_parser = pair, requires = "oidc_issuer_url")]
    pub(crate) oidc_required_claim: Vec<(String, String)>,
    /// The accepted signature algorithms of tokens of the OIDC issuer.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = algorithm, default_value = "RS256", requires = "oidc_issuer_url")]
    pub(crate) oidc_signing_algs: Vec<Algorithm>,
    /// The CA of the OIDC issuer; without it, the system's.
    #[arg(long, value_name = "PEM", requires = "oidc_issuer_url")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
    /// A file of kind AuthenticationConfiguration: issuers of JWTs, and the paths at which anonymous requests are
    /// answered.
    #[arg(long, value_name = "YAML", conflicts_with = "oidc_issuer_url")]
    pub(crate) authentication_config: Option<PathBuf>,
    /// Ask a webhook about unknown tokens: a file in the format of a kubeconfig that says where it is.
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_token_webhook_config_file: Option<PathBuf>,
    /// The time for which an answer of the webhook is cached; 0s disables the cache.
    #[arg(long, value_name = "DURATION", value_parser = duration::any, default_value = "2m", requires = "authentication_token_webhook_config_file")]
    pub(crate) authentication_token_webhook_cache_ttl: Duration,
    /// The version of the TokenReview that is sent to the webhook.
    #[arg(long, value_enum, default_value_t = WebhookVersion::V1beta1, requires = "authentication_token_webhook_config_file")]
    pub(crate) authentication_token_webhook_version: WebhookVersion,
    /// The CA of proxies that authenticate users and name them in headers. Such headers are ignored from all other
    /// clients.
    #[arg(long, value_name = "PEM")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of the proxies. Without it, every holder of a certificate of their CA is one.
    #[arg(long, value_delimiter = ',', value_name = "A,B", requires = "requestheader_client_ca_file")]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Headers in which a proxy names the user. The first that is present counts.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-User"
    )]
    pub(crate) requestheader_username_headers: Vec<HeaderName>,
    /// Headers in which a proxy gives the uid of the user. The first that is present counts.
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
    /// The prefixes of headers in which a proxy gives extra fields of the user.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        requires = "requestheader_client_ca_file",
        default_value = "X-Remote-Extra-"
    )]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
    /// The audiences of this server: it refuses tokens that have none of them. Without it, the issuers.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) api_audiences: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(claim, _)| !claim.is_empty());
    pair.map(|(claim, value)| (claim.to_owned(), value.to_owned())).ok_or_else(|| "want CLAIM=VALUE".to_owned())
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let known = Algorithm::ALL.map(Algorithm::as_str).join(", ");
    Algorithm::named(text).ok_or_else(|| format!("want some of {known}"))
}
