//! JSON to an endpoint over TLS, and the JSON of its answer.

use crate::webhook::{Credentials, Endpoint, EndpointError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::Rng as _;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The most bytes of an answer, as upstream has it for admission reviews.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The most calls under way at a time; further ones wait until their time is over.
const CALLS_MAX: usize = 512;
/// How often a call that failed on the way is made at most, and how long after the first failure it is made again. Each further
/// pause is half as long again.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Connections kept open while nothing is sent.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// After so long without a call a connection is closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const AGENT: HeaderValue = HeaderValue::from_static(concat!("steersman/", env!("CARGO_PKG_VERSION")));

/// Calls one endpoint.
pub struct Client {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    credentials: Credentials,
    calls: Semaphore,
}

/// Why a call brought no answer. No variant says anything of the body that was sent.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The credentials cannot be sent.
    #[error("the token for {uri} cannot be read: {why}")]
    Credentials { uri: Uri, why: String },
    /// The connection failed before the answer was complete.
    #[error("{uri} cannot be reached: {why}")]
    Connection { uri: Uri, why: String, is_retryable: bool },
    /// The answer says that it failed.
    #[error("{uri} answers {code}: {text}")]
    Refused { uri: Uri, code: StatusCode, text: String },
    /// It has not answered in time.
    #[error("{uri} did not answer within {} ms", timeout.as_millis())]
    Timeout { uri: Uri, timeout: Duration },
}

impl CallError {
    /// Whether the same call may succeed a little later.
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
    /// A client for an endpoint. Connects when it is first called.
    ///
    /// # Errors
    /// When the URL, the certificates or the key cannot be used.
    pub fn new(endpoint: Endpoint) -> Result<Client, EndpointError> {
        let Endpoint { url, ca, server_name, identity, credentials } = endpoint;
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        let uri = uri.ok_or(EndpointError::Url { url })?;
        let builder = trusting(&ca)?;
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificates =
                    certificates(&identity.certificate).map_err(|why| unusable("the client certificate", why))?;
                let key = PrivateKeyDer::from_pem_slice(&identity.key)
                    .map_err(|error| unusable("the key of the client certificate", error.to_string()))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|error| unusable("the client certificate with its key", error.to_string()))?
            }
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        let connector = match server_name {
            None => connector,
            Some(name) => {
                let name =
                    ServerName::try_from(name).map_err(|error| unusable("the server name", error.to_string()))?;
                connector.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector.enable_all_versions().wrap_connector(http));
        Ok(Client { client, uri, credentials, calls: Semaphore::new(CALLS_MAX) })
    }

    /// Posts a JSON document and returns the document of the answer.
    ///
    /// # Errors
    /// When there is no successful answer in time.
    pub async fn post(&self, json: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        self.within(timeout, self.call(Method::POST, json)).await
    }

    /// As [`Client::post`], again and again while the failure is one that passes: five times at most, so long each.
    ///
    /// # Errors
    /// Those of the last call.
    pub async fn post_again(&self, json: &Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        self.post_again_after(PAUSE, json, timeout).await
    }

    /// As [`Client::post_again`], with another pause after the first failure.
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
            // Up to a fifth longer, so that many who failed together do not come back together.
            let jitter = rand::rng().random_range(1.0..1.2);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = pause.mul_f64(1.5);
        }
        self.post(json.clone(), timeout).await
    }

    /// Returns the document that is there.
    ///
    /// # Errors
    /// When there is no successful answer in time.
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
        // The semaphore is never closed; without a permit the call is merely not counted.
        let _permit = self.calls.acquire().await;
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
        let answer =
            self.client.request(request).await.map_err(|error| self.failed(chain(&error), !error.is_connect()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.failed(error.to_string(), false))?.to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        let text = text.trim();
        let text = text[..text.floor_char_boundary(256)].to_owned();
        Err(CallError::Refused { uri: self.uri.clone(), code: head.status, text })
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

/// Trusts the given authorities, or those of the system.
fn trusting(ca: &[u8]) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, EndpointError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", error.to_string()))?;
    if ca.is_empty() {
        let verifier = Verifier::new(provider);
        let verifier = verifier.map_err(|error| unusable("the authorities of this system", error.to_string()))?;
        return Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)));
    }
    let what = "the certificate of the authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca).map_err(|why| unusable(what, why))? {
        roots.add(certificate).map_err(|error| unusable(what, error.to_string()))?;
    }
    Ok(builder.with_root_certificates(roots))
}

fn unusable(what: &'static str, why: String) -> EndpointError {
    EndpointError::Tls { what, why }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("it has no certificate in PEM form".to_owned()) } else { Ok(certificates) }
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("uri", &self.uri).finish_non_exhaustive()
    }
}
