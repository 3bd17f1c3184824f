//! `envoy.config.route.v3`: which request goes where, and what is changed on the way.

use crate::kind::Kind;
use crate::resource::Resource;
use crate::resources::core::{
    Any, DataSource, Duration, HeaderValueOption, RegexMatchAndSubstitute, RegexMatcher, RuntimeFractionalPercent,
    StringMatcher, Typed,
};
use std::collections::BTreeSet;

#[derive(Clone, PartialEq, prost::Message)]
pub struct RouteConfiguration {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub virtual_hosts: Vec<VirtualHost>,
    #[prost(message, repeated, tag = "4")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub response_headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub request_headers_to_add: Vec<HeaderValueOption>,
    /// Whether a route is refused that names a cluster which is not there. False by default with RDS.
    #[prost(message, optional, tag = "7")]
    pub validate_clusters: Option<bool>,
    #[prost(string, repeated, tag = "8")]
    pub request_headers_to_remove: Vec<String>,
    #[prost(bool, tag = "14")]
    pub ignore_port_in_host_matching: bool,
}

/// The routes of some hosts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VirtualHost {
    #[prost(string, tag = "1")]
    pub name: String,
    /// `*`, `*.suffix`, `prefix.*` or a whole name; a domain must be in one virtual host alone.
    #[prost(string, repeated, tag = "2")]
    pub domains: Vec<String>,
    /// The first one that matches counts.
    #[prost(message, repeated, tag = "3")]
    pub routes: Vec<Route>,
    #[prost(message, repeated, tag = "7")]
    pub request_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "10")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "11")]
    pub response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "13")]
    pub request_headers_to_remove: Vec<String>,
    #[prost(bool, tag = "14")]
    pub include_request_attempt_count: bool,
    #[prost(message, optional, tag = "16")]
    pub retry_policy: Option<RetryPolicy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Route {
    #[prost(message, optional, tag = "1")]
    pub r#match: Option<RouteMatch>,
    #[prost(oneof = "Action", tags = "2, 3, 7")]
    pub action: Option<Action>,
    #[prost(message, repeated, tag = "9")]
    pub request_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "10")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "11")]
    pub response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "12")]
    pub request_headers_to_remove: Vec<String>,
    #[prost(string, tag = "14")]
    pub name: String,
    #[prost(string, tag = "19")]
    pub stat_prefix: String,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Action {
    #[prost(message, tag = "2")]
    Route(Box<RouteAction>),
    #[prost(message, tag = "3")]
    Redirect(RedirectAction),
    #[prost(message, tag = "7")]
    DirectResponse(DirectResponseAction),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RouteMatch {
    /// Required.
    #[prost(oneof = "PathSpecifier", tags = "1, 2, 10, 14")]
    pub path: Option<PathSpecifier>,
    /// True by default.
    #[prost(message, optional, tag = "4")]
    pub case_sensitive: Option<bool>,
    /// All must match. The method is the header `:method`.
    #[prost(message, repeated, tag = "6")]
    pub headers: Vec<HeaderMatcher>,
    #[prost(message, repeated, tag = "7")]
    pub query_parameters: Vec<QueryParameterMatcher>,
    #[prost(message, optional, tag = "9")]
    pub runtime_fraction: Option<RuntimeFractionalPercent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PathSpecifier {
    /// A prefix of the path's characters, not of its elements.
    #[prost(string, tag = "1")]
    Prefix(String),
    /// The whole path, without the query.
    #[prost(string, tag = "2")]
    Path(String),
    /// Matches the whole path, without the query.
    #[prost(message, tag = "10")]
    SafeRegex(RegexMatcher),
    /// A prefix of the path's elements: `/a` matches `/a` and `/a/b`. Without a slash at its end, and not `/`.
    #[prost(string, tag = "14")]
    PathSeparatedPrefix(String),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMatcher {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(oneof = "HeaderMatch", tags = "7, 13")]
    pub matches: Option<HeaderMatch>,
    #[prost(bool, tag = "8")]
    pub invert_match: bool,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HeaderMatch {
    #[prost(bool, tag = "7")]
    Present(bool),
    #[prost(message, tag = "13")]
    String(StringMatcher),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct QueryParameterMatcher {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(oneof = "QueryParameterMatch", tags = "5, 6")]
    pub matches: Option<QueryParameterMatch>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum QueryParameterMatch {
    #[prost(message, tag = "5")]
    String(StringMatcher),
    #[prost(bool, tag = "6")]
    Present(bool),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RouteAction {
    #[prost(oneof = "ClusterSpecifier", tags = "1, 2, 3")]
    pub cluster: Option<ClusterSpecifier>,
    /// Takes the place of the prefix or path that matched.
    #[prost(string, tag = "5")]
    pub prefix_rewrite: String,
    /// 15 s by default, over all tries; 0 is none.
    #[prost(message, optional, tag = "8")]
    pub timeout: Option<Duration>,
    #[prost(message, optional, tag = "9")]
    pub retry_policy: Option<RetryPolicy>,
    #[prost(enumeration = "ClusterNotFoundResponseCode", tag = "20")]
    pub cluster_not_found_response_code: i32,
    #[prost(message, optional, tag = "24")]
    pub idle_timeout: Option<Duration>,
    #[prost(message, repeated, tag = "25")]
    pub upgrade_configs: Vec<RouteUpgradeConfig>,
    #[prost(message, repeated, tag = "30")]
    pub request_mirror_policies: Vec<RequestMirrorPolicy>,
    #[prost(message, optional, tag = "32")]
    pub regex_rewrite: Option<RegexMatchAndSubstitute>,
    #[prost(oneof = "HostRewriteSpecifier", tags = "6, 7, 29")]
    pub host_rewrite: Option<HostRewriteSpecifier>,
    #[prost(message, optional, tag = "36")]
    pub max_stream_duration: Option<MaxStreamDuration>,
    #[prost(bool, tag = "38")]
    pub append_x_forwarded_host: bool,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ClusterSpecifier {
    #[prost(string, tag = "1")]
    Cluster(String),
    /// The name of the cluster is in this header.
    #[prost(string, tag = "2")]
    ClusterHeader(String),
    #[prost(message, tag = "3")]
    WeightedClusters(WeightedCluster),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum ClusterNotFoundResponseCode {
    ServiceUnavailable = 0,
    NotFound = 1,
    InternalServerError = 2,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HostRewriteSpecifier {
    #[prost(string, tag = "6")]
    Literal(String),
    /// The endpoint's hostname.
    #[prost(message, tag = "7")]
    Auto(bool),
    #[prost(string, tag = "29")]
    Header(String),
}

/// Clusters that get a share each. Envoy refuses it if the sum of weights is 0.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WeightedCluster {
    #[prost(message, repeated, tag = "1")]
    pub clusters: Vec<ClusterWeight>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterWeight {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Required, or it counts as 0.
    #[prost(message, optional, tag = "2")]
    pub weight: Option<u32>,
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "5")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "6")]
    pub response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "9")]
    pub request_headers_to_remove: Vec<String>,
    /// In a oneof, so it is on the wire even if it is empty.
    #[prost(oneof = "WeightHostRewrite", tags = "11")]
    pub host_rewrite: Option<WeightHostRewrite>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum WeightHostRewrite {
    #[prost(string, tag = "11")]
    Literal(String),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RetryPolicy {
    /// Conditions with commas between them, for example `connect-failure,refused-stream`.
    #[prost(string, tag = "1")]
    pub retry_on: String,
    /// 1 by default.
    #[prost(message, optional, tag = "2")]
    pub num_retries: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub per_try_timeout: Option<Duration>,
    #[prost(message, repeated, tag = "5")]
    pub retry_host_predicate: Vec<RetryHostPredicate>,
    /// How often another host is looked for.
    #[prost(int64, tag = "6")]
    pub host_selection_retry_max_attempts: i64,
    #[prost(uint32, repeated, tag = "7")]
    pub retriable_status_codes: Vec<u32>,
    #[prost(message, optional, tag = "8")]
    pub retry_back_off: Option<RetryBackOff>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RetryHostPredicate {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub typed_config: Option<Any>,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct RetryBackOff {
    /// Required.
    #[prost(message, optional, tag = "1")]
    pub base_interval: Option<Duration>,
    #[prost(message, optional, tag = "2")]
    pub max_interval: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RouteUpgradeConfig {
    #[prost(string, tag = "1")]
    pub upgrade_type: String,
    #[prost(message, optional, tag = "2")]
    pub enabled: Option<bool>,
}

/// A cluster that gets a copy of requests, whose answers are dropped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestMirrorPolicy {
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// All requests by default.
    #[prost(message, optional, tag = "3")]
    pub runtime_fraction: Option<RuntimeFractionalPercent>,
    /// Whether the host of copies is left without the suffix `-shadow`.
    #[prost(bool, tag = "6")]
    pub disable_shadow_host_suffix_append: bool,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct MaxStreamDuration {
    #[prost(message, optional, tag = "1")]
    pub max_stream_duration: Option<Duration>,
    #[prost(message, optional, tag = "2")]
    pub grpc_timeout_header_max: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RedirectAction {
    #[prost(string, tag = "1")]
    pub host_redirect: String,
    #[prost(oneof = "PathRewriteSpecifier", tags = "2, 5, 9")]
    pub path: Option<PathRewriteSpecifier>,
    #[prost(enumeration = "RedirectResponseCode", tag = "3")]
    pub response_code: i32,
    #[prost(oneof = "SchemeRewriteSpecifier", tags = "4, 7")]
    pub scheme: Option<SchemeRewriteSpecifier>,
    #[prost(bool, tag = "6")]
    pub strip_query: bool,
    #[prost(uint32, tag = "8")]
    pub port_redirect: u32,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PathRewriteSpecifier {
    #[prost(string, tag = "2")]
    Path(String),
    #[prost(string, tag = "5")]
    Prefix(String),
    #[prost(message, tag = "9")]
    Regex(RegexMatchAndSubstitute),
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum SchemeRewriteSpecifier {
    #[prost(bool, tag = "4")]
    Https(bool),
    #[prost(string, tag = "7")]
    Scheme(String),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum RedirectResponseCode {
    MovedPermanently = 0,
    Found = 1,
    SeeOther = 2,
    TemporaryRedirect = 3,
    PermanentRedirect = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectResponseAction {
    #[prost(uint32, tag = "1")]
    pub status: u32,
    #[prost(message, optional, tag = "2")]
    pub body: Option<DataSource>,
}

// === impl RouteConfiguration ===

impl Typed for RouteConfiguration {
    const TYPE_URL: &'static str = Kind::Route.type_url();
}

impl RouteConfiguration {
    /// Every cluster that a request, or a copy of one, may go to.
    #[must_use]
    pub fn clusters(&self) -> BTreeSet<&str> {
        let routes = self.virtual_hosts.iter().flat_map(|host| &host.routes);
        let actions = routes.filter_map(|route| match &route.action {
            Some(Action::Route(action)) => Some(action),
            _ => None,
        });
        let mut clusters = BTreeSet::new();
        for action in actions {
            match &action.cluster {
                Some(ClusterSpecifier::Cluster(name)) => {
                    clusters.insert(name.as_str());
                }
                Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                    clusters.extend(weighted.clusters.iter().map(|cluster| cluster.name.as_str()));
                }
                Some(ClusterSpecifier::ClusterHeader(_)) | None => {}
            }
            clusters.extend(action.request_mirror_policies.iter().map(|policy| policy.cluster.as_str()));
        }
        clusters
    }

    /// The resource, which refers to its clusters.
    #[must_use]
    pub fn to_resource(&self) -> Resource {
        Resource::new(Kind::Route, self.name.as_str(), self).needing(Kind::Cluster, self.clusters())
    }
}

// === impl RouteMatch ===

impl RouteMatch {
    #[must_use]
    pub fn new(path: PathSpecifier) -> RouteMatch {
        RouteMatch { path: Some(path), ..RouteMatch::default() }
    }
}

// === impl HeaderMatcher ===

impl HeaderMatcher {
    #[must_use]
    pub fn new(name: impl Into<String>, matcher: StringMatcher) -> HeaderMatcher {
        HeaderMatcher { name: name.into(), matches: Some(HeaderMatch::String(matcher)), invert_match: false }
    }

    /// Matches the method of a request.
    #[must_use]
    pub fn method(method: impl Into<String>) -> HeaderMatcher {
        HeaderMatcher::new(":method", StringMatcher::exact(method))
    }
}

// === impl ClusterWeight ===

impl ClusterWeight {
    #[must_use]
    pub fn new(name: impl Into<String>, weight: u32) -> ClusterWeight {
        ClusterWeight { name: name.into(), weight: Some(weight), ..ClusterWeight::default() }
    }
}

// === impl RetryHostPredicate ===

impl RetryHostPredicate {
    /// A retry goes to a host that was not tried yet.
    #[must_use]
    pub fn previous_hosts() -> RetryHostPredicate {
        let type_url = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
        RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            typed_config: Some(Any { type_url: type_url.to_owned(), value: bytes::Bytes::new() }),
        }
    }
}
