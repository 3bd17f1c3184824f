//! Dispatches a request by its path: discovery, OpenAPI, health, version, or a resource.

use crate::access::audit::Audit;
use crate::access::authn::service_account::{CONFIGURATION_PATH, JWKS_PATH};
use crate::http::answer::{Answer, layout_for};
use crate::http::documents::backup::{self, BACKUP_PATH};
use crate::http::documents::discovery::{AGGREGATED_TYPE, Root};
use crate::http::documents::health;
use crate::http::documents::openapi::is_made;
use crate::http::documents::published::{Documents, Published};
use crate::http::documents::version;
use crate::http::endpoint;
use crate::http::endpoint::context::Context;
use crate::http::limits::{Access, Limits};
use crate::metrics::{self, Gauges, InFlight, ResourceCount, StoreFigures};
use crate::shared::compute::Load;
use crate::shared::operation::{Notes, Operation};
use crate::shared::request::negotiate::{self, Encoding, Layout, Shape, negotiate};
use crate::shared::request::query::Query;
use crate::shared::request::request_info::{RequestInfo, Target};
use crate::shared::request::unread::Unread;
use crate::shared::status::Failure;
use crate::state::State;
use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{HeaderMap, Method};
use std::collections::HashSet;
use std::sync::Arc;
use steersman_kinds::catalog::{Catalog, Handling, ResourceScope, Verb};
use steersman_kinds::user::User;
use steersman_machinery::GroupResource;
use steersman_machinery::budget::{Budget, Limits as BudgetLimits};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The paths that `GET /` lists beside those of groups.
const ROOT_PATHS: [&str; 16] = [
    CONFIGURATION_PATH,
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    JWKS_PATH,
    "/readyz",
    "/readyz/ping",
    "/version",
    "/api",
    "/apis",
    "/apis/",
];

/// Dispatches requests.
pub(crate) struct Router {
    pub(crate) state: Arc<State>,
    limits: Arc<Limits>,
    pub(crate) audit: Option<Arc<Audit>>,
    published: Published,
    /// `host:port` under which clients reach the server, for discovery.
    address: String,
}

/// The bytes of objects that are read in the time in which a document of OpenAPI is made. With many definitions it is longer.
const OPENAPI_BYTES: usize = 1 << 20;

/// A request that has passed the chain.
pub(crate) struct Request<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: &'a Query,
    pub(crate) parts: &'a Parts,
    pub(crate) user: &'a Arc<User>,
    /// The user to whom its memory and computation are charged.
    pub(crate) payer: &'a Arc<User>,
    pub(crate) body: Bytes,
    pub(crate) arrived: Instant,
    /// The time by which it must be answered.
    pub(crate) deadline: Instant,
    pub(crate) load: Load,
    /// For a request that can end early: cancelled when its client has disconnected.
    pub(crate) abandoned: Option<&'a CancellationToken>,
}

impl Router {
    pub(crate) fn new(state: Arc<State>, limits: Arc<Limits>, audit: Option<Arc<Audit>>, address: String) -> Router {
        Router { published: Published::new(state.catalog()), state, limits, audit, address }
    }

    /// Answers a request that has passed the chain. `unread` is for whoever it is passed on to.
    ///
    /// # Errors
    /// With the answer for the client.
    pub(crate) async fn dispatch(
        &self,
        request: &Request<'_>,
        unread: Unread,
        notes: &mut Notes,
    ) -> Result<Answer, Failure> {
        let catalog = self.state.catalog();
        match &request.info.target {
            Some(target) => resource(&self.state, &catalog, request, target, unread, notes).await,
            None => match request.info.path.as_str() {
                CONFIGURATION_PATH | JWKS_PATH if is_read(request) => token_issuer(self, request).await,
                BACKUP_PATH if request.parts.method == Method::GET => backup::answer(&self.state, request.user).await,
                _ => {
                    let documents = self.published.of(&catalog, &self.state.remotes.discovered());
                    if is_read(request) && !is_made(&documents.openapi, &request.info.path, &request.parts.headers) {
                        request.load.expect_work(OPENAPI_BYTES).await;
                    }
                    path(self, &documents, request)
                }
            },
        }
    }
}

/// Whether a request leads to a node, a Pod or a Service, which reads its body.
pub(crate) fn leads_to_node(catalog: &Catalog, info: &RequestInfo) -> bool {
    let Some(target) = &info.target else { return false };
    let Some(name) = target.subresource.as_deref() else { return false };
    let Some(served) = catalog.find(&target.group, &target.version, &target.resource) else { return false };
    served.version().subresources.iter().any(|one| *one.name == *name && one.handling == Handling::Stream)
}

async fn resource(
    state: &Arc<State>,
    catalog: &Catalog,
    request: &Request<'_>,
    target: &Target,
    unread: Unread,
    notes: &mut Notes,
) -> Result<Answer, Failure> {
    let Some(served) = catalog.find(&target.group, &target.version, &target.resource) else {
        let is_built_in = catalog.resources_of(&target.group).any(|resource| !resource.is_custom());
        let is_served = catalog
            .group(&target.group)
            .is_some_and(|group| group.versions.iter().any(|version| **version == *target.version));
        return if is_built_in || is_served { Err(Failure::unknown_resource()) } else { Ok(Answer::no_such_page()) };
    };
    if served.resource.scope == ResourceScope::Cluster && target.has_namespace_in_path {
        return Err(Failure::unknown_resource());
    }
    let is_across_namespaces = served.resource.scope == ResourceScope::Namespaced && !target.has_namespace_in_path;
    if is_across_namespaces && !matches!(request.info.verb, "list" | "watch") {
        // Such a path has no object. If all objects of a built-in kind can be listed there, only the method is wrong.
        let is_list =
            !target.has_name_in_path && !served.resource.is_custom() && served.resource.verbs.contains(&Verb::List);
        return Err(if is_list { Failure::method_not_allowed() } else { Failure::unknown_resource() });
    }
    let attributes = target.attributes(request.info.verb);
    let operation = Operation::new(served, attributes, request.user, state.now());
    let budget = Budget::new(BudgetLimits::default(), request.load.interruption());
    let (arrived, deadline, load) = (request.arrived, Some(request.deadline), request.load.clone());
    let operation = Operation { arrived, deadline, load, budget, ..operation };
    let (query, parts, abandoned) = (request.query, request.parts, request.abandoned);
    let path = &request.info.path;
    let mut cx = Context { state, operation, payer: request.payer, target, query, path, parts, abandoned };
    if let Some(deprecation) = &served.version().deprecation {
        cx.operation.warn(deprecation.to_string());
        cx.operation.annotate("k8s.io/deprecated", "true");
    }
    let outcome = endpoint::handle(&mut cx, request.body.clone(), unread).await;
    *notes = Notes { warnings: cx.operation.warnings, audit_annotations: cx.operation.audit_annotations };
    outcome
}

/// The discovery documents of the issuer of service account tokens.
async fn token_issuer(router: &Router, request: &Request<'_>) -> Result<Answer, Failure> {
    const MAX_AGE: &str = "public, max-age=3600";
    let Router { state, address, .. } = router;
    let accounts = state.authenticator.service_accounts();
    let is_configuration = request.info.path == CONFIGURATION_PATH;
    let document = match is_configuration {
        true => accounts.configuration(address, state.now()).await,
        false => accounts.jwks(state.now()).await.map(Some),
    };
    let Some(document) = document.map_err(|error| Failure::of_signing(&error))? else {
        return Ok(Answer::no_such_page());
    };
    let content_type = if is_configuration { "application/json" } else { "application/jwk-set+json" };
    let mut answer = Answer::bytes(200, content_type, document.to_string());
    answer.set("cache-control", MAX_AGE);
    Ok(answer)
}

fn is_read(request: &Request<'_>) -> bool {
    matches!(request.parts.method, Method::GET | Method::HEAD)
}

fn path(router: &Router, documents: &Documents, request: &Request<'_>) -> Result<Answer, Failure> {
    let path = request.info.path.as_str();
    let is_read = is_read(request);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [root @ ("healthz" | "livez" | "readyz"), check @ ..] if is_read => {
            Ok(health::answer(&router.state, root, check, request.query))
        }
        ["metrics"] if is_read => Ok(Answer::bytes(200, metrics::CONTENT_TYPE, scrape(router))),
        ["debug", "api_priority_and_fairness", "dump_priority_levels"] if is_read => {
            let levels = router.limits.flow_control().map(|control| control.dump_levels());
            Ok(levels.map_or_else(Answer::no_such_page, |levels| Answer::text(200, levels)))
        }
        ["version"] if is_read => Ok(Answer::value(200, &version::info(), Encoding::Json, Layout::Indented)),
        ["openapi", rest @ ..] if is_read => Ok(openapi(documents, rest, request)),
        [""] if is_read => json(request, documents.discovery.root_paths(&ROOT_PATHS)),
        ["api"] if is_read => discovery(documents, request, Root::Core, &router.address),
        ["apis"] if is_read => discovery(documents, request, Root::Groups, &router.address),
        ["apis", group] if is_read => found(request, documents.discovery.group(group)),
        ["api", version] if is_read => group_version(documents, request, "", version),
        ["apis", group, version] if is_read => group_version(documents, request, group, version),
        ["api" | "apis", ..] if !is_read => Err(Failure::method_not_allowed()),
        _ => Ok(Answer::no_such_page()),
    }
}

/// The text of `/metrics`: the counters, and the current values of other parts of the server.
fn scrape(router: &Router) -> String {
    let Router { state, limits, audit, .. } = router;
    let in_flight = InFlight { mutating: limits.under_way(Access::Write), read_only: limits.under_way(Access::Read) };
    let catalog = state.catalog();
    // A set of storage names, so that an object served in several versions or groups is counted once.
    let versions = catalog.groups().iter().flat_map(|group| group.served());
    let resources = versions.flat_map(|version| &version.resources).map(|served| &*served.resource);
    let stored = resources.filter(|resource| resource.handling() == Handling::Stored);
    let names: HashSet<&GroupResource> = stored.map(|resource| &resource.storage).collect();
    let count = |name: &GroupResource| ResourceCount { name: name.clone(), count: state.store.count(name) };
    let objects = names.into_iter().map(count).collect();
    let stats = state.store.stats();
    let store = StoreFigures {
        is_healthy: state.store.health().is_ok(),
        oldest_revision: stats.oldest.0,
        revision: stats.revision.0,
        unreadable: stats.unreadable,
    };
    let audit = audit.as_ref().map(|audit| audit.figures());
    let conversions = state.conversions.durations.all();
    let mut text = state.metrics.exposition(&Gauges { in_flight, objects, store, conversions, audit });
    if let Some(control) = limits.flow_control() {
        text.push_str(&control.exposition());
    }
    text.push_str(&state.compute.exposition());
    text.push_str(&state.memory.exposition());
    if let Some(configured) = &state.initializers {
        text.push_str(&configured.figures.exposition());
    }
    text
}

/// The resources of a version. As upstream, the 404 for an unknown version of a built-in group is a Status.
fn group_version(documents: &Documents, request: &Request<'_>, group: &str, version: &str) -> Result<Answer, Failure> {
    match documents.discovery.resources(group, version) {
        Some(document) => found(request, Some(document)),
        None if documents.catalog.resources_of(group).any(|resource| !resource.is_custom()) => {
            Err(Failure::unknown_resource())
        }
        None => Ok(Answer::no_such_page()),
    }
}

fn found(request: &Request<'_>, document: Option<Bytes>) -> Result<Answer, Failure> {
    match document {
        Some(document) => json(request, document),
        None => Ok(Answer::no_such_page()),
    }
}

/// A rendered document in the requested encoding.
fn json(request: &Request<'_>, document: Bytes) -> Result<Answer, Failure> {
    // Discovery has one message for every form that is not served.
    let negotiated = negotiate(&request.parts.headers, Shape::Plain)
        .map_err(|_| Failure::not_acceptable(&negotiate::MEDIA_TYPES))?;
    let layout = layout_for(request.query, &request.parts.headers);
    if negotiated.encoding == Encoding::Json && layout == Layout::Compact {
        return Ok(Answer::bytes(200, Encoding::Json.content_type(), document));
    }
    let tree: serde_json::Value =
        serde_json::from_slice(&document).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(Answer::value(200, &tree, negotiated.encoding, layout))
}

/// The roots of discovery, in the classic or in the aggregated form.
fn discovery(documents: &Documents, request: &Request<'_>, root: Root, address: &str) -> Result<Answer, Failure> {
    if wants_aggregated(&request.parts.headers) {
        let document = documents.discovery.aggregated(root);
        let known = request.parts.headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut answer = match known {
            Some(etag) if etag == &*document.etag => Answer::empty(304),
            _ => Answer::document(AGGREGATED_TYPE, &document.bytes),
        };
        answer.set(ETAG.as_str(), &document.etag);
        answer.set(VARY.as_str(), "Accept");
        answer.set("cache-control", "public");
        return Ok(answer);
    }
    let document = match root {
        Root::Core => documents.discovery.core_versions(address),
        Root::Groups => documents.discovery.groups(),
    };
    let mut answer = json(request, document)?;
    answer.set(VARY.as_str(), "Accept");
    Ok(answer)
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    negotiate::entries(headers).iter().any(|entry| {
        entry.media_type == "application/json"
            && entry.parameter("g") == Some("apidiscovery.k8s.io")
            && entry.parameter("v") == Some("v2")
            && entry.parameter("as") == Some("APIGroupDiscoveryList")
    })
}

fn openapi(documents: &Documents, rest: &[&str], request: &Request<'_>) -> Answer {
    let path = rest.get(1..).unwrap_or_default().join("/");
    match rest.first() {
        Some(&"v2") if path.is_empty() => {
            crate::http::documents::openapi::answer_v2(&documents.openapi, &request.parts.headers)
        }
        Some(&"v3") if path.is_empty() => Answer::bytes(200, "text/plain; charset=utf-8", documents.openapi_index()),
        Some(&"v3") => match documents.openapi.document(&path) {
            Some(document) => {
                crate::http::documents::openapi::answer_v3(&path, &document, request.query, &request.parts.headers)
            }
            None => Answer::empty(404),
        },
        _ => Answer::no_such_page(),
    }
}
