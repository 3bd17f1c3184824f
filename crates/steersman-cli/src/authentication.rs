//! How the server authenticates, from flags and files.

use crate::Failure;
use crate::account_keys;
use crate::args::AuthenticationOptions;
use std::fs;
use std::path::Path;
use steersman_server::authn::{self, Keyring, PublicKey, ServiceAccountOptions, SigningKey, Tokens};

/// What was read from the files that the flags name.
#[derive(Debug)]
pub(crate) struct Authentication {
    options: AuthenticationOptions,
    tokens: Tokens,
    signing: Option<SigningKey>,
    trusted: Vec<PublicKey>,
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
        Ok(Authentication { options, tokens, signing, trusted })
    }

    /// The options of a server whose own keys are in this directory.
    pub(crate) fn with_keys_in(self, dir: &Path, in_memory: bool) -> Result<authn::Options, Failure> {
        let Authentication { options, tokens, signing, trusted } = self;
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
        Ok(authn::Options {
            tokens,
            service_accounts,
            api_audiences: options.api_audiences,
            allows_anonymous: options.anonymous_auth,
            client_ca: None,
        })
    }
}

fn read(path: &Path, flag: &str) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| refused(path, "the file", &format!("{error}; name a readable file with {flag}")))
}

fn refused(path: &Path, what: &str, why: &str) -> Failure {
    Failure::Refused(format!("cannot use {what} {}: {why}", path.display()))
}
