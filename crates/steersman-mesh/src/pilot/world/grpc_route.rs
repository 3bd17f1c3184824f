//! GRPCRoutes: what they have in common with HTTPRoutes is read as these are.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::GRPCRoute;
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::grpc_route::{
    HeaderType, Match as GrpcMatch, Method, Rule,
};
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::ParentRef;
use crate::pilot::world::draft::{Draft, DraftRule, Effect, Most, Rank};
use crate::pilot::world::filters::filters;
use crate::pilot::world::http_route::{backends, hostname_remark};
use crate::pilot::world::names::{RouteKind, RouteName};
use crate::pilot::world::route::{Match, PathMatch, Retry};
use crate::pilot::world::values::{Comparison, first_of_each, quoted, regex, text_match};
use crate::pilot::world::verdict::Problem;

/// Reads a route; `None` for one without a name.
pub(crate) fn draft(route: &GRPCRoute) -> Option<Draft> {
    let metadata = &route.metadata;
    let name =
        RouteName { kind: RouteKind::Grpc, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? };
    let spec = &route.spec;
    let parents: Vec<ParentRef> = same(&spec.parent_refs.as_deref().unwrap_or_default()).unwrap_or_default();
    Some(Draft {
        name,
        generation: metadata.generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        parents,
        rules: spec.rules.iter().flatten().map(rule).collect(),
        remarks: hostname_remark(spec.hostnames.as_deref()).into_iter().collect(),
    })
}

/// The part of a GRPCRoute as the part of an HTTPRoute that it is: the definitions say the same of both.
///
/// # Errors
/// It is no part of an HTTPRoute.
fn same<T: DeserializeOwned>(part: &impl Serialize) -> Result<T, Problem> {
    let converted = serde_json::to_value(part).and_then(serde_json::from_value);
    converted.map_err(|error| Problem::unsupported(format!("a part of the route is not supported: {error}")))
}

fn rule(rule: &Rule) -> DraftRule {
    let matches = match rule.matches.as_deref() {
        None | Some([]) => Ok(vec![(Match::default(), Rank::default())]),
        Some(matches) => matches.iter().map(grpc_match).collect(),
    };
    DraftRule { name: rule.name.clone(), matches, effect: effect(rule) }
}

fn effect(rule: &Rule) -> Result<Effect, Problem> {
    if rule.session_persistence.is_some() {
        return Err(Problem::unsupported("sessionPersistence is not supported"));
    }
    let list: Vec<_> = same(&rule.filters.as_deref().unwrap_or_default())?;
    let targets: Vec<_> = same(&rule.backend_refs.as_deref().unwrap_or_default())?;
    Ok(Effect { filters: filters(&list)?, backends: backends(&targets)?, timeout: None, retry: Retry::default() })
}

fn grpc_match(matching: &GrpcMatch) -> Result<(Match, Rank), Problem> {
    let mut headers = Vec::new();
    for header in matching.headers.iter().flatten() {
        let value = text_match(comparison(header.type_.as_ref())?, &header.value)?;
        headers.push((header.name.to_ascii_lowercase(), value));
    }
    let headers = first_of_each(headers, str::to_owned);
    let (path, lengths) = matching.method.as_ref().map(path).transpose()?.unwrap_or_default();
    let rank = Rank {
        length: Most::of(lengths.0),
        second_length: Most::of(lengths.1),
        n_headers: Most::of(headers.len()),
        ..Rank::default()
    };
    Ok((Match { path, method: None, headers, query: Vec::new() }, rank))
}

/// The path of HTTP that a method has, with the lengths of service and method.
fn path(method: &Method) -> Result<(PathMatch, (usize, usize)), Problem> {
    let service = method.service.as_deref().filter(|service| !service.is_empty());
    let name = method.method.as_deref().filter(|name| !name.is_empty());
    let length = |text: Option<&str>| text.map_or(0, |text| text.chars().count());
    let lengths = (length(service), length(name));
    let path = match (comparison(method.type_.as_ref())?, service, name) {
        (_, None, None) => PathMatch::Any,
        (Comparison::Exact, Some(service), Some(name)) => PathMatch::Exact(format!("/{service}/{name}")),
        (Comparison::Exact, Some(service), None) => PathMatch::Prefix(format!("/{service}")),
        (Comparison::Exact, None, Some(name)) => PathMatch::Regex(regex(&format!("/[^/]+/{}", quoted(name)))?),
        (Comparison::Regex, service, name) => {
            let part =
                |part: Option<&str>| part.map_or(Ok("[^/]+".to_owned()), |part| Ok(format!("(?:{})", regex(part)?)));
            // Each part may be within the bounds of an expression, and both together beyond them.
            PathMatch::Regex(regex(&format!("/{}/{}", part(service)?, part(name)?))?)
        }
    };
    Ok((path, lengths))
}

fn comparison(type_: Option<&HeaderType>) -> Result<Comparison, Problem> {
    match type_ {
        None | Some(HeaderType::Exact) => Ok(Comparison::Exact),
        Some(HeaderType::RegularExpression) => Ok(Comparison::Regex),
        Some(HeaderType::Other(other)) => {
            Err(Problem::unsupported(format!("a match of the type {other} is not supported")))
        }
    }
}
