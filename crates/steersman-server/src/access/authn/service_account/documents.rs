//! The documents with which others verify the tokens of this server: the OIDC discovery document and the key set.

use crate::access::authn::service_account::ServiceAccounts;
use crate::access::authn::service_account::keyring::SignError;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The path of the discovery document.
pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// The path of the key set.
pub(crate) const JWKS_PATH: &str = "/openid/v1/jwks";

impl ServiceAccounts {
    /// The OIDC discovery document; `address` is the host and port under which clients reach the server. `None` where
    /// the issuer is not a URL, so that no client could find the document.
    ///
    /// # Errors
    /// When the first key has to be generated, and that fails.
    pub(crate) async fn configuration(&self, address: &str, now: Timestamp) -> Result<Option<Value>, SignError> {
        let Some(issuer) = self.options.issuers.first().filter(|issuer| issuer.starts_with("https://")) else {
            return Ok(None);
        };
        self.make_first_key(now).await?;
        let keys = self.options.keys.verifying();
        let algorithms: BTreeSet<&str> = keys.iter().map(|key| key.algorithm().as_str()).collect();
        let jwks_uri = self.options.jwks_uri.clone().unwrap_or_else(|| format!("https://{address}{JWKS_PATH}"));
        Ok(Some(json!({
            "issuer": issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })))
    }

    /// The keys that verify tokens.
    ///
    /// # Errors
    /// When the first key has to be generated, and that fails.
    pub(crate) async fn jwks(&self, now: Timestamp) -> Result<Value, SignError> {
        self.make_first_key(now).await?;
        let keys: Vec<Value> = self.options.keys.verifying().iter().map(|key| key.to_jwk()).collect();
        Ok(json!({"keys": keys}))
    }

    /// Generates the signing key if there is none yet, because the documents must be valid for later tokens.
    async fn make_first_key(&self, now: Timestamp) -> Result<(), SignError> {
        match self.options.keys.can_sign() {
            true => self.options.keys.signing_key(Some(now), now).await.map(|_| ()),
            false => Ok(()),
        }
    }
}
