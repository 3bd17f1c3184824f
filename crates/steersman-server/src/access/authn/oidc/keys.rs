//! The keys of an issuer: fetched in the background, at intervals, and when a token names an unknown key.

use crate::access::authn::jws::Jws;
use crate::access::authn::key::PublicKey;
use crate::access::authn::oidc::Issuer;
use crate::shared::webhook::{CallError, Client, Credentials, Endpoint, EndpointError};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The age at which the keys are fetched again.
const INTERVAL: Duration = Duration::from_secs(600);
/// The minimum time between two fetches for tokens with an unknown key, so that such tokens cannot make the server
/// flood the issuer.
const PAUSE: Duration = Duration::from_secs(10);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for which a request waits for keys.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// The pause after a failed fetch; each further pause is twice as long, up to [`INTERVAL`].
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of keys of an issuer.
const KEYS_MAX: usize = 256;

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct Keys {
    issuer: String,
    discovery: Client,
    discovery_url: String,
    ca: Vec<u8>,
    current: watch::Sender<Arc<KeySet>>,
    /// Notified when a token names an unknown key.
    wanted: Notify,
}

/// The fetched keys.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    pub(super) keys: Vec<PublicKey>,
    /// Changes whenever the keys change.
    pub(super) version: u64,
    /// The time of the last fetch.
    fetched: Option<Instant>,
}

/// The required part of the OIDC discovery document.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("{url} is no {what}: {why}")]
    Malformed { url: String, what: &'static str, why: String },
    #[error("{url} is about the issuer {found:?}, not about {wanted:?}")]
    Other { url: String, found: String, wanted: String },
}

impl Keys {
    /// # Errors
    /// When the URL or the certificates of the issuer cannot be used.
    pub(super) fn new(issuer: &Issuer) -> Result<Keys, EndpointError> {
        let below = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
        let discovery_url = issuer.discovery_url.clone().unwrap_or_else(below);
        Ok(Keys {
            issuer: issuer.url.clone(),
            discovery: client(&discovery_url, &issuer.ca)?,
            discovery_url,
            ca: issuer.ca.clone(),
            current: watch::Sender::default(),
            wanted: Notify::new(),
        })
    }

    pub(super) fn current(&self) -> Arc<KeySet> {
        self.current.borrow().clone()
    }

    /// Whether a fetch might return the unknown key that signed a token.
    pub(super) fn may_have_changed(&self, jws: &Jws<'_>, known: &KeySet) -> bool {
        let is_known = jws.key_id().is_some_and(|id| known.keys.iter().any(|key| key.id() == id));
        !is_known && known.fetched.is_none_or(|fetched| fetched.elapsed() >= PAUSE)
    }

    /// The keys after the next fetch, or the current ones after [`WAIT_MAX`].
    pub(super) async fn newer(&self, than: &Arc<KeySet>) -> Arc<KeySet> {
        let mut changes = self.current.subscribe();
        self.wanted.notify_one();
        let newer = changes.wait_for(|current| !Arc::ptr_eq(current, than));
        match tokio::time::timeout(WAIT_MAX, newer).await {
            Ok(Ok(newer)) => newer.clone(),
            Ok(Err(_)) | Err(_) => self.current(),
        }
    }

    /// Fetches the keys repeatedly, until the server stops.
    pub(super) async fn run(self: Arc<Keys>, stopping: CancellationToken) {
        let mut retry = RETRY_INTERVAL;
        // Every arm is cancel-safe: it keeps no state, and starts again from the beginning.
        while let Some(fetched) = stopping.run_until_cancelled(self.fetch()).await {
            let pause = match fetched {
                Ok(keys) => {
                    self.put(keys);
                    retry = RETRY_INTERVAL;
                    INTERVAL
                }
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(issuer = self.issuer, error, "the keys of an issuer cannot be fetched; tried again");
                    let pause = retry;
                    retry = (retry * 2).min(INTERVAL);
                    pause
                }
            };
            let is_known = self.current().fetched.is_some();
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                // Before the first successful fetch the pause is short, and tokens must not shorten it further.
                () = self.wanted.notified(), if is_known => {}
            }
        }
    }

    fn put(&self, keys: Vec<PublicKey>) {
        self.current.send_modify(|current| {
            let version = current.version + u64::from(current.keys != keys);
            *current = Arc::new(KeySet { keys, version, fetched: Some(Instant::now()) });
        });
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, FetchError> {
        let document = self.discovery.get(FETCH_TIMEOUT).await?;
        let malformed = |url: &str, what: &'static str, why: serde_json::Error| FetchError::Malformed {
            url: url.to_owned(),
            what,
            why: why.to_string(),
        };
        let discovery: Discovery = serde_json::from_slice(&document)
            .map_err(|why| malformed(&self.discovery_url, "OIDC discovery document", why))?;
        if discovery.issuer != self.issuer {
            let (url, wanted) = (self.discovery_url.clone(), self.issuer.clone());
            return Err(FetchError::Other { url, found: discovery.issuer, wanted });
        }
        let document = client(&discovery.jwks_uri, &self.ca)?.get(FETCH_TIMEOUT).await?;
        let jwks: Jwks =
            serde_json::from_slice(&document).map_err(|why| malformed(&discovery.jwks_uri, "set of keys", why))?;
        Ok(jwks.keys.iter().take(KEYS_MAX).filter_map(PublicKey::from_jwk).collect())
    }

    /// Sets the keys as if they had been fetched.
    #[cfg(test)]
    pub(super) fn set(&self, keys: Vec<PublicKey>) {
        self.put(keys);
    }
}

fn client(url: &str, ca: &[u8]) -> Result<Client, EndpointError> {
    let (url, ca, credentials) = (url.to_owned(), ca.to_vec(), Credentials::None);
    Client::new(Endpoint { url, ca, server_name: None, identity: None, credentials })
}
