//! HTTPRoutes.

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::HTTPRoute;
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::{
    BackendRef, HeaderType, Match as HttpMatch, Method, PathType, Retry as HttpRetry, Rule, Timeouts,
};
use crate::pilot::world::draft::{Draft, DraftBackend, DraftFilters, DraftRule, Effect, Most, Rank, Reference};
use crate::pilot::world::duration;
use crate::pilot::world::filters::filters;
use crate::pilot::world::names::{RouteKind, RouteName};
use crate::pilot::world::route::{Match, PathChange, PathMatch, Retry};
use crate::pilot::world::values::{Comparison, first_of_each, leading, regex, text_match};
use crate::pilot::world::verdict::{INCOMPATIBLE_FILTERS, Problem};
use std::time::Duration;

/// The largest weight. With 16 backends at most, the sum stays within what Envoy counts.
const WEIGHT_MAX: u32 = 1_000_000;
/// The most attempts after the first one.
const ATTEMPTS_MAX: i64 = 20;

/// Reads a route; `None` for one without a name.
pub(crate) fn draft(route: &HTTPRoute) -> Option<Draft> {
    let metadata = &route.metadata;
    let name =
        RouteName { kind: RouteKind::Http, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? };
    let spec = &route.spec;
    Some(Draft {
        name,
        generation: metadata.generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        parents: spec.parent_refs.clone().unwrap_or_default(),
        rules: spec.rules.iter().flatten().map(rule).collect(),
        remarks: hostname_remark(spec.hostnames.as_deref()).into_iter().collect(),
    })
}

/// A request is assigned to a Service by its destination address, so the names in a route have no effect, as the Gateway API says.
pub(crate) fn hostname_remark(hostnames: Option<&[String]>) -> Option<String> {
    let is_present = hostnames.is_some_and(|hostnames| !hostnames.is_empty());
    is_present.then(|| "hostnames have no effect on requests to a Service: match the header Host".to_owned())
}

fn rule(rule: &Rule) -> DraftRule {
    let matches = match rule.matches.as_deref() {
        None | Some([]) => Ok(vec![ranked(Match::default())]),
        Some(matches) => matches.iter().map(|matching| http_match(matching).map(ranked)).collect(),
    };
    let mut effect = effect(rule);
    if let (Ok(known), Ok(matches)) = (&effect, &matches)
        && let Err(problem) = prefixes_replaced(&known.filters, matches)
    {
        effect = Err(problem);
    }
    DraftRule { name: rule.name.clone(), matches, effect }
}

/// Checks that prefixes can be replaced: there must be some, and Envoy takes away one with all of its slashes by an expression.
fn prefixes_replaced(filters: &DraftFilters, matches: &[(Match, Rank)]) -> Result<(), Problem> {
    let paths = [
        filters.rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref()),
        filters.redirect.as_ref().and_then(|redirect| redirect.path.as_ref()),
    ];
    let replacements = paths.into_iter().flatten().filter_map(|path| match path {
        PathChange::Prefix(new) => Some(new),
        PathChange::Full(_) => None,
    });
    for new in replacements {
        for (matching, _) in matches {
            match &matching.path {
                PathMatch::Any => {}
                PathMatch::Prefix(prefix) if new.trim_end_matches('/').is_empty() => drop(regex(&leading(prefix))?),
                PathMatch::Prefix(_) => {}
                PathMatch::Exact(_) | PathMatch::Regex(_) => {
                    let message = "replacePrefixMatch needs matches of the type PathPrefix".to_owned();
                    return Err(Problem { reason: INCOMPATIBLE_FILTERS, message });
                }
            }
        }
    }
    Ok(())
}

fn effect(rule: &Rule) -> Result<Effect, Problem> {
    if rule.session_persistence.is_some() {
        return Err(Problem::unsupported("sessionPersistence is not supported"));
    }
    let (timeout, attempt_timeout) = timeouts(rule.timeouts.as_ref())?;
    let mut retry = rule.retry.as_ref().map(retry).transpose()?.unwrap_or_default();
    retry.attempt_timeout = attempt_timeout;
    Ok(Effect {
        filters: filters(rule.filters.as_deref().unwrap_or_default())?,
        backends: backends(rule.backend_refs.as_deref().unwrap_or_default())?,
        timeout,
        retry,
    })
}

/// The backends of a rule.
///
/// # Errors
/// One of them has a filter that Envoy can only carry out for the rule as a whole.
pub(crate) fn backends(list: &[BackendRef]) -> Result<Vec<DraftBackend>, Problem> {
    let backend = |backend: &BackendRef| {
        let filters = filters(backend.filters.as_deref().unwrap_or_default())?;
        let rewrites_path = filters.rewrite.as_ref().is_some_and(|rewrite| rewrite.path.is_some());
        if rewrites_path || filters.redirect.is_some() || !filters.mirrors.is_empty() {
            return Err(Problem::unsupported(
                "a backendRef can change headers and the hostname: other filters are supported in the rule only",
            ));
        }
        let to = Reference {
            group: backend.group.clone().unwrap_or_default(),
            kind: backend.kind.clone().unwrap_or_else(|| "Service".to_owned()),
            namespace: backend.namespace.clone(),
            name: backend.name.clone(),
            port: backend.port,
        };
        let weight = u32::try_from(backend.weight.unwrap_or(1)).unwrap_or(0).min(WEIGHT_MAX);
        Ok(DraftBackend { to, weight, filters })
    };
    list.iter().map(backend).collect()
}

fn timeouts(timeouts: Option<&Timeouts>) -> Result<(Option<Duration>, Option<Duration>), Problem> {
    let read = |text: Option<&String>| {
        let Some(text) = text else { return Ok(None) };
        let duration = duration::parse(text)
            .ok_or_else(|| Problem::unsupported(format!("the timeout {text:?} cannot be read")))?;
        // No time at all means no limit.
        Ok(Some(duration).filter(|duration| !duration.is_zero()))
    };
    let Some(timeouts) = timeouts else { return Ok((None, None)) };
    let (request, attempt) = (read(timeouts.request.as_ref())?, read(timeouts.backend_request.as_ref())?);
    if let (Some(request), Some(attempt)) = (request, attempt)
        && attempt > request
    {
        return Err(Problem::unsupported("timeouts.backendRequest is longer than timeouts.request"));
    }
    Ok((request, attempt))
}

fn retry(retry: &HttpRetry) -> Result<Retry, Problem> {
    let attempts = retry.attempts.unwrap_or(i64::from(Retry::default().attempts));
    if !(0..=ATTEMPTS_MAX).contains(&attempts) {
        let message = format!("retry.attempts is {attempts}: between 0 and {ATTEMPTS_MAX} are supported");
        return Err(Problem::unsupported(message));
    }
    let code = |code: &i64| {
        let status = u32::try_from(*code).ok().filter(|code| (400..600).contains(code));
        status.ok_or_else(|| Problem::unsupported(format!("retry.codes has {code}, which is no status of an error")))
    };
    let backoff = retry.backoff.as_ref().map(|text| {
        duration::parse(text).ok_or_else(|| Problem::unsupported(format!("retry.backoff {text:?} cannot be read")))
    });
    Ok(Retry {
        attempts: u32::try_from(attempts).unwrap_or_default(),
        codes: retry.codes.iter().flatten().map(code).collect::<Result<_, _>>()?,
        // Envoy refuses a pause of nothing.
        backoff: backoff.transpose()?.filter(|backoff| !backoff.is_zero()),
        attempt_timeout: None,
    })
}

fn http_match(matching: &HttpMatch) -> Result<Match, Problem> {
    let path = match &matching.path {
        None => PathMatch::Any,
        Some(path) => {
            let value = path.value.as_deref().unwrap_or("/");
            match path.type_.as_ref().unwrap_or(&PathType::PathPrefix) {
                PathType::Exact => PathMatch::Exact(value.to_owned()),
                PathType::PathPrefix => match value.trim_end_matches('/') {
                    "" => PathMatch::Any,
                    prefix => PathMatch::Prefix(prefix.to_owned()),
                },
                PathType::RegularExpression => PathMatch::Regex(regex(value)?),
                PathType::Other(other) => {
                    return Err(Problem::unsupported(format!("a path of the type {other} is not supported")));
                }
            }
        }
    };
    let method = match &matching.method {
        Some(Method::Other(other)) => {
            return Err(Problem::unsupported(format!("the method {other} is not supported")));
        }
        method => method.as_ref().map(|method| method_name(method).to_owned()),
    };
    let mut headers = Vec::new();
    for header in matching.headers.iter().flatten() {
        let value = text_match(comparison(header.type_.as_ref())?, &header.value)?;
        headers.push((header.name.to_ascii_lowercase(), value));
    }
    let mut query = Vec::new();
    for param in matching.query_params.iter().flatten() {
        query.push((param.name.clone(), text_match(comparison(param.type_.as_ref())?, &param.value)?));
    }
    let headers = first_of_each(headers, str::to_owned);
    Ok(Match { path, method, headers, query: first_of_each(query, str::to_owned) })
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

fn method_name(method: &Method) -> &str {
    match method {
        Method::Connect => "CONNECT",
        Method::Delete => "DELETE",
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Options => "OPTIONS",
        Method::Patch => "PATCH",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Trace => "TRACE",
        Method::Other(other) => other,
    }
}

fn ranked(matching: Match) -> (Match, Rank) {
    let (class, length) = match &matching.path {
        PathMatch::Exact(path) => (0, path.chars().count()),
        PathMatch::Regex(pattern) => (1, pattern.chars().count()),
        PathMatch::Prefix(prefix) => (2, prefix.chars().count()),
        PathMatch::Any => (2, 0),
    };
    let rank = Rank {
        class,
        length: Most::of(length),
        second_length: Most::of(0),
        method: Most::of(usize::from(matching.method.is_some())),
        n_headers: Most::of(matching.headers.len()),
        n_query: Most::of(matching.query.len()),
    };
    (matching, rank)
}
