//! The client of a real Neutron.
//!
//! This module has Neutron's paths and formats; `http` sends requests and classifies lost answers, `session` has the
//! tokens of Keystone, `paging` splits and walks searches. Only one failure is retried here: a request refused for an
//! expired token is repeated once with a new one, because it certainly had no effect.

mod catalog;
mod http;
mod paging;
mod session;

use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Class;
use crate::client::http::{Http, Outgoing, Received};
use crate::client::paging::{Item, Pairs};
use crate::client::session::Session;
use crate::cloud::{Cloud, Reply, RequestId};
use crate::config::{self, Access, Config, Identity};
use crate::error::{Call, Cause, Error, Operation};
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkUpdate};
use crate::types::subnet::{Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

/// A Neutron behind HTTP.
///
/// Clones share connections and the token. Making one sends nothing: the first call connects, and signs in where
/// needed. TLS trusts the system's authorities and those of the configuration; no process-global TLS provider is needed
/// or set. Proxies of the environment are not used, and redirects are not followed.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    http: Http,
    authentication: Authentication,
    limits: config::Limits,
}

/// How requests authenticate.
#[derive(Debug)]
enum Authentication {
    Keystone(Box<Session>),
    Headers { endpoint: Url, identity: Identity, headers: Vec<(HeaderName, HeaderValue)> },
    None { endpoint: Url },
}

/// The address of one request, and its headers for authentication.
struct Credentials {
    endpoint: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    token: Option<Arc<session::Token>>,
}

impl Client {
    /// A client for this cloud.
    ///
    /// # Errors
    ///
    /// The certificates to trust cannot be read, or an identity cannot be written as headers.
    pub fn new(config: Config) -> Result<Self, config::Error> {
        let Config { access, ca_certificates, limits } = config;
        let http = Http::new(ca_certificates, limits)?;
        let (name, authentication) = match access {
            Access::Headers { endpoint, identity } => {
                let headers = identity_headers(&identity)?;
                (show(&endpoint), Authentication::Headers { endpoint, identity, headers })
            }
            Access::Keystone(keystone) => {
                let name = show(keystone.endpoint.as_ref().unwrap_or(&keystone.auth_url));
                (name, Authentication::Keystone(Box::new(Session::new(keystone))))
            }
            Access::Unauthenticated { endpoint } => (show(&endpoint), Authentication::None { endpoint }),
        };
        Ok(Self(Arc::new(Inner { name, http, authentication, limits })))
    }
}

impl Client {
    fn tag(&self, method: Method, call: Call, id: NetworkId, tag: &str) -> Reply<'_, ()> {
        if !is_tag(tag) {
            let cause = Cause::Malformed(format!("{tag:?} cannot be part of a URL as it is"));
            return Box::pin(async move { Err(call.unsent(cause)) });
        }
        Box::pin(self.0.none(call, Ask::new(method, format!("networks/{id}/tags/{tag}"))))
    }
}

/// Whether a tag can be part of a path unescaped: Neutron takes an escaped slash for a slash.
pub(crate) fn is_tag(tag: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~:".contains(letter);
    !tag.is_empty() && tag != "." && tag != ".." && tag.chars().all(is_plain)
}

fn show(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

fn identity_headers(identity: &Identity) -> Result<Vec<(HeaderName, HeaderValue)>, config::Error> {
    let roles = identity.roles.join(",");
    let named = [
        ("x-user-id", identity.user_id.as_deref()),
        ("x-project-id", Some(identity.project_id.as_str())),
        ("x-roles", Some(roles.as_str())),
    ];
    let mut headers = Vec::new();
    for (name, value) in named {
        let Some(value) = value else { continue };
        let header = HeaderValue::from_str(value).map_err(|_| config::Error::Unsupported {
            origin: "the identity".to_owned(),
            key: name.to_owned(),
            value: value.to_owned(),
            remedy: "use printable ASCII",
        })?;
        headers.push((HeaderName::from_static(name), header));
    }
    Ok(headers)
}

impl Inner {
    async fn credentials(&self, request: RequestId) -> Result<Credentials, Error> {
        match &self.authentication {
            Authentication::Keystone(session) => {
                let token = session.token(&self.http, request).await?;
                let headers = vec![(HeaderName::from_static("x-auth-token"), token.value().clone())];
                Ok(Credentials { endpoint: token.endpoint().clone(), headers, token: Some(token) })
            }
            Authentication::Headers { endpoint, headers, .. } => {
                Ok(Credentials { endpoint: endpoint.clone(), headers: headers.clone(), token: None })
            }
            Authentication::None { endpoint } => {
                Ok(Credentials { endpoint: endpoint.clone(), headers: Vec::new(), token: None })
            }
        }
    }

    /// Sends a request to a path under `/v2.0/` and returns the answer if it is a success.
    async fn exchange(&self, call: &Call, ask: &Ask<'_>) -> Result<Received, Error> {
        let credentials = self.credentials(call.request).await?;
        let refused = match self.attempt(call, ask, &credentials).await {
            Err(error) if error.class() == Some(Class::Unauthorized) => error,
            outcome => return outcome,
        };
        let (Authentication::Keystone(session), Some(token)) = (&self.authentication, &credentials.token) else {
            return Err(refused);
        };
        session.forget(token);
        let credentials = self.credentials(call.request).await?;
        self.attempt(call, ask, &credentials).await
    }

    async fn attempt(&self, call: &Call, ask: &Ask<'_>, credentials: &Credentials) -> Result<Received, Error> {
        let mut url = credentials.endpoint.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/v2.0/{}", ask.path));
        url.set_query(ask.query);
        let mut headers = credentials.headers.clone();
        if let Some(revision) = ask.expected {
            let condition = HeaderValue::from_str(&format!("revision_number={revision}"));
            headers.push((IF_MATCH, condition.expect("invariant: letters and digits make a header value")));
        }
        let outgoing = Outgoing { method: ask.method.clone(), url, headers, body: ask.body.clone() };
        self.http.exchange(call, outgoing).await
    }

    /// A request whose answer is one resource.
    async fn one<T: DeserializeOwned + Item>(&self, call: Call, ask: Ask<'_>) -> Result<T, Error> {
        let received = self.exchange(&call, &ask).await?;
        match paging::parse_one(&received.body) {
            Ok(resource) => Ok(resource),
            Err(reason) => Err(call.unanswered(Cause::Malformed(reason))),
        }
    }

    /// A create or update: a request with a body, whose answer is the resource.
    async fn write<T: DeserializeOwned + Item>(
        &self,
        call: Call,
        ask: Ask<'_>,
        body: impl Serialize,
    ) -> Result<T, Error> {
        match serde_json::to_vec(&body) {
            Ok(body) => self.one(call, Ask { body: Some(body), ..ask }).await,
            Err(error) => Err(call.unsent(Cause::Malformed(format!("the request cannot be written: {error}")))),
        }
    }

    /// A request whose answer has no content.
    async fn none(&self, call: Call, ask: Ask<'_>) -> Result<(), Error> {
        self.exchange(&call, &ask).await.map(|_| ())
    }

    /// Every page of every part of a search, without duplicates, oldest first.
    async fn find<T: DeserializeOwned + Item>(&self, call: Call, query: Pairs) -> Result<Vec<T>, Error> {
        let mut found = paging::SearchResults::new(self.limits.found_max);
        for part in paging::split(query) {
            let items = self.walk(&call, &part).await?;
            found.add(items).map_err(|cause| call.clone().unanswered(cause))?;
        }
        Ok(found.into_sorted())
    }

    /// One search from its first page to its last. If the object that marks a page's end is deleted meanwhile, the
    /// server can no longer find the place, and the walk starts again.
    async fn walk<T: DeserializeOwned + Item>(&self, call: &Call, part: &Pairs) -> Result<Vec<T>, Error> {
        let first = paging::encode(part, self.limits.page_size);
        let mut query = first.clone();
        let mut found = paging::SearchResults::<T>::new(self.limits.found_max);
        let mut restarts_left: u32 = 3;
        loop {
            let ask = Ask { query: Some(&query), ..Ask::new(Method::GET, T::COLLECTION.to_owned()) };
            let received = match self.exchange(call, &ask).await {
                Err(error) if error.is_not_found() && query != first && 0 < restarts_left => {
                    restarts_left -= 1;
                    query.clone_from(&first);
                    found = paging::SearchResults::new(self.limits.found_max);
                    continue;
                }
                outcome => outcome?,
            };
            let page = paging::parse_page::<T>(&received.body);
            let page = page.map_err(|reason| call.clone().unanswered(Cause::Malformed(reason)))?;
            let progressed = found.add(page.items).map_err(|cause| call.clone().unanswered(cause))?;
            match page.next {
                // A page without new items that has a next page would never end.
                Some(next) if progressed => query = next,
                Some(_) | None => return Ok(found.into_sorted()),
            }
        }
    }
}

/// A request without its authentication.
struct Ask<'a> {
    method: Method,
    /// The path below `/v2.0/`; made of fixed words and ids, so nothing needs escaping.
    path: String,
    query: Option<&'a str>,
    body: Option<Vec<u8>>,
    expected: Option<Revision>,
}

impl Ask<'_> {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, query: None, body: None, expected: None }
    }
}

/// `{"network": ...}`
#[derive(Deserialize, Serialize)]
pub(crate) struct NetworkBody<T> {
    network: T,
}

/// `{"subnet": ...}`
#[derive(Deserialize, Serialize)]
pub(crate) struct SubnetBody<T> {
    subnet: T,
}

impl Cloud for Client {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn project_id(&self, request: RequestId) -> Reply<'_, Option<String>> {
        Box::pin(async move {
            match &self.0.authentication {
                Authentication::Keystone(session) => {
                    let token = session.token(&self.0.http, request).await?;
                    Ok(token.project_id().map(str::to_owned))
                }
                Authentication::Headers { identity, .. } => Ok(Some(identity.project_id.clone())),
                Authentication::None { .. } => Ok(None),
            }
        })
    }

    fn find_networks<'a>(&'a self, request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>> {
        let call = Call::bare(Operation::FindNetworks, request);
        Box::pin(async move {
            let mut found: Vec<Network> = self.0.find(call, filter.query()).await?;
            found.retain(|network| filter.matches(network));
            Ok(found)
        })
    }

    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network> {
        let call = Call::on(Operation::ReadNetwork, id, request);
        Box::pin(self.0.one(call, Ask::new(Method::GET, format!("networks/{id}"))))
    }

    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network> {
        let call = Call::create_network(network, request);
        let ask = Ask::new(Method::POST, "networks".to_owned());
        Box::pin(self.0.write(call, ask, NetworkBody { network }))
    }

    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network> {
        let call = Call::on(Operation::UpdateNetwork, id, request);
        let ask = Ask { expected, ..Ask::new(Method::PUT, format!("networks/{id}")) };
        Box::pin(self.0.write(call, ask, NetworkBody { network: change }))
    }

    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteNetwork, id, request);
        let ask = Ask { expected, ..Ask::new(Method::DELETE, format!("networks/{id}")) };
        Box::pin(self.0.none(call, ask))
    }

    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        self.tag(Method::PUT, Call::on(Operation::AddNetworkTag, id, request), id, tag)
    }

    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        self.tag(Method::DELETE, Call::on(Operation::RemoveNetworkTag, id, request), id, tag)
    }

    fn find_subnets<'a>(&'a self, request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>> {
        let call = Call::bare(Operation::FindSubnets, request);
        Box::pin(async move {
            let mut found: Vec<Subnet> = self.0.find(call, filter.query()).await?;
            found.retain(|subnet| filter.matches(subnet));
            Ok(found)
        })
    }

    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet> {
        let call = Call::on(Operation::ReadSubnet, id, request);
        Box::pin(self.0.one(call, Ask::new(Method::GET, format!("subnets/{id}"))))
    }

    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::CreateSubnet, subnet.cidr, request);
        let ask = Ask::new(Method::POST, "subnets".to_owned());
        Box::pin(self.0.write(call, ask, SubnetBody { subnet }))
    }

    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::UpdateSubnet, id, request);
        let ask = Ask { expected, ..Ask::new(Method::PUT, format!("subnets/{id}")) };
        Box::pin(self.0.write(call, ask, SubnetBody { subnet: change }))
    }

    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteSubnet, id, request);
        let ask = Ask { expected, ..Ask::new(Method::DELETE, format!("subnets/{id}")) };
        Box::pin(self.0.none(call, ask))
    }
}
