//! Calls the webhooks that objects define. Calls to the same address that trust the same authorities share connections,
//! whichever objects define them. A changed `clientConfig` is a different place, which gets its own connections from
//! the next call on.

use crate::shared::identity::digest_cache::Digest;
use crate::shared::webhook::client::AGENT;
use crate::shared::webhook::client_config::{ClientConfig, Target};
use crate::shared::webhook::places::Places;
use crate::shared::webhook::services::{Base, Services};
use crate::shared::webhook::transport::{Protocols, Transport, excerpt};
use crate::shared::webhook::{EndpointError, tls};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use serde::Deserialize;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::Store;

/// Identifies the server that has sent a review, so that it refuses one that comes back to itself.
const FROM: HeaderName = HeaderName::from_static("steersman-webhook-from");

/// Calls the webhooks that objects define.
pub(crate) struct Clients {
    store: Store,
    services: Services,
    /// This server's id, for the header [`FROM`].
    own: HeaderValue,
    places: Mutex<Places<Endpoint, Transport>>,
    /// The configuration that trusts the system's authorities: reading them takes long.
    system: OnceLock<rustls::ClientConfig>,
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

/// The fields of a Service that define its address.
#[derive(Deserialize)]
struct Service {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default)]
    external_name: String,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Port {
    port: u16,
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
        Clients { store, services, own, places: Mutex::default(), system: OnceLock::new() }
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
        let (base, hint) = self.service_address(namespace, name, port).await?;
        Ok((Endpoint { is_tls: base.is_tls, authority: base.authority, server_name, ca }, hint))
    }

    /// Whether a Service's port is called at a mapped address.
    pub(in crate::shared) fn is_mapped(&self, namespace: &str, name: &str, port: u16) -> bool {
        self.services.find(namespace, name, port).is_some()
    }

    /// The address at which a Service is called, and a hint for the error if nobody responds there.
    ///
    /// # Errors
    /// When the Service has no such port or no address; the text says so.
    pub(in crate::shared) async fn service_address(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(Base, String), String> {
        if let Some(base) = self.services.find(namespace, name, port) {
            let hint = format!("; --webhook-service maps the service {namespace}/{name} to {}", base.authority);
            return Ok((base.clone(), hint));
        }
        let way = format!(
            "if nothing here routes to the service {namespace}/{name}, say where it is with --webhook-service {namespace}/{name}=https://HOST:PORT"
        );
        let authority = self.address(namespace, name, port).await.map_err(|why| format!("{why}; {way}"))?;
        Ok((Base { is_tls: true, authority }, format!("; {way}")))
    }

    /// The host and port of a Service, from its object (kubernetes' `kube-aggregator/pkg/apiserver/resolvers.go`).
    async fn address(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let (services, key) = (GroupResource::new("", "services"), ObjectKey::namespaced(namespace, name));
        let found = match self.store.get_cached(&services, &key) {
            Some(found) => Some(found),
            // The cache may lag.
            None => self.store.get(&services, &key).await.map_err(|error| error.to_string())?,
        };
        let found = found.ok_or_else(|| format!("service {name:?} not found"))?;
        let Service { spec } = serde_json::from_slice(found.json())
            .map_err(|error| format!("service {name:?} is not readable: {error}"))?;
        let host = match (spec.kind.as_str(), spec.cluster_ip.as_str()) {
            ("ExternalName", _) => return Ok(format!("{}:{port}", spec.external_name)),
            (_, "" | "None") => return Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            (_, ip) if ip.contains(':') => format!("[{ip}]"),
            (_, ip) => ip.to_owned(),
        };
        match spec.ports.iter().any(|one| one.port == port) {
            true => Ok(format!("{host}:{port}")),
            false => Err(format!("no service port {port} found for service {name:?}")),
        }
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
        f.debug_struct("Clients").field("services", &self.services).finish_non_exhaustive()
    }
}
