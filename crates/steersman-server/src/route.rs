//! Which part of the server a request is for.

use crate::answer::{Answer, is_pretty_for};
use crate::chain::Admitted;
use crate::discovery::{AGGREGATED_TYPE, Root};
use crate::negotiate::{self, Encoding, Shape, negotiate};
use crate::registry::{self, Context};
use crate::request_info::Target;
use crate::server::{Face, Inner};
use crate::status::Failure;
use crate::{health, version};
use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// Paths beside those of groups that `GET /` names.
const ROOT_PATHS: [&str; 13] = [
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/readyz",
    "/readyz/ping",
    "/version",
    "/api",
    "/apis",
    "/apis/",
];

/// Answers a request that has passed the chain.
///
/// # Errors
/// With the answer for the client.
pub(crate) async fn dispatch(
    server: &Arc<Inner>,
    request: &Admitted<'_>,
    warnings: &mut Vec<String>,
) -> Result<Answer, Failure> {
    let face = server.face();
    match &request.info.target {
        Some(target) => resource(server, &face, request, target, warnings).await,
        None => path(server, &face, request),
    }
}

async fn resource(
    server: &Arc<Inner>,
    face: &Face,
    request: &Admitted<'_>,
    target: &Target,
    warnings: &mut Vec<String>,
) -> Result<Answer, Failure> {
    let catalog = &face.catalog;
    let Some(served) = catalog.find(&target.group, &target.version, &target.resource) else {
        let is_built_in = catalog.resources_of(&target.group).any(|resource| !resource.is_custom());
        let is_served = catalog
            .group(&target.group)
            .is_some_and(|group| group.versions.iter().any(|version| **version == *target.version));
        return if is_built_in || is_served { Err(Failure::unknown_resource()) } else { Ok(Answer::no_such_page()) };
    };
    if served.resource.scope == crate::catalog::Scope::Cluster && target.has_namespace_in_path {
        return Err(Failure::unknown_resource());
    }
    let mut cx = Context {
        server,
        served,
        target,
        verb: request.info.verb,
        user: request.user,
        query: request.query,
        headers: &request.parts.headers,
        now: server.now(),
        warnings: Vec::new(),
    };
    if let Some(deprecation) = &served.version().deprecation {
        cx.warn(deprecation.to_string());
    }
    let outcome = registry::handle(&mut cx, &request.parts.method, request.body.clone()).await;
    *warnings = cx.warnings;
    outcome
}

fn path(server: &Inner, face: &Face, request: &Admitted<'_>) -> Result<Answer, Failure> {
    let path = request.info.path.as_str();
    let is_read = matches!(request.parts.method, Method::GET | Method::HEAD);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [root @ ("healthz" | "livez" | "readyz"), check @ ..] if is_read => {
            Ok(health::answer(server, root, check, request.query))
        }
        ["version"] if is_read => Ok(Answer::value(200, &version::info(), Encoding::Json, true)),
        ["openapi", rest @ ..] if is_read => Ok(openapi(face, rest, request)),
        [""] if is_read => json(request, face.discovery.root_paths(&ROOT_PATHS)),
        ["api"] if is_read => discovery(face, request, Root::Core, &server.address),
        ["apis"] if is_read => discovery(face, request, Root::Groups, &server.address),
        ["apis", group] if is_read => found(request, face.discovery.group(group)),
        ["api", version] if is_read => group_version(face, request, "", version),
        ["apis", group, version] if is_read => group_version(face, request, group, version),
        ["api" | "apis", ..] if !is_read => Err(Failure::method_not_allowed()),
        _ => Ok(Answer::no_such_page()),
    }
}

/// The resources of a version; an unknown version of a built-in group is told in a Status.
fn group_version(face: &Face, request: &Admitted<'_>, group: &str, version: &str) -> Result<Answer, Failure> {
    match face.discovery.resources(group, version) {
        Some(document) => found(request, Some(document)),
        None if face.catalog.resources_of(group).any(|resource| !resource.is_custom()) => {
            Err(Failure::unknown_resource())
        }
        None => Ok(Answer::no_such_page()),
    }
}

fn found(request: &Admitted<'_>, document: Option<Bytes>) -> Result<Answer, Failure> {
    match document {
        Some(document) => json(request, document),
        None => Ok(Answer::no_such_page()),
    }
}

/// A rendered document in the encoding that was asked for.
fn json(request: &Admitted<'_>, document: Bytes) -> Result<Answer, Failure> {
    // Discovery has one text for whatever cannot be had.
    let negotiated = negotiate(&request.parts.headers, Shape::Plain)
        .map_err(|_| Failure::not_acceptable(&negotiate::MEDIA_TYPES))?;
    let is_pretty = is_pretty_for(request.query, &request.parts.headers);
    if negotiated.encoding == Encoding::Json && !is_pretty {
        return Ok(Answer::bytes(200, Encoding::Json.content_type(), document));
    }
    let tree: serde_json::Value =
        serde_json::from_slice(&document).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(Answer::value(200, &tree, negotiated.encoding, is_pretty))
}

/// The roots of discovery, in the classic or in the aggregated form.
fn discovery(face: &Face, request: &Admitted<'_>, root: Root, address: &str) -> Result<Answer, Failure> {
    if wants_aggregated(&request.parts.headers) {
        let document = face.discovery.aggregated(root);
        let known = request.parts.headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut answer = match known {
            Some(etag) if etag == &*document.etag => Answer::empty(304),
            _ => Answer::bytes(200, AGGREGATED_TYPE, document.bytes.clone()),
        };
        answer.set(ETAG.as_str(), &document.etag);
        answer.set(VARY.as_str(), "Accept");
        answer.set("cache-control", "public");
        return Ok(answer);
    }
    let document = match root {
        Root::Core => face.discovery.core_versions(address),
        Root::Groups => face.discovery.groups(),
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

fn openapi(face: &Face, rest: &[&str], request: &Admitted<'_>) -> Answer {
    let path = rest.get(1..).unwrap_or_default().join("/");
    match rest.first() {
        Some(&"v2") if path.is_empty() => {
            let document = face.openapi.v2();
            crate::openapi::answer_v2(&document, &request.parts.headers)
        }
        Some(&"v3") if path.is_empty() => Answer::bytes(200, "text/plain; charset=utf-8", face.openapi.index()),
        Some(&"v3") => match face.openapi.document(&path) {
            Some(document) => crate::openapi::answer_v3(&path, &document, request.query, &request.parts.headers),
            None => Answer::empty(404),
        },
        _ => Answer::no_such_page(),
    }
}
