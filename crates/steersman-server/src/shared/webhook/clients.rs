//! Calls the webhooks that objects define. Calls to the same address that trust the same authorities share connections,
//! whichever objects define them. A changed `clientConfig` is a different place, which gets its own connections from
//! the next call on.

use crate::shared::identity::digest_cache::Digest;
use crate::shared::webhook::addresses::Addresses;
use crate::shared::webhook::client::AGENT;
use crate::shared::webhook::client_config::{ClientConfig, Target};
use crate::shared::webhook::places::Places;
use crate::shared::webhook::services::Services;
use crate::shared::webhook::transport::{Protocols, Transport, excerpt};
use crate::shared::webhook::{EndpointError, tls};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use steersman_storage::Store;

/// Identifies the server that has sent a review, so that it refuses one that comes back to itself.
const FROM: HeaderName = HeaderName::from_static("steersman-webhook-from");

/// Calls the webhooks that objects define.
pub(crate) struct Clients {
    addresses: Addresses,
    /// This server's id, for the header [`FROM`].
    own: HeaderValue,
    places: Mutex<Places<Endpoint, Transport>>,
    /// The configuration that trusts the system's authorities: reading them takes long.
    system: OnceLock<rustls::ClientConfig>,
    /// Why nobody is called; unset if they are.
    closed: OnceLock<Box<str>>,
}

/// The address of calls, and the identity that the webhook must have.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Endpoint {
    is_tls: bool,
    authority: String,
    /// The name in the certificate, if it is not the host.
    server_name: Option<String>,
    ca: Digest,
}

/// Why a webhook did not respond.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// The webhook could not be reached, or the connection failed before the response was complete.
    #[error("Post \"{url}\": {why}")]
    Connection { url: String, why: String },
    /// The response has an error status.
    #[error("Post \"{url}\": the webhook answers {code}{text}")]
    Refused { url: String, code: StatusCode, text: String },
    /// The webhook did not respond in time. The first words are upstream's.
    #[error("Post \"{url}\": context deadline exceeded: no answer within {} ms{hint}", timeout.as_millis())]
    Timeout { url: String, timeout: Duration, hint: String },
    /// The certificates of its authorities cannot be used.
    #[error("unable to load root certificates: {0}")]
    Unusable(#[from] EndpointError),
}

// === impl PostError ===

impl PostError {
    /// The code under which upstream counts such a failure.
    pub(crate) fn code(&self) -> u16 {
        match self {
            PostError::Refused { code, .. } => code.as_u16(),
            PostError::Connection { .. } | PostError::Timeout { .. } => StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            PostError::Unusable(_) => StatusCode::BAD_REQUEST.as_u16(),
        }
    }
}

// === impl Clients ===

impl Clients {
    pub(crate) fn new(store: Store, services: Services) -> Clients {
        let own = HeaderValue::from_str(&crate::shared::identity::uid::random()).unwrap_or(AGENT);
        Clients {
            addresses: Addresses::new(store, services),
            own,
            places: Mutex::default(),
            system: OnceLock::new(),
            closed: OnceLock::new(),
        }
    }

    /// Calls nobody from now on. The first reason stays.
    pub(crate) fn close(&self, why: &str) {
        let _first = self.closed.set(why.into());
    }

    /// Whether nobody is called.
    pub(in crate::shared) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Where Services are called.
    pub(in crate::shared) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether this server has sent the request to a webhook whose URL leads back to the server.
    pub(crate) fn is_own(&self, headers: &HeaderMap) -> bool {
        headers.get(FROM).is_some_and(|from| *from == self.own)
    }

    /// Posts a JSON document to a webhook and returns the document of the response. The timeout is passed in the URL.
    ///
    /// # Errors
    /// When there is no successful response in time.
    pub(crate) async fn post(&self, config: &ClientConfig, json: Bytes, timeout: Duration) -> Result<Bytes, PostError> {
        let seconds = timeout.as_millis().div_ceil(1000);
        let url = || format!("{}?timeout={seconds}s", config.url());
        if let Some(why) = self.closed.get() {
            return Err(PostError::Connection { url: url(), why: why.to_string() });
        }
        let (place, hint) = self.place(config).await.map_err(|why| PostError::Connection { url: url(), why })?;
        let scheme = if place.is_tls { "https" } else { "http" };
        let request = Request::post(format!("{scheme}://{}{}?timeout={seconds}s", place.authority, config.path()))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, AGENT)
            .header(FROM, &self.own);
        let request = match config.target() {
            Target::Service { namespace, name, port } => request.header(HOST, format!("{name}.{namespace}.svc:{port}")),
            Target::Url(_) => request,
        };
        let request = request
            .body(Full::new(json))
            .map_err(|error| PostError::Connection { url: url(), why: error.to_string() })?;
        let transport = self.transport(config, place)?;
        let answer = match tokio::time::timeout(timeout, transport.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let hint = if error.is_connect { hint } else { String::new() };
                return Err(PostError::Connection { url: url(), why: format!("{}{hint}", error.why) });
            }
            Err(_) => return Err(PostError::Timeout { url: url(), timeout, hint }),
        };
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let text = match answer.location {
            Some(to) => format!(", a redirect to {:?}: it is not followed", excerpt(to.as_bytes())),
            None if answer.body.is_empty() => String::new(),
            None => format!(": {}", excerpt(&answer.body)),
        };
        Err(PostError::Refused { url: url(), code: answer.status, text })
    }

    /// The place of a webhook, and a hint for the error if it does not respond.
    async fn place(&self, config: &ClientConfig) -> Result<(Endpoint, String), String> {
        let ca = config.ca_digest();
        let (namespace, name, port) = match config.target() {
            Target::Url(uri) => {
                let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
                return Ok((Endpoint { is_tls: true, authority, server_name: None, ca }, String::new()));
            }
            Target::Service { namespace, name, port } => (namespace, name, *port),
        };
        let server_name = Some(format!("{name}.{namespace}.svc"));
        let (base, hint) = self.addresses.find(namespace, name, port).await?;
        Ok((Endpoint { is_tls: base.is_tls, authority: base.authority, server_name, ca }, hint))
    }

    fn transport(&self, config: &ClientConfig, place: Endpoint) -> Result<Arc<Transport>, EndpointError> {
        if let Some(found) = self.places.lock().find(&place) {
            return Ok(found);
        }
        // Outside of the lock, because parsing certificates takes time.
        let tls = match config.ca() {
            [] => match self.system.get() {
                Some(known) => known.clone(),
                None => {
                    let read = tls::config(&[], None)?;
                    self.system.get_or_init(|| read).clone()
                }
            },
            ca => tls::config(ca, None)?,
        };
        let protocols = if place.is_tls { Protocols::Http1 } else { Protocols::Http1OrPlain };
        let transport = Arc::new(Transport::new(tls, place.server_name.as_deref(), protocols)?);
        Ok(self.places.lock().insert(place, transport))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
