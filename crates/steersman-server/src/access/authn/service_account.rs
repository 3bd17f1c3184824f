//! Tokens of ServiceAccounts: issues them, and verifies them against the objects that they are bound to.
//!
//! A signature is verified once: the claims of a token are cached by its digest. Everything that can change is checked
//! at each request: that the token has not expired, and, in the store's cache, that the account, pod, Secret or node
//! are still the ones of the token. So deleting an account ends its tokens at once, and a cached token costs no more
//! than a digest and two or three lookups.
//!
//! Follows kubernetes' `pkg/serviceaccount` and `pkg/registry/core/serviceaccount/storage/token.go`.

pub(crate) mod claims;
mod documents;
pub(crate) mod keyring;
pub(crate) mod legacy;
mod live;
mod signing_failure;
pub(crate) mod stored_keys;

use crate::access::authn::jws::Jws;
use crate::access::authn::see_acknowledged;
use crate::access::authn::service_account::claims::{Bound, Claims, Issuer, Kubernetes, LegacyClaims};
pub(crate) use crate::access::authn::service_account::documents::{CONFIGURATION_PATH, JWKS_PATH};
use crate::access::authn::service_account::keyring::SignError;
pub use crate::access::authn::service_account::keyring::{Keeper, Keyring, StoredKey, StoredKeyError};
use crate::access::authn::service_account::legacy::Uses;
use crate::access::authn::{Identity, common};
use crate::shared::identity::digest_cache::{Digest, DigestCache};
use crate::shared::identity::uid;
use crate::shared::operation::Notes;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::user::User;
use steersman_storage::Store;

/// The issuer that every Kubernetes cluster has.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";
/// The issuer of tokens in Secrets.
pub(crate) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// The allowed difference between the clocks of issuer and server.
const LEEWAY_SECONDS: i64 = 60;
/// The maximum size of the cache of verified tokens.
const VERIFIED_MAX: usize = 16 * 1024;
const VERIFIED_BYTES_MAX: usize = 32 << 20;
/// The maximum size of the cache of tokens with a bad signature, which saves verifying a repeated one.
const REFUSED_MAX: usize = 4096;
const REFUSED_BYTES: usize = 64;
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(10);
/// The expiration that kubelets request; the server extends it, for clients that never read the token again.
const KUBELET_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// The options of service account tokens.
#[derive(Debug)]
pub struct Options {
    /// The issuers whose tokens are accepted. The first is the issuer of new tokens.
    pub issuers: Vec<String>,
    /// The keys that sign and verify tokens.
    pub keys: Arc<Keyring>,
    /// The URI of the keys in the discovery document; `None`: at the address of the server.
    pub jwks_uri: Option<String>,
    /// The maximum lifetime of a new token; `None`: as requested.
    pub expiration_max: Option<Duration>,
    /// Whether tokens that kubelets fetch for pods are valid for a year, as upstream.
    pub extends_expiration: bool,
    /// The options of the loop that writes tokens into Secrets; `None`: it does not run here.
    pub token_secrets: Option<TokenSecrets>,
}

/// The options of the loop that writes tokens into Secrets.
#[derive(Clone, Debug, Default)]
pub struct TokenSecrets {
    /// The PEM of the server's CA, for the `ca.crt` of the Secrets.
    pub ca: Option<String>,
}

/// How long a token of an unknown key waits for the keys of other servers.
const CATCH_UP_MAX: Duration = Duration::from_secs(2);

/// Issues and verifies tokens.
#[derive(Debug)]
pub(crate) struct ServiceAccounts {
    options: Options,
    verified: DigestCache<Arc<Verified>>,
    refused: DigestCache<Timestamp>,
    legacy_uses: Uses,
}

/// A presented token, and the audiences that it is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presented<'a> {
    pub(crate) token: &'a str,
    pub(crate) digest: &'a Digest,
    /// The token must be for one of these.
    pub(crate) audiences: &'a [String],
    /// The audiences of this server.
    pub(crate) api_audiences: &'a [String],
}

/// A token whose signature is verified.
#[derive(Debug)]
struct Verified {
    said: TokenClaims,
    user: Arc<User>,
}

#[derive(Debug)]
enum TokenClaims {
    Bound(Box<Claims>),
    Legacy(LegacyClaims, legacy::Seen),
}

/// The content of a token to be issued.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) namespace: String,
    pub(crate) account: Bound,
    pub(crate) pod: Option<Bound>,
    pub(crate) node: Option<Bound>,
    pub(crate) secret: Option<Bound>,
    pub(crate) audiences: Vec<String>,
    pub(crate) seconds: i64,
}

/// An issued token.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) token: String,
    pub(crate) id: String,
}

impl Default for Options {
    /// Tokens of the default issuer, signed with a P-256 key that is generated at first use and lives as long as the
    /// process.
    fn default() -> Options {
        Options {
            issuers: vec![DEFAULT_ISSUER.to_owned()],
            keys: Arc::new(Keyring::in_memory()),
            jwks_uri: None,
            expiration_max: None,
            extends_expiration: true,
            token_secrets: None,
        }
    }
}

// === impl ServiceAccounts: issues ===

impl ServiceAccounts {
    pub(crate) fn new(options: Options) -> ServiceAccounts {
        ServiceAccounts {
            options,
            verified: DigestCache::new(VERIFIED_MAX, VERIFIED_BYTES_MAX),
            refused: DigestCache::new(REFUSED_MAX, REFUSED_MAX * REFUSED_BYTES),
            legacy_uses: Uses::default(),
        }
    }

    pub(crate) fn keys(&self) -> &Arc<Keyring> {
        &self.options.keys
    }

    /// The uses of tokens in Secrets that are to be recorded.
    pub(crate) fn legacy_uses(&self) -> &Uses {
        &self.legacy_uses
    }

    /// Whether the server issues tokens.
    pub(crate) fn is_issuing(&self) -> bool {
        self.options.keys.can_sign() && !self.options.issuers.is_empty()
    }

    /// The maximum lifetime of a new token, in seconds.
    pub(crate) fn seconds_max(&self) -> Option<i64> {
        self.options.expiration_max.map(|max| i64::try_from(max.as_secs()).unwrap_or(i64::MAX))
    }

    /// Issues a token. `api_audiences` are the audiences of this server.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(crate) async fn issue(
        &self,
        request: Request,
        api_audiences: &[String],
        now: Timestamp,
    ) -> Result<Issued, SignError> {
        let is_for_api = request.audiences.iter().all(|audience| api_audiences.contains(audience));
        let is_extended = self.options.extends_expiration
            && request.pod.is_some()
            && request.seconds == KUBELET_SECONDS
            && is_for_api;
        let seconds = if is_extended { EXTENDED_SECONDS } else { request.seconds };
        let issued_at = now.as_second();
        let end = issued_at.saturating_add(seconds);
        let claims = Claims {
            aud: request.audiences,
            exp: Some(end),
            iat: Some(issued_at),
            iss: self.options.issuers.first().cloned().unwrap_or_default(),
            jti: uid::random(),
            nbf: Some(issued_at),
            sub: claims::username(&request.namespace, &request.account.name),
            kubernetes: Kubernetes {
                namespace: request.namespace,
                node: request.node,
                pod: request.pod,
                secret: request.secret,
                serviceaccount: request.account,
                warnafter: is_extended.then_some(issued_at.saturating_add(request.seconds)),
            },
        };
        let until = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        let token = self.options.keys.sign(&claims, Some(until), now).await?;
        Ok(Issued { token, id: claims.jti })
    }

    /// Signs the token of a Secret, which is valid as long as the Secret exists.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(crate) async fn issue_legacy(
        &self,
        namespace: &str,
        account: &Bound,
        secret: &str,
        now: Timestamp,
    ) -> Result<String, SignError> {
        let claims = LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.name.clone(),
            account_uid: account.uid.clone(),
            sub: claims::username(namespace, &account.name),
        };
        self.options.keys.sign(&claims, None, now).await
    }
}

// === impl ServiceAccounts: verifies ===

impl ServiceAccounts {
    /// The user of a token, and the notes about it for the audit log. `None` if it is not a service account token.
    ///
    /// # Errors
    /// With the reason why a service account token is not valid.
    pub(crate) async fn authenticate(
        &self,
        store: &Store,
        presented: Presented<'_>,
        notes: &mut Notes,
        now: Timestamp,
    ) -> Result<Option<Identity>, String> {
        let Presented { token, digest, audiences, api_audiences } = presented;
        let verified = match self.verified.get(digest) {
            Some(verified) => verified,
            None => {
                self.catch_up(store, token, digest).await?;
                match self.verify(token, digest, now)? {
                    Some(verified) => verified,
                    None => return Ok(None),
                }
            }
        };
        let given = match &verified.said {
            // A token without audiences is for this server.
            TokenClaims::Bound(claims) if !claims.aud.is_empty() => &claims.aud,
            TokenClaims::Bound(_) | TokenClaims::Legacy(..) => api_audiences,
        };
        let audiences_in_common = common(audiences, given);
        if audiences_in_common.is_empty() && !api_audiences.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(given),
                quoted(audiences)
            ));
        }
        see_acknowledged(store).await?;
        match &verified.said {
            TokenClaims::Bound(claims) => {
                live::check(store, claims, now)?;
                note_if_stale(claims, notes, now);
            }
            TokenClaims::Legacy(claims, seen) => {
                legacy::check(store, &legacy::Token { claims, text: token, seen }, &self.legacy_uses, notes, now)?;
            }
        }
        Ok(Some(Identity { user: verified.user.clone(), audiences: audiences_in_common }))
    }

    /// Waits for the keys of other servers, if a token of an unknown key has not been refused yet.
    async fn catch_up(&self, store: &Store, token: &str, digest: &Digest) -> Result<(), String> {
        let keys = &self.options.keys;
        if !keys.is_followed() || self.refused.get(digest).is_some() {
            return Ok(());
        }
        if Jws::parse(token).is_some_and(|jws| !keys.verifies(&jws)) {
            // The signature of a stranger must not wait for a store that is away.
            let caught_up = async {
                store.sync().await.map_err(|error| error.to_string())?;
                keys.catch_up(store).await;
                Ok(())
            };
            return tokio::time::timeout(CATCH_UP_MAX, caught_up).await.unwrap_or(Ok(()));
        }
        Ok(())
    }

    /// Verifies the signature, and caches the claims of the token.
    fn verify(&self, token: &str, digest: &Digest, now: Timestamp) -> Result<Option<Arc<Verified>>, String> {
        let Some(jws) = Jws::parse(token) else { return Ok(None) };
        let Ok(Issuer { iss }) = serde_json::from_slice(&jws.claims) else { return Ok(None) };
        let is_legacy = iss == LEGACY_ISSUER;
        if !is_legacy && !self.options.issuers.contains(&iss) {
            return Ok(None);
        }
        let bad = || "its signature is not of a key of this server".to_owned();
        match self.refused.get(digest) {
            Some(until) if now < until => return Err(bad()),
            Some(_) => self.refused.remove(digest),
            None => {}
        }
        if !self.options.keys.verifies(&jws) {
            self.refused.insert(*digest, now + REFUSED_FOR, REFUSED_BYTES);
            return Err(bad());
        }
        let unreadable = |error: serde_json::Error| format!("its claims cannot be read: {error}");
        let verified = if is_legacy {
            let claims: LegacyClaims = serde_json::from_slice(&jws.claims).map_err(unreadable)?;
            legacy::check_form(&claims)?;
            let user = User {
                uid: claims.account_uid.clone(),
                ..User::authenticated(claims.sub.clone(), claims::groups(&claims.namespace))
            };
            Verified { said: TokenClaims::Legacy(claims, legacy::Seen::default()), user: Arc::new(user) }
        } else {
            let claims: Claims = serde_json::from_slice(&jws.claims).map_err(unreadable)?;
            let of = &claims.kubernetes;
            let name = claims::username(&of.namespace, &of.serviceaccount.name);
            if claims.sub != name {
                return Err(format!("its subject {:?} is not its account {name:?}", claims.sub));
            }
            let user = User {
                uid: of.serviceaccount.uid.clone(),
                extra: of.extra(&claims.jti),
                ..User::authenticated(name, claims::groups(&of.namespace))
            };
            Verified { said: TokenClaims::Bound(Box::new(claims)), user: Arc::new(user) }
        };
        let verified = Arc::new(verified);
        // The cached value is built from the claims, some of them twice.
        self.verified.insert(*digest, verified.clone(), 512 + 2 * jws.claims.len());
        Ok(Some(verified))
    }
}

/// Notes that a Pod uses a token that its kubelet should have replaced: the server accepts it for a year, for clients
/// that never read the token again.
fn note_if_stale(claims: &Claims, notes: &mut Notes, now: Timestamp) {
    let limit = claims.kubernetes.warnafter.filter(|limit| *limit != 0);
    if let Some(seconds) = limit.map(|limit| now.as_second() - limit).filter(|seconds| 0 < *seconds) {
        let value = format!("subject: {}, seconds after warning threshold: {seconds}", claims.sub);
        notes.annotate("authentication.k8s.io/stale-token", value);
    }
}

/// A list of strings as upstream's messages print it.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}
