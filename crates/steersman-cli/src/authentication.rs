//! How the server authenticates, from flags and files.

use crate::Failure;
use crate::account_keys;
use crate::args::AuthenticationOptions;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fs;
use std::path::Path;
use steersman_server::authn::{self, Keyring, PublicKey, RequestHeader, ServiceAccountOptions, SigningKey, Tokens};

/// What was read from the files that the flags name.
#[derive(Debug)]
pub(crate) struct Authentication {
    options: AuthenticationOptions,
    tokens: Tokens,
    signing: Option<SigningKey>,
    trusted: Vec<PublicKey>,
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
        Ok(Authentication { options, tokens, signing, trusted, proxies })
    }

    /// The options of a server whose own keys are in this directory.
    pub(crate) fn with_keys_in(self, dir: &Path, in_memory: bool) -> Result<authn::Options, Failure> {
        let Authentication { options, tokens, signing, trusted, proxies } = self;
        let keys = match signing {
            Some(signing) => Keyring::given(Some(signing), trusted),
            None => account_keys::made(dir, in_memory, trusted)?,
        };
        let service_accounts = ServiceAccountOptions {
            issuers: options.service_account_issuer,
            keys,
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
            allows_anonymous: options.anonymous_auth,
            takes_bootstrap_tokens: options.enable_bootstrap_token_auth,
            request_header,
        })
    }
}

fn read(path: &Path, flag: &str) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| refused(path, "the file", &format!("{error}; name a readable file with {flag}")))
}

/// Checks that a file holds certificates.
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
