//! The server's authentication, from flags and files.

use crate::Failure;
use crate::access::account_keys::{self, NewKeys};
use crate::args::{AuthenticationOptions, WebhookVersion};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use steersman_server::authn::{
    self, Anonymous, Configuration, Issuer, Keyring, Oidc, PrefixedClaim, PublicKey, RequestHeader, ReviewVersion,
    ServiceAccountOptions, SigningKey, Tokens, Webhook, WebhookSettings,
};
use steersman_server::webhook::{Client, EndpointError, read_kubeconfig};

/// The options and the content of the files that they name.
#[derive(Debug)]
pub(crate) struct Authentication {
    options: AuthenticationOptions,
    tokens: Tokens,
    signing: Option<SigningKey>,
    trusted: Vec<PublicKey>,
    issuers: Vec<Oidc>,
    webhook: Option<Webhook>,
    anonymous: Anonymous,
    /// The PEM of the CA of authenticating proxies.
    pub(crate) proxies: Option<String>,
}

impl Authentication {
    /// Reads the files. Changes nothing.
    pub(crate) fn read(options: AuthenticationOptions) -> Result<Authentication, Failure> {
        let mut trusted = Vec::new();
        for path in &options.service_account_key_file {
            let read = read(path, "--service-account-key-file")?;
            let keys = PublicKey::read_all(&read);
            trusted.extend(keys.map_err(|error| refused(path, "the key file", &error.to_string()))?);
        }
        let signing = match &options.service_account_signing_key_file {
            Some(path) => {
                let read = read(path, "--service-account-signing-key-file")?;
                let key = SigningKey::read(&read);
                Some(key.map_err(|error| refused(path, "the signing key file", &error.to_string()))?)
            }
            None => None,
        };
        let tokens = match &options.token_auth_file {
            Some(path) => {
                let read = read(path, "--token-auth-file")?;
                Tokens::parse(&read).map_err(|error| refused(path, "the token file", &error.to_string()))?
            }
            None => Tokens::default(),
        };
        let proxies = match &options.requestheader_client_ca_file {
            Some(path) => {
                let pem = read(path, "--requestheader-client-ca-file")?;
                check_ca(&pem).map_err(|why| refused(path, "the CA file", &why))?;
                Some(pem)
            }
            None => None,
        };
        let (issuers, anonymous) = issuers(&options)?;
        let webhook = webhook(&options)?;
        Ok(Authentication { options, tokens, signing, trusted, issuers, webhook, anonymous, proxies })
    }

    /// The options of a server that makes its keys there, unless one is given.
    pub(crate) fn with_keys_in(self, new: NewKeys<'_>) -> Result<authn::Options, Failure> {
        let Authentication { options, tokens, signing, trusted, issuers, webhook, anonymous, proxies } = self;
        let keys = match signing {
            Some(signing) => Keyring::given(Some(signing), trusted),
            None => account_keys::made(new, trusted)?,
        };
        let service_accounts = ServiceAccountOptions {
            issuers: options.service_account_issuer,
            keys: Arc::new(keys),
            jwks_uri: options.service_account_jwks_uri,
            expiration_max: options.service_account_max_token_expiration,
            extends_expiration: options.service_account_extend_token_expiration,
            token_secrets: None,
        };
        let lower = |prefixes: Vec<String>| prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()).collect();
        let request_header = proxies.is_some().then(|| RequestHeader {
            allowed_names: options.requestheader_allowed_names,
            username_headers: options.requestheader_username_headers,
            uid_headers: options.requestheader_uid_headers,
            group_headers: options.requestheader_group_headers,
            extra_prefixes: lower(options.requestheader_extra_headers_prefix),
        });
        Ok(authn::Options {
            tokens,
            service_accounts,
            api_audiences: options.api_audiences,
            anonymous,
            issuers,
            webhook,
            takes_bootstrap_tokens: options.enable_bootstrap_token_auth,
            request_header,
            client_ca: None,
            published_proxies: None,
        })
    }
}

/// The issuers of JWTs, and the anonymous requests that are answered.
fn issuers(options: &AuthenticationOptions) -> Result<(Vec<Oidc>, Anonymous), Failure> {
    let is_open = options.anonymous_auth.unwrap_or(options.anonymous_default);
    let mut anonymous = if is_open { Anonymous::Always } else { Anonymous::Never };
    let (issuers, path) = match (&options.authentication_config, &options.oidc_issuer_url) {
        (Some(path), _) => {
            let yaml = read(path, "--authentication-config")?;
            let parsed = Configuration::parse(&yaml, &options.service_account_issuer);
            let parsed = parsed.map_err(|error| refused(path, "the file", &error.to_string()))?;
            if let Some(configured) = parsed.anonymous {
                if options.anonymous_auth.is_some() {
                    let why = "it says which requests without credentials are answered, and so does --anonymous-auth: take one of them";
                    return Err(refused(path, "the file", why));
                }
                anonymous = configured;
            }
            (parsed.issuers, path.clone())
        }
        (None, Some(url)) => (vec![flagged_issuer(options, url)?], url.into()),
        (None, None) => return Ok((Vec::new(), anonymous)),
    };
    let made: Result<Vec<Oidc>, EndpointError> = issuers.into_iter().map(Oidc::new).collect();
    let made = made.map_err(|error| refused(&path, "the issuer of", &crate::chain(&error)))?;
    Ok((made, anonymous))
}

/// The issuer of the flags.
fn flagged_issuer(options: &AuthenticationOptions, url: &str) -> Result<Issuer, Failure> {
    if !url.starts_with("https://") {
        return Err(Failure::Refused(format!("cannot use the OIDC issuer {url:?}: want an https URL")));
    }
    if options.service_account_issuer.iter().any(|own| own == url) {
        let why = "it is the issuer of ServiceAccount tokens; give that another name with --service-account-issuer";
        return Err(Failure::Refused(format!("cannot use the OIDC issuer {url:?}: {why}")));
    }
    let claim = options.oidc_username_claim.clone();
    let prefix = match options.oidc_username_prefix.as_deref() {
        None if claim == "email" => String::new(),
        None => format!("{url}#"),
        Some("-") => String::new(),
        Some(prefix) => prefix.to_owned(),
    };
    let groups_prefix = options.oidc_groups_prefix.clone().unwrap_or_default();
    let groups = options.oidc_groups_claim.clone().map(|claim| PrefixedClaim { claim, prefix: groups_prefix });
    let ca = match &options.oidc_ca_file {
        Some(path) => read(path, "--oidc-ca-file")?.into_bytes(),
        None => Vec::new(),
    };
    Ok(Issuer {
        url: url.to_owned(),
        discovery_url: None,
        ca,
        audiences: options.oidc_client_id.iter().cloned().collect(),
        algorithms: options.oidc_signing_algs.clone(),
        username: PrefixedClaim { claim, prefix },
        groups,
        uid: None,
        required: options.oidc_required_claim.iter().cloned().collect(),
    })
}

fn webhook(options: &AuthenticationOptions) -> Result<Option<Webhook>, Failure> {
    let Some(path) = &options.authentication_token_webhook_config_file else { return Ok(None) };
    let unusable = |error: EndpointError| refused(path, "the webhook of", &crate::chain(&error));
    let client = Client::new(read_kubeconfig(path).map_err(unusable)?).map_err(unusable)?;
    let version = match options.authentication_token_webhook_version {
        WebhookVersion::V1 => ReviewVersion::V1,
        WebhookVersion::V1beta1 => ReviewVersion::V1Beta1,
    };
    let ttl = options.authentication_token_webhook_cache_ttl;
    Ok(Some(Webhook::new(client, WebhookSettings { ttl, version })))
}

fn read(path: &Path, flag: &str) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| refused(path, "the file", &format!("{error}; name a readable file with {flag}")))
}

/// Checks that a file contains certificates.
fn check_ca(pem: &str) -> Result<(), String> {
    let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).peekable();
    if certificates.peek().is_none() {
        return Err("there is no certificate in it".to_owned());
    }
    certificates.try_for_each(|certificate| certificate.map(|_| ()).map_err(|error| error.to_string()))
}

fn refused(path: &Path, what: &str, why: &str) -> Failure {
    Failure::Refused(format!("cannot use {what} {}: {why}", path.display()))
}
