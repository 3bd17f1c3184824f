//! Authentication: who sent a request.
//!
//! Authenticators are asked in upstream's order, and the first that knows the sender ends the search:
//!
//! ```text
//! request_header   of a proxy that has authenticated the user
//! certificate      of the connection, or the code that calls within the process
//! token_file       static tokens
//! service_account  signed by this server
//! bootstrap_token  of a Secret, for new nodes
//! anonymous        where it is allowed, and only for a request without credentials
//! ```
//!
//! A request with a credential that nobody knows is refused, even where anonymous requests are allowed. To add an
//! authenticator, write a file here and ask it in [`Authenticator::token`] or [`Authenticator::authenticate`]. Certificates and
//! the token file are answered without waiting; nothing here boxes a future for a request that needs none.

mod bootstrap_token;
mod cache;
mod certificate;
mod jws;
mod key;
mod request_header;
pub(crate) mod service_account;
#[cfg(test)]
mod tests;
mod token_file;

pub use crate::authn::certificate::{Peer, certificate_user};
pub use crate::authn::key::{Algorithm, KeyError, PublicKey, SigningKey};
pub use crate::authn::request_header::RequestHeader;
use crate::authn::service_account::ServiceAccounts;
pub use crate::authn::service_account::{
    DEFAULT_ISSUER, Keeper, Keyring, Options as ServiceAccountOptions, StoredKey, StoredKeyError, TokenSecrets,
};
pub use crate::authn::token_file::{Tokens, TokensError};
use crate::user::{ANONYMOUS, UNAUTHENTICATED, User};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use std::fmt;
use std::sync::{Arc, LazyLock};
use steersman_storage::Store;

/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How requests are authenticated, beside the connections that the transport has authenticated.
#[derive(Debug, Default)]
pub struct Options {
    /// Static tokens.
    pub tokens: Tokens,
    /// Of ServiceAccounts.
    pub service_accounts: ServiceAccountOptions,
    /// The audiences of this server: a token for others only is not good here. Empty: the issuers of service account tokens.
    pub api_audiences: Vec<String>,
    /// Whether a request without credentials is one of `system:anonymous`.
    pub allows_anonymous: bool,
    /// Whether the tokens of Secrets for new nodes are taken.
    pub takes_bootstrap_tokens: bool,
    /// Which proxies are believed; `None`: no proxy is.
    pub request_header: Option<RequestHeader>,
}

/// Finds out who sent a request.
#[derive(Debug)]
pub(crate) struct Authenticator {
    tokens: Tokens,
    service_accounts: ServiceAccounts,
    audiences: Vec<String>,
    allows_anonymous: bool,
    takes_bootstrap_tokens: bool,
    request_header: Option<RequestHeader>,
    store: Store,
}

/// Whose token it is, and for which of the audiences that were asked about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    pub(crate) user: Arc<User>,
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not good, in upstream's words.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rejected {
    /// Of those who issue tokens of its form.
    reasons: Vec<String>,
}

/// The sender of a request without credentials.
static NOBODY: LazyLock<Arc<User>> = LazyLock::new(|| {
    Arc::new(User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() })
});

impl Authenticator {
    pub(crate) fn new(options: Options, store: Store) -> Authenticator {
        let mut audiences = options.api_audiences;
        if audiences.is_empty() {
            audiences = options.service_accounts.issuers.clone();
        }
        Authenticator {
            tokens: options.tokens,
            service_accounts: ServiceAccounts::new(options.service_accounts),
            audiences,
            allows_anonymous: options.allows_anonymous,
            takes_bootstrap_tokens: options.takes_bootstrap_tokens,
            request_header: options.request_header,
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

    /// The user who sent a request, if known. A certificate takes precedence over a token.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        extensions: &http::Extensions,
        now: Timestamp,
    ) -> Option<Arc<User>> {
        if let Some(Peer { user, proxy }) = extensions.get::<Peer>() {
            if let (Some(believed), Some(proxy)) = (&self.request_header, proxy)
                && let Some(user) = believed.authenticate(proxy, headers)
            {
                return Some(user);
            }
            if let Some(user) = user {
                return Some(user.clone());
            }
        }
        let Some(token) = bearer_token(headers) else {
            return self.allows_anonymous.then(|| NOBODY.clone());
        };
        match self.token(token, &self.audiences, now).await {
            Ok(identity) => Some(identity.user),
            Err(rejected) => {
                tracing::debug!(%rejected, "a token was refused");
                None
            }
        }
    }

    /// Whose token it is, if it is good for one of the audiences.
    ///
    /// # Errors
    /// When it is not good.
    pub(crate) async fn token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Identity, Rejected> {
        if token.len() > TOKEN_BYTES_MAX {
            let reason = format!("it has {} bytes: want {TOKEN_BYTES_MAX} at most", token.len());
            return Err(Rejected { reasons: vec![reason] });
        }
        let digest = cache::digest(token);
        if let Some(user) = self.tokens.find(&digest) {
            // Tokens that say nothing of audiences are for this server.
            let audiences = common(audiences, &self.audiences);
            if !audiences.is_empty() || self.audiences.is_empty() {
                return Ok(Identity { user: user.clone(), audiences });
            }
        }
        let mut rejected = Rejected::default();
        let (accounts, own) = (&self.service_accounts, &self.audiences);
        match accounts.authenticate(&self.store, token, &digest, audiences, own, now).await {
            Ok(Some(identity)) => return Ok(identity),
            Ok(None) => {}
            Err(reason) => rejected.reasons.push(reason),
        }
        // They say nothing of audiences either.
        let of_bootstrap = common(audiences, own);
        if self.takes_bootstrap_tokens && (!of_bootstrap.is_empty() || own.is_empty()) {
            match bootstrap_token::authenticate(&self.store, token, now).await {
                Ok(Some(user)) => return Ok(Identity { user, audiences: of_bootstrap }),
                Ok(None) => {}
                Err(reason) => rejected.reasons.push(reason),
            }
        }
        Err(rejected)
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

/// The token of a request. A header of another scheme is no credential.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = header.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    // A token that is no text is one that nobody knows.
    let token = std::str::from_utf8(token).unwrap_or("\u{fffd}").trim();
    (!token.is_empty()).then_some(token)
}

/// The texts of a list that are in another too.
fn common(of: &[String], others: &[String]) -> Vec<String> {
    of.iter().filter(|text| others.contains(text)).cloned().collect()
}
