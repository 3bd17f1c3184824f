//! Authentication: finds the user who sent a request.
//!
//! Authenticators are called in upstream's order, and the first that recognizes the sender ends the search:
//!
//! ```text
//! request_header   a proxy that has authenticated the user
//! certificate      the connection's client certificate, or the in-process caller
//! token_file       static tokens
//! service_account  tokens signed by this server
//! bootstrap_token  tokens in Secrets, for new nodes
//! oidc             tokens signed by another issuer (`configuration` is the file about them)
//! webhook          tokens that a webhook recognizes
//! anonymous        where it is allowed, and only for a request without credentials
//! ```
//!
//! A request with a credential that no authenticator recognizes is refused, a certificate as well as a token, even
//! where anonymous requests are allowed. To add an authenticator, write a file here and call it in
//! `Authenticator::token` or `Authenticator::authenticate`. Certificates and the token file are checked without
//! waiting, and no future is boxed for a request that needs none.

mod bootstrap_token;
mod certificate;
mod configuration;
pub(crate) mod jws;
mod key;
pub(crate) mod oidc;
mod request_header;
pub(crate) mod service_account;
#[cfg(test)]
mod tests;
mod token_file;
pub(crate) mod webhook;

pub(crate) use crate::access::authn::certificate::common_name;
pub use crate::access::authn::certificate::{Peer, certificate_end, certificate_user};
pub use crate::access::authn::configuration::{Configuration, ConfigurationError};
pub use crate::access::authn::key::{Algorithm, KeyError, PublicKey, SigningKey};
pub use crate::access::authn::oidc::{Issuer, Oidc, PrefixedClaim};
pub use crate::access::authn::request_header::{RequestHeader, TrustedProxies};
pub use crate::access::authn::service_account::stored_keys::resource as stored_keys;
pub use crate::access::authn::service_account::{
    DEFAULT_ISSUER, Keeper, Keyring, Options as ServiceAccountOptions, StoredKey, StoredKeyError, TokenSecrets,
};
use crate::access::authn::service_account::{Presented, ServiceAccounts};
pub use crate::access::authn::token_file::{Tokens, TokensError};
pub use crate::access::authn::webhook::{ReviewVersion, Settings as WebhookSettings, Webhook};
use crate::shared::identity::digest_cache::{self, Digest};
use crate::shared::operation::Notes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use std::fmt;
use std::sync::{Arc, LazyLock};
use steersman_kinds::user::{ANONYMOUS, UNAUTHENTICATED, User};
use steersman_storage::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The length of the longest token that is checked.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How requests are authenticated, besides the connections that the transport has authenticated.
#[derive(Debug, Default)]
pub struct Options {
    /// Static tokens.
    pub tokens: Tokens,
    /// The tokens of ServiceAccounts.
    pub service_accounts: ServiceAccountOptions,
    /// The audiences of this server; a token must be for one of them. Empty: the issuers of service account tokens.
    pub api_audiences: Vec<String>,
    /// Which requests without credentials are accepted, as `system:anonymous`.
    pub anonymous: Anonymous,
    /// Whether the bootstrap tokens in Secrets, for new nodes, are accepted.
    pub takes_bootstrap_tokens: bool,
    /// Which proxies are trusted; `None`: no proxy is.
    pub request_header: Option<RequestHeader>,
    /// Other issuers whose tokens are accepted.
    pub issuers: Vec<Oidc>,
    /// The webhook that reviews tokens that no other authenticator recognizes.
    pub webhook: Option<Webhook>,
    /// The certificate, as PEM, of the authority that signs the clients' certificates. It is published for servers that
    /// extend this one.
    pub client_ca: Option<String>,
    /// The proxies that servers which extend this one are to believe; this one may be among them. Also published.
    pub published_proxies: Option<TrustedProxies>,
}

/// Which requests without credentials are accepted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Anonymous {
    /// All.
    Always,
    /// Requests for these paths.
    At(Vec<String>),
    #[default]
    Never,
}

/// Finds out who sent a request.
#[derive(Debug)]
pub(crate) struct Authenticator {
    tokens: Tokens,
    service_accounts: ServiceAccounts,
    audiences: Vec<String>,
    anonymous: Anonymous,
    takes_bootstrap_tokens: bool,
    request_header: Option<RequestHeader>,
    issuers: Vec<Oidc>,
    webhook: Option<Webhook>,
    store: Store,
}

/// The user of a token, and the requested audiences that it is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    pub(crate) user: Arc<User>,
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not valid, in upstream's words.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rejected {
    /// The reasons of the authenticators that accept tokens of this form.
    reasons: Vec<String>,
}

/// Waits until every write is visible that was acknowledged before. A request on a shared store has done so before it is
/// authenticated, unless it accepts an older state.
async fn see_acknowledged(store: &Store) -> Result<(), String> {
    if store.is_shared() {
        return Ok(());
    }
    store.sync().await.map(|_| ()).map_err(|error| error.to_string())
}

/// The sender of a request without credentials.
static NOBODY: LazyLock<Arc<User>> = LazyLock::new(|| {
    Arc::new(User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() })
});

impl Authenticator {
    /// Whether a proxy before this server may name users, groups or more in a header of this name.
    pub(crate) fn is_identity_header(&self, name: &str) -> bool {
        self.request_header.as_ref().is_some_and(|proxies| proxies.is_identity_header(name))
    }

    pub(crate) fn new(options: Options, store: Store) -> Authenticator {
        let mut audiences = options.api_audiences;
        if audiences.is_empty() {
            audiences = options.service_accounts.issuers.clone();
        }
        Authenticator {
            tokens: options.tokens,
            service_accounts: ServiceAccounts::new(options.service_accounts),
            audiences,
            anonymous: options.anonymous,
            takes_bootstrap_tokens: options.takes_bootstrap_tokens,
            request_header: options.request_header,
            issuers: options.issuers,
            webhook: options.webhook,
            store,
        }
    }

    pub(crate) fn service_accounts(&self) -> &ServiceAccounts {
        &self.service_accounts
    }

    /// The audiences of this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The user who sent a request, if known, and the notes about the credential for the audit log. A certificate takes
    /// precedence over a token.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        extensions: &http::Extensions,
        path: &str,
        notes: &mut Notes,
        now: Timestamp,
    ) -> Option<Arc<User>> {
        let mut is_refused = false;
        if let Some(peer) = extensions.get::<Peer>() {
            is_refused = peer.is_refused || peer.is_over(now);
            let good = Some(peer).filter(|peer| !peer.is_over(now));
            if let (Some(believed), Some(proxy)) = (&self.request_header, good.and_then(|peer| peer.proxy.as_ref()))
                && let Some(user) = believed.authenticate(proxy, headers)
            {
                return Some(user);
            }
            if let Some(user) = good.and_then(|peer| peer.user.as_ref()) {
                return Some(user.clone());
            }
        }
        let Some(token) = bearer_token(headers) else {
            return (!is_refused && self.anonymous.allows(path)).then(|| NOBODY.clone());
        };
        match self.token(token, &self.audiences, notes, now).await {
            Ok(identity) => Some(identity.user),
            Err(rejected) => {
                tracing::debug!(%rejected, "a token was refused");
                None
            }
        }
    }

    /// The user of a token that is valid for one of the audiences, and the notes about it for the audit log.
    ///
    /// # Errors
    /// When the token is not valid.
    pub(crate) async fn token(
        &self,
        token: &str,
        audiences: &[String],
        notes: &mut Notes,
        now: Timestamp,
    ) -> Result<Identity, Rejected> {
        if token.len() > TOKEN_BYTES_MAX {
            let reason = format!("it has {} bytes: want {TOKEN_BYTES_MAX} at most", token.len());
            return Err(Rejected { reasons: vec![reason] });
        }
        let digest = digest_cache::digest(token);
        if let Some(user) = self.tokens.find(&digest) {
            // Static tokens have no audiences: they are for this server.
            let audiences = common(audiences, &self.audiences);
            if !audiences.is_empty() || self.audiences.is_empty() {
                return Ok(Identity { user: user.clone(), audiences });
            }
        }
        let mut rejected = Rejected::default();
        let (accounts, own) = (&self.service_accounts, &self.audiences);
        let presented = Presented { token, digest: &digest, audiences, api_audiences: own };
        match accounts.authenticate(&self.store, presented, notes, now).await {
            Ok(Some(identity)) => return Ok(identity),
            Ok(None) => {}
            Err(reason) => rejected.reasons.push(reason),
        }
        // Bootstrap tokens have no audiences either.
        let of_bootstrap = common(audiences, own);
        if self.takes_bootstrap_tokens && (!of_bootstrap.is_empty() || own.is_empty()) {
            match bootstrap_token::authenticate(&self.store, token, now).await {
                Ok(Some(user)) => return Ok(Identity { user, audiences: of_bootstrap }),
                Ok(None) => {}
                Err(reason) => rejected.reasons.push(reason),
            }
        }
        if !self.issuers.is_empty() || self.webhook.is_some() {
            // Boxed, because the future is large and few servers have issuers or a webhook.
            return Box::pin(self.foreign_token(token, &digest, audiences, now, rejected)).await;
        }
        Err(rejected)
    }
}

impl Authenticator {
    /// The user of a token that other issuers or the webhook recognize.
    async fn foreign_token(
        &self,
        token: &str,
        digest: &Digest,
        audiences: &[String],
        now: Timestamp,
        mut rejected: Rejected,
    ) -> Result<Identity, Rejected> {
        let own = &self.audiences;
        // The audience of an issuer's token was compared with the issuer's configuration, so the token is for this
        // server.
        let in_common = common(audiences, own);
        let is_for_own = !in_common.is_empty() || own.is_empty();
        for issuer in self.issuers.iter().filter(|_| is_for_own) {
            match issuer.authenticate(token, digest, now).await {
                Ok(Some(user)) => return Ok(Identity { user, audiences: in_common }),
                Ok(None) => {}
                Err(reason) => rejected.reasons.push(reason),
            }
        }
        if let Some(webhook) = &self.webhook {
            match webhook.authenticate(token, audiences, own).await {
                Ok(Some(identity)) => return Ok(identity),
                Ok(None) => {}
                Err(reason) => rejected.reasons.push(reason),
            }
        }
        Err(rejected)
    }

    /// Starts the tasks that fetch the keys of other issuers. They end when the server stops.
    pub(crate) fn start(&self, stopping: &CancellationToken) -> Vec<JoinHandle<()>> {
        self.issuers.iter().map(|issuer| issuer.start(stopping.clone())).collect()
    }
}

impl Anonymous {
    fn allows(&self, path: &str) -> bool {
        match self {
            Anonymous::Always => true,
            Anonymous::At(paths) => paths.iter().any(|allowed| allowed == path),
            Anonymous::Never => false,
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const INVALID: &str = "invalid bearer token";
        match self.reasons.as_slice() {
            [] => f.write_str(INVALID),
            reasons => write!(f, "[{INVALID}, {}]", reasons.join(", ")),
        }
    }
}

/// The bearer token of a request. A header of another scheme is no credential, nor is one with more than a space before
/// the token, as in kube-apiserver: an intermediary might read the text in between differently.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = header.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    // A token that is not UTF-8 becomes one that no authenticator recognizes.
    let text = std::str::from_utf8(token).unwrap_or("\u{fffd}");
    // The token ends at a space.
    text.split(' ').next().filter(|token| !token.is_empty())
}

/// The strings that are in both lists, in the order of the first.
fn common(of: &[String], others: &[String]) -> Vec<String> {
    of.iter().filter(|text| others.contains(text)).cloned().collect()
}
