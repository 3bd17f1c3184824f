//! Tokens of Keystone: one at a time, shared by all calls, renewed before it expires, dropped when refused.
//!
//! However many calls need a token at once, one signs in and the others wait for its outcome, success or error. While
//! the old token is still valid, only the call that renews it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde::Serialize;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::client::catalog::SignedIn;
use crate::client::http::{Http, Outgoing};
use crate::cloud::RequestId;
use crate::config::{Credentials, Domain, Keystone, Named};
use crate::error::{Call, Cause, Error, Operation};

/// A token is renewed this long before it expires, or when a quarter of its lifetime is left, whichever is later.
const RENEW_BEFORE_MAX: Duration = Duration::from_secs(300);

/// After an early renewal failed, the old token is used for this long before the next try.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Signs in, and keeps the token.
#[derive(Debug)]
pub(crate) struct Session {
    keystone: Keystone,
    current: RwLock<Option<Arc<Token>>>,
    /// Held during a sign-in, so that there is one at a time.
    renewal: Mutex<Renewal>,
    /// The number of sign-ins that ended, with success or an error.
    n_attempts: AtomicU64,
}

#[derive(Debug, Default)]
struct Renewal {
    /// The error of the latest sign-in, if it failed.
    failure: Option<Error>,
    /// The earliest time of the next early renewal.
    not_before: Option<Instant>,
}

/// A token and the data that came with it.
#[derive(Debug)]
pub(crate) struct Token {
    /// Marked sensitive: debug output hides it.
    value: HeaderValue,
    endpoint: Url,
    project_id: Option<String>,
    renew_at: Instant,
    expires_at: Instant,
}

impl Token {
    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }

    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    pub(crate) fn project_id(&self) -> Option<&str> {
        self.project_id.as_deref()
    }
}

impl Session {
    pub(crate) fn new(keystone: Keystone) -> Self {
        Self { keystone, current: RwLock::default(), renewal: Mutex::default(), n_attempts: AtomicU64::new(0) }
    }

    /// A token that is valid as far as is known; signs in if necessary.
    pub(crate) async fn token(&self, http: &Http, request: RequestId) -> Result<Arc<Token>, Error> {
        let seen = self.n_attempts.load(Ordering::Acquire);
        let held = self.valid();
        if let Some(token) = held {
            return Ok(self.renewed_early(http, request, &token).await.unwrap_or(token));
        }
        let mut renewal = self.renewal.lock().await;
        if let Some(token) = self.valid() {
            return Ok(token);
        }
        let somebody_tried = self.n_attempts.load(Ordering::Acquire) != seen;
        if somebody_tried && let Some(failure) = &renewal.failure {
            return Err(failure.clone());
        }
        self.renew(http, request, &mut renewal).await
    }

    /// Drops a token that the server refused, unless another has replaced it already.
    pub(crate) fn forget(&self, refused: &Arc<Token>) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|token| Arc::ptr_eq(token, refused)) {
            *current = None;
        }
    }

    fn valid(&self) -> Option<Arc<Token>> {
        self.current.read().clone().filter(|token| Instant::now() < token.expires_at)
    }

    /// A new token, if the old one expires soon and no other task is renewing it.
    async fn renewed_early(&self, http: &Http, request: RequestId, token: &Arc<Token>) -> Option<Arc<Token>> {
        if Instant::now() < token.renew_at {
            return None;
        }
        let mut renewal = self.renewal.try_lock().ok()?;
        if renewal.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return None;
        }
        match self.renew(http, request, &mut renewal).await {
            Ok(token) => Some(token),
            Err(error) => {
                tracing::warn!(%error, "the token could not be renewed early; the old one serves on");
                renewal.not_before = Some(Instant::now() + RENEW_AGAIN_AFTER);
                None
            }
        }
    }

    async fn renew(
        &self,
        http: &Http,
        request: RequestId,
        renewal: &mut MutexGuard<'_, Renewal>,
    ) -> Result<Arc<Token>, Error> {
        let outcome = self.sign_in(http, request).await;
        self.n_attempts.fetch_add(1, Ordering::Release);
        match outcome {
            Ok(token) => {
                let token = Arc::new(token);
                renewal.failure = None;
                *self.current.write() = Some(token.clone());
                Ok(token)
            }
            Err(error) => {
                renewal.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn sign_in(&self, http: &Http, request: RequestId) -> Result<Token, Error> {
        let address = self.keystone.auth_url.as_str();
        let call = Call::on(Operation::Authenticate, format!("at {address}"), request);
        let body = serde_json::to_vec(&Body::new(&self.keystone.credentials))
            .map_err(|error| call.clone().unsent(Cause::Malformed(error.to_string())))?;
        let mut url = self.keystone.auth_url.clone();
        url.set_path(&format!("{}/auth/tokens", url.path().trim_end_matches('/')));
        let began = Instant::now();
        let outgoing = Outgoing { method: Method::POST, url, headers: Vec::new(), body: Some(body) };
        let received = http.exchange(&call, outgoing).await?;

        let malformed = |reason: String| call.clone().unanswered(Cause::Malformed(reason));
        let signed_in = SignedIn::parse(&received.body).map_err(malformed)?;
        let mut value = received
            .headers
            .get("x-subject-token")
            .cloned()
            .ok_or_else(|| malformed("the answer has no X-Subject-Token; check the URL of Keystone".to_owned()))?;
        value.set_sensitive(true);
        let endpoint = signed_in.endpoint(&self.keystone).map_err(|reason| call.unsent(Cause::Catalog(reason)))?;
        let life = signed_in.life();
        Ok(Token {
            value,
            endpoint,
            project_id: signed_in.project_id(),
            renew_at: began + life.saturating_sub(RENEW_BEFORE_MAX.min(life / 4)),
            expires_at: began + life,
        })
    }
}

// === the body of a sign-in ===

#[derive(Serialize)]
struct Body<'a> {
    auth: Auth<'a>,
}

#[derive(Serialize)]
struct Auth<'a> {
    identity: IdentityBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Scope<'a>>,
}

#[derive(Serialize)]
struct IdentityBody<'a> {
    methods: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<PasswordBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application_credential: Option<Principal<'a>>,
}

#[derive(Serialize)]
struct PasswordBody<'a> {
    user: Principal<'a>,
}

#[derive(Serialize)]
struct Scope<'a> {
    project: Principal<'a>,
}

/// A user, project or credential.
#[derive(Default, Serialize)]
struct Principal<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<Box<Principal<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Box<Principal<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

impl<'a> Body<'a> {
    fn new(credentials: &'a Credentials) -> Self {
        let none = IdentityBody { methods: [""], password: None, application_credential: None };
        let auth = match credentials {
            Credentials::ApplicationCredential { credential, secret } => {
                let subject = Principal { secret: Some(&secret.0), ..Principal::named(credential) };
                let methods = ["application_credential"];
                let identity = IdentityBody { methods, application_credential: Some(subject), ..none };
                Auth { identity, scope: None }
            }
            Credentials::Password { user, password, project } => {
                let user = Principal { password: Some(&password.0), ..Principal::named(user) };
                let identity = IdentityBody { methods: ["password"], password: Some(PasswordBody { user }), ..none };
                Auth { identity, scope: Some(Scope { project: Principal::named(project) }) }
            }
        };
        Self { auth }
    }
}

impl<'a> Principal<'a> {
    fn named(named: &'a Named) -> Self {
        match named {
            Named::Id(id) => Self { id: Some(id), ..Self::default() },
            Named::InDomain { name, domain } => {
                let domain = match domain {
                    Domain::Id(id) => Self { id: Some(id), ..Self::default() },
                    Domain::Name(name) => Self { name: Some(name), ..Self::default() },
                };
                Self { name: Some(name), domain: Some(Box::new(domain)), ..Self::default() }
            }
            Named::OfUser { name, user } => {
                Self { name: Some(name), user: Some(Box::new(Self::named(user))), ..Self::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::Body;
    use crate::config::{Credentials, Domain, Named, Secret};

    #[track_caller]
    fn check(credentials: &Credentials, expected: Expect) {
        expected.assert_eq(&serde_json::to_string(&Body::new(credentials)).unwrap());
    }

    #[test]
    fn bodies_are_those_keystone_asks_for() {
        let user = Named::InDomain { name: "u".to_owned(), domain: Domain::Id("default".to_owned()) };
        let secret = Secret("s".to_owned());
        check(
            &Credentials::Password { user: user.clone(), password: secret.clone(), project: Named::Id("p".to_owned()) },
            expect![[
                r#"{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"u","domain":{"id":"default"},"password":"s"}}},"scope":{"project":{"id":"p"}}}}"#
            ]],
        );
        let credential = Named::OfUser { name: "c".to_owned(), user: Box::new(user) };
        check(
            &Credentials::ApplicationCredential { credential, secret },
            expect![[
                r#"{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"name":"c","user":{"name":"u","domain":{"id":"default"}},"secret":"s"}}}}"#
            ]],
        );
    }
}
