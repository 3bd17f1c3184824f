//! The servers behind APIServices: found by the path of a request, and called over HTTPS with the certificate of the front
//! proxy.
//!
//! Only a Service can be called: at its mapped address ([`crate::shared::webhook::Services`]), or else at its own. Requests
//! and answers are streamed. A version of a group that this server serves itself is never looked for elsewhere.

use crate::shared::aggregation::discovered::Discovered;
use crate::shared::aggregation::remote::{Remote, Verification};
use crate::shared::identity::digest_cache::{Digest, digest};
use crate::shared::identity::uid;
use crate::shared::request::passed_headers as headers;
use crate::shared::request::unread::{self, UnreadBody};
use crate::shared::webhook::places::Places;
use crate::shared::webhook::services::Base;
use crate::shared::webhook::transport::{self, Connecting, HttpsClient, Protocols};
use crate::shared::webhook::{Clients, EndpointError, Identity, tls};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::builtin::cluster::api_service;
use steersman_kinds::catalog::Catalog;
use steersman_kinds::user::User;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::Store;

/// The servers behind APIServices.
pub(crate) struct Remotes {
    store: Store,
    /// Finds the addresses of Services.
    services: Arc<Clients>,
    /// The certificate of the front proxy, by which the other servers recognize this one.
    identity: Option<Identity>,
    /// This server's id, for the header [`headers::FROM`].
    own: HeaderValue,
    /// The APIServices as they were read last.
    read: Mutex<HashMap<Box<str>, ReadService>>,
    places: Mutex<Places<Place, HttpsClient<UnreadBody>>>,
    discovered: ArcSwap<Discovered>,
}

/// An APIService at a revision; `None` if it does not lead to another server.
type ReadService = (Revision, Option<Arc<Remote>>);

/// The address of a server, and the identity that it must have.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Place {
    is_tls: bool,
    authority: String,
    server_name: String,
    /// The digest of the authorities; `None` if the certificate is not verified.
    authorities: Option<Digest>,
}

/// Why another server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The Service has no address.
    #[error("{0}")]
    Service(String),
    /// The certificates cannot be used.
    #[error("unable to load root certificates: {0}")]
    Certificates(String),
    /// The connection failed before there was an answer.
    #[error("{why}")]
    Connection { why: String, hint: String },
    /// There was no answer in time.
    #[error("context deadline exceeded: no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The answer is too long.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// A request of the server's own to another server.
pub(crate) struct Fetch<'a> {
    pub(crate) path: &'a str,
    pub(crate) accept: &'static str,
    pub(crate) user: &'a User,
    pub(crate) timeout: Duration,
    pub(crate) bytes_max: usize,
}

impl Remotes {
    pub(crate) fn new(store: Store, services: Arc<Clients>, identity: Option<Identity>) -> Remotes {
        let own = HeaderValue::from_str(&uid::random()).unwrap_or(HeaderValue::from_static("steersman"));
        Remotes {
            store,
            services,
            identity,
            own,
            read: Mutex::default(),
            places: Mutex::default(),
            discovered: ArcSwap::default(),
        }
    }

    /// Whether this server has sent the request to another one, which has led it back here.
    pub(crate) fn is_own(&self, request: &HeaderMap) -> bool {
        request.get_all(headers::FROM).iter().any(|from| *from == self.own)
    }

    /// The server that answers requests for a path, if it is another one than this.
    pub(crate) fn find(&self, catalog: &Catalog, path: &str) -> Option<Arc<Remote>> {
        let mut parts = path.strip_prefix('/')?.split('/');
        match parts.next()? {
            "apis" => self.of_version(catalog, parts.next()?, parts.next()?),
            "openapi" if parts.next() == Some("v3") && parts.next() == Some("apis") => {
                let (group, version) = (parts.next()?, parts.next());
                match version {
                    Some(version) if parts.next().is_none() => self.of_version(catalog, group, version),
                    Some(_) => None,
                    None => {
                        let known = self.discovered();
                        let remote = known.versions.iter().find(|one| one.lists_openapi_of_group(group))?;
                        catalog.group(group).is_none().then(|| self.of_version(catalog, group, &remote.version))?
                    }
                }
            }
            _ => None,
        }
    }

    fn of_version(&self, catalog: &Catalog, group: &str, version: &str) -> Option<Arc<Remote>> {
        let is_unknown = group.is_empty() || version.is_empty() || self.services.is_closed();
        if is_unknown || is_local(catalog, group, version) {
            return None;
        }
        self.named(&format!("{version}.{group}"))
    }

    /// The server that an APIService leads to.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Remote>> {
        let found = self.store.get_cached(&resource(), &ObjectKey::cluster(name));
        let Some(object) = found else {
            self.read.lock().remove(name);
            return None;
        };
        if let Some((revision, known)) = self.read.lock().get(name)
            && *revision == object.revision
        {
            return known.clone();
        }
        let remote = Remote::read(&object).map(Arc::new);
        self.read.lock().insert(name.into(), (object.revision, remote.clone()));
        remote
    }

    /// The kinds that the other servers serve.
    pub(crate) fn discovered(&self) -> Arc<Discovered> {
        self.discovered.load_full()
    }

    /// Replaces what the other servers serve.
    pub(crate) fn publish(&self, discovered: Discovered) {
        if **self.discovered.load() != discovered {
            self.discovered.store(Arc::new(discovered));
        }
    }

    /// Whether the address of a server's Service is mapped.
    pub(crate) fn is_mapped(&self, remote: &Remote) -> bool {
        let service = &remote.service;
        self.services.addresses().is_mapped(&service.namespace, &service.name, service.port)
    }

    /// Sends a request, whose URI is a path with its query. The answer is not read yet. Dropping the future or the answer
    /// ends the request.
    ///
    /// # Errors
    /// When there is no answer.
    pub(crate) async fn send(
        &self,
        remote: &Remote,
        mut request: Request<UnreadBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let service = &remote.service;
        let found = self.services.addresses().find(&service.namespace, &service.name, service.port).await;
        let (base, hint) = found.map_err(SendError::Service)?;
        let scheme = if base.is_tls { "https" } else { "http" };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let failed = |why: String| SendError::Connection { why, hint: hint.clone() };
        let uri = format!("{scheme}://{}{path}", base.authority);
        *request.uri_mut() = uri.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
        let host = HeaderValue::from_str(&base.authority).map_err(|error| failed(error.to_string()))?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().append(headers::FROM, self.own.clone());
        let client = self.client(remote, base)?;
        // The library's own message names only the stage of the call.
        let failed =
            |error: &(dyn std::error::Error + 'static)| failed(transport::chain(error.source().unwrap_or(error)));
        client.request(request).await.map_err(|error| failed(&error))
    }

    /// Sends a GET of the server's own, and reads the whole answer.
    ///
    /// # Errors
    /// When there is no complete answer in time, or it is too long.
    pub(crate) async fn fetch(&self, remote: &Remote, fetch: &Fetch<'_>) -> Result<Fetched, SendError> {
        let Fetch { path, accept, user, timeout, bytes_max } = *fetch;
        let call = async {
            let failed = |why: String| SendError::Connection { why, hint: String::new() };
            let mut request =
                Request::get(path).header(ACCEPT, accept).body(unread::empty()).map_err(|e| failed(e.to_string()))?;
            headers::identify(request.headers_mut(), user).map_err(|error| failed(error.to_string()))?;
            let (head, body) = self.send(remote, request).await?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() { SendError::TooLong(bytes_max) } else { failed(error.to_string()) }
            })?;
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let content_type = content_type.unwrap_or_default().to_owned();
            Ok(Fetched { status: head.status, content_type, body: body.to_bytes() })
        };
        tokio::time::timeout(timeout, call).await.unwrap_or(Err(SendError::Timeout(timeout)))
    }

    fn client(&self, remote: &Remote, base: Base) -> Result<Arc<HttpsClient<UnreadBody>>, SendError> {
        let authorities = match &remote.verification {
            Verification::Authorities(pem) => Some(pem),
            Verification::Skipped => None,
            Verification::Unreadable(why) => return Err(SendError::Certificates(why.clone())),
        };
        let Base { is_tls, authority } = base;
        let server_name = remote.service.server_name();
        let place = Place { is_tls, authority, server_name, authorities: authorities.map(digest) };
        if let Some(found) = self.places.lock().find(&place) {
            return Ok(found);
        }
        // Outside of the lock, because parsing certificates takes time.
        let unusable = |error: EndpointError| SendError::Certificates(error.to_string());
        let tls = match authorities {
            Some(pem) => tls::config(pem, self.identity.clone()),
            None => tls::unverified(self.identity.clone()),
        };
        let protocols = if is_tls { Protocols::Http1 } else { Protocols::Http1OrPlain };
        let connecting = Connecting { server_name: Some(&place.server_name), ..Connecting::to(protocols) };
        let client = transport::client(tls.map_err(unusable)?, connecting);
        Ok(self.places.lock().insert(place, Arc::new(client.map_err(unusable)?)))
    }
}

/// The resource of APIServices.
pub(crate) fn resource() -> GroupResource {
    GroupResource::new(api_service::GROUP, "apiservices")
}

/// Whether this server serves a version of a group itself.
pub(crate) fn is_local(catalog: &Catalog, group: &str, version: &str) -> bool {
    catalog.group(group).is_some_and(|group| group.version(version).is_some())
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").finish_non_exhaustive()
    }
}
