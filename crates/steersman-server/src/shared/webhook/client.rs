//! A client that posts JSON to an endpoint over TLS, and returns the JSON of its response.

use crate::shared::webhook::transport::{Protocols, Transport, excerpt};
use crate::shared::webhook::{Credentials, Endpoint, EndpointError, tls};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use rand::Rng as _;
use std::fmt;
use std::time::Duration;

/// The maximum number of attempts of a call that fails temporarily, and the pause after the first failure. Each further
/// pause is half as long again.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
pub(super) const AGENT: HeaderValue = HeaderValue::from_static(concat!("steersman/", env!("CARGO_PKG_VERSION")));

/// Calls one endpoint.
pub struct Client {
    transport: Transport,
    uri: Uri,
    credentials: Credentials,
}

/// Why a call failed. No variant contains any of the body that was sent.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The credentials cannot be sent.
    #[error("the token for {uri} cannot be read: {why}")]
    Credentials { uri: Uri, why: String },
    /// The connection failed before the response was complete.
    #[error("{uri} cannot be reached: {why}")]
    Connection { uri: Uri, why: String, is_retryable: bool },
    /// The response has an error status.
    #[error("{uri} answers {code}: {text}")]
    Refused { uri: Uri, code: StatusCode, text: String },
    /// The endpoint did not respond in time.
    #[error("{uri} did not answer within {} ms", timeout.as_millis())]
    Timeout { uri: Uri, timeout: Duration },
}

impl CallError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            CallError::Connection { is_retryable, .. } => *is_retryable,
            CallError::Refused { code, .. } => {
                matches!(*code, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::TOO_MANY_REQUESTS)
            }
            CallError::Credentials { .. } | CallError::Timeout { .. } => false,
        }
    }
}

impl Client {
    /// A client for an endpoint. It connects at the first call.
    ///
    /// # Errors
    /// When the URL, the certificates or the key cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Client, EndpointError> {
        let Endpoint { url, ca, server_name, identity, credentials } = endpoint;
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        let uri = uri.ok_or(EndpointError::Url { url })?;
        let transport = Transport::new(tls::config(&ca, identity)?, server_name.as_deref(), Protocols::All)?;
        Ok(Client { transport, uri, credentials })
    }

    /// Posts a JSON document and returns the document of the response.
    ///
    /// # Errors
    /// When there is no successful response in time.
    pub async fn post(&self, json: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        self.within(timeout, self.call(Method::POST, json)).await
    }

    /// Like [`Client::post`], with up to five attempts as long as the failure may be temporary; the timeout is that of
    /// each attempt.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn post_again(&self, json: &Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        self.post_again_after(PAUSE, json, timeout).await
    }

    /// Like [`Client::post_again`], with another pause after the first failure.
    pub(crate) async fn post_again_after(
        &self,
        mut pause: Duration,
        json: &Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        for _ in 1..ATTEMPTS_MAX {
            match self.post(json.clone(), timeout).await {
                Err(error) if error.is_retryable() => {}
                answer => return answer,
            }
            // Up to a fifth longer, so that calls that failed together are not retried together.
            let jitter = rand::rng().random_range(1.0..1.2);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = pause.mul_f64(1.5);
        }
        self.post(json.clone(), timeout).await
    }

    /// Gets the document of the endpoint.
    ///
    /// # Errors
    /// When there is no successful response in time.
    pub async fn get(&self, timeout: Duration) -> Result<Bytes, CallError> {
        self.within(timeout, self.call(Method::GET, Bytes::new())).await
    }

    async fn within(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<Bytes, CallError>>,
    ) -> Result<Bytes, CallError> {
        let late = |_| CallError::Timeout { uri: self.uri.clone(), timeout };
        tokio::time::timeout(timeout, call).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
    }

    async fn call(&self, method: Method, json: Bytes) -> Result<Bytes, CallError> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, AGENT)
            .body(Full::new(json))
            .map_err(|error| self.failed(error.to_string(), false))?;
        if let Some(value) = self.authorization().await? {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let answer = self.transport.send(request).await;
        let answer = answer.map_err(|error| self.failed(error.why, error.is_retryable))?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        Err(CallError::Refused { uri: self.uri.clone(), code: answer.status, text: excerpt(&answer.body) })
    }

    fn failed(&self, why: String, is_retryable: bool) -> CallError {
        CallError::Connection { uri: self.uri.clone(), why, is_retryable }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, CallError> {
        let unreadable = |why: String| CallError::Credentials { uri: self.uri.clone(), why };
        let text = match &self.credentials {
            Credentials::None => return Ok(None),
            Credentials::Basic { user, password } => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            Credentials::Token(token) => format!("Bearer {token}"),
            Credentials::TokenFile(path) => {
                let token = tokio::fs::read_to_string(path).await;
                let token = token.map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
                format!("Bearer {}", token.trim())
            }
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| unreadable("it is no text of one line".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("uri", &self.uri).finish_non_exhaustive()
    }
}
