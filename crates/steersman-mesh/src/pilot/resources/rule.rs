//! A match of a rule as a route of Envoy.

use steersman_xds::resources::core::{Denominator, HeaderAppendAction, HeaderValueOption, RegexMatcher};
use steersman_xds::resources::core::{RuntimeFractionalPercent, StringMatcher};
use steersman_xds::resources::route::{
    Action as RouteKind, ClusterNotFoundResponseCode, ClusterSpecifier, ClusterWeight, DirectResponseAction,
    HeaderMatcher, HostRewriteSpecifier, PathSpecifier, QueryParameterMatch, QueryParameterMatcher,
    RequestMirrorPolicy, RetryBackOff, RetryHostPredicate, RetryPolicy, Route, RouteAction, RouteMatch,
    WeightHostRewrite, WeightedCluster,
};

use crate::pilot::resources::rewrite::{self, NewPath};
use crate::pilot::world::{
    Action, Entry, HeaderChanges, Match, Mirror, PathMatch, PortName, Retry, Rule, Target, TextMatch, error_status,
};

/// The name of a cluster that never exists: Envoy answers requests for it with the status that the route says.
const NOTHING: &str = "invalid-backend";
/// When a request is tried again: nothing of it was processed, or a gRPC server says so.
const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,reset-before-request";
/// How often another endpoint than those that failed is looked for.
const OTHER_HOST_ATTEMPTS: i64 = 5;

/// A route that sends everything to the port's own endpoints.
pub(super) fn forward(port: &PortName) -> Route {
    let cluster = ClusterSpecifier::Cluster(port.to_string());
    Route {
        r#match: Some(RouteMatch::new(PathSpecifier::Prefix("/".to_owned()))),
        action: Some(RouteKind::Route(Box::new(RouteAction {
            cluster: Some(cluster),
            timeout: Some(std::time::Duration::ZERO.into()),
            retry_policy: retry_policy(&Retry::default()),
            ..RouteAction::default()
        }))),
        name: format!("Service {}", port.service),
        ..Route::default()
    }
}

/// The route of an entry in the table of a port.
pub(super) fn route(entry: &Entry, port: &PortName) -> Route {
    let rule = &*entry.rule;
    let action = match &rule.action {
        Action::Fail(status) => direct(*status),
        Action::Forward(targets) => RouteKind::Route(Box::new(forwarded(rule, targets, &entry.matching))),
        Action::Redirect(redirect) => RouteKind::Redirect(rewrite::redirect(redirect, &entry.matching.path, port.port)),
    };
    let name = rule.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    Route {
        r#match: Some(matching(&entry.matching)),
        action: Some(action),
        request_headers_to_add: added(&rule.request),
        request_headers_to_remove: rule.request.remove.clone(),
        response_headers_to_add: added(&rule.response),
        response_headers_to_remove: rule.response.remove.clone(),
        name: format!("{} rule {}{name}", rule.route, rule.index),
        ..Route::default()
    }
}

fn direct(status: u16) -> RouteKind {
    RouteKind::DirectResponse(DirectResponseAction { status: status.into(), body: None })
}

fn matching(matching: &Match) -> RouteMatch {
    let path = match &matching.path {
        PathMatch::Any => PathSpecifier::Prefix("/".to_owned()),
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
        PathMatch::Regex(regex) => PathSpecifier::SafeRegex(RegexMatcher { regex: regex.clone() }),
    };
    let header = |(name, value): &(String, TextMatch)| {
        // In Envoy the host of every version of HTTP is the header of HTTP/2.
        let name = if name == "host" { ":authority" } else { name.as_str() };
        HeaderMatcher::new(name, string(value))
    };
    let query = |(name, value): &(String, TextMatch)| QueryParameterMatcher {
        name: name.clone(),
        matches: Some(QueryParameterMatch::String(string(value))),
    };
    let method = matching.method.iter().map(HeaderMatcher::method);
    RouteMatch {
        headers: method.chain(matching.headers.iter().map(header)).collect(),
        query_parameters: matching.query.iter().map(query).collect(),
        ..RouteMatch::new(path)
    }
}

fn string(value: &TextMatch) -> StringMatcher {
    match value {
        TextMatch::Exact(value) => StringMatcher::exact(value),
        TextMatch::Regex(value) => StringMatcher::regex(value),
    }
}

fn forwarded(rule: &Rule, targets: &[Target], matching: &Match) -> RouteAction {
    let mut action = RouteAction {
        cluster: Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: targets.iter().map(weight).collect(),
        })),
        cluster_not_found_response_code: match error_status(rule.route.kind) {
            503 => ClusterNotFoundResponseCode::ServiceUnavailable,
            _ => ClusterNotFoundResponseCode::InternalServerError,
        }
        .into(),
        timeout: Some(rule.timeout.unwrap_or_default().into()),
        retry_policy: retry_policy(&rule.retry),
        request_mirror_policies: rule.mirrors.iter().map(mirror).collect(),
        ..RouteAction::default()
    };
    if let Some(rewrite) = &rule.rewrite {
        action.host_rewrite = rewrite.hostname.clone().map(HostRewriteSpecifier::Literal);
        match rewrite.path.as_ref().map(|change| rewrite::new_path(change, &matching.path)) {
            Some(NewPath::Prefix(prefix)) => action.prefix_rewrite = prefix,
            Some(NewPath::Regex(regex)) => action.regex_rewrite = Some(regex),
            None => {}
        }
    }
    action
}

fn weight(target: &Target) -> ClusterWeight {
    let name = target.backend.as_ref().map_or_else(|| NOTHING.to_owned(), PortName::to_string);
    ClusterWeight {
        request_headers_to_add: added(&target.request),
        request_headers_to_remove: target.request.remove.clone(),
        response_headers_to_add: added(&target.response),
        response_headers_to_remove: target.response.remove.clone(),
        host_rewrite: target.hostname.clone().map(WeightHostRewrite::Literal),
        ..ClusterWeight::new(name, target.weight)
    }
}

fn mirror(mirror: &Mirror) -> RequestMirrorPolicy {
    RequestMirrorPolicy {
        cluster: mirror.backend.to_string(),
        runtime_fraction: Some(RuntimeFractionalPercent::new(mirror.parts_per_million, Denominator::Million)),
        disable_shadow_host_suffix_append: true,
    }
}

fn retry_policy(retry: &Retry) -> Option<RetryPolicy> {
    if retry.attempts == 0 && retry.attempt_timeout.is_none() {
        return None;
    }
    let mut retry_on = RETRY_ON.to_owned();
    if !retry.codes.is_empty() {
        retry_on.push_str(",retriable-status-codes");
    }
    Some(RetryPolicy {
        retry_on,
        num_retries: Some(retry.attempts),
        per_try_timeout: retry.attempt_timeout.map(Into::into),
        retry_host_predicate: vec![RetryHostPredicate::previous_hosts()],
        host_selection_retry_max_attempts: OTHER_HOST_ATTEMPTS,
        retriable_status_codes: retry.codes.clone(),
        retry_back_off: retry
            .backoff
            .map(|backoff| RetryBackOff { base_interval: Some(backoff.into()), max_interval: None }),
    })
}

/// Headers to add and set. Envoy replaces `%NAME%` in values, so that a `%` is written twice.
fn added(changes: &HeaderChanges) -> Vec<HeaderValueOption> {
    let header = |(name, value): &(String, String), action| {
        HeaderValueOption::new(name.as_str(), value.replace('%', "%%"), action)
    };
    let set = changes.set.iter().map(|pair| header(pair, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = changes.add.iter().map(|pair| header(pair, HeaderAppendAction::AppendIfExistsOrAdd));
    set.chain(add).collect()
}
