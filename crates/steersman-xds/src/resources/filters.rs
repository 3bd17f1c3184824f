//! Filters of listeners, and their extensions: the HTTP connection manager with its router, and the TCP proxy.

use crate::resources::core::{Any, ConfigSource, Duration, Http2ProtocolOptions, HttpProtocolOptions, Typed};
use crate::resources::route::RouteConfiguration;

/// `envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpConnectionManager {
    #[prost(enumeration = "CodecType", tag = "1")]
    pub codec_type: i32,
    /// Required.
    #[prost(string, tag = "2")]
    pub stat_prefix: String,
    #[prost(oneof = "RouteSpecifier", tags = "3, 4")]
    pub route_specifier: Option<RouteSpecifier>,
    /// The router is the last one.
    #[prost(message, repeated, tag = "5")]
    pub http_filters: Vec<HttpFilter>,
    #[prost(message, optional, tag = "9")]
    pub http2_protocol_options: Option<Http2ProtocolOptions>,
    /// False by default. If true, the peer's address is put into `x-forwarded-for`.
    #[prost(message, optional, tag = "14")]
    pub use_remote_address: Option<bool>,
    /// True by default: a request gets an `x-request-id`.
    #[prost(message, optional, tag = "15")]
    pub generate_request_id: Option<bool>,
    #[prost(bool, tag = "21")]
    pub skip_xff_append: bool,
    #[prost(message, repeated, tag = "23")]
    pub upgrade_configs: Vec<UpgradeConfig>,
    /// 5 minutes by default; 0 is none.
    #[prost(message, optional, tag = "24")]
    pub stream_idle_timeout: Option<Duration>,
    #[prost(message, optional, tag = "30")]
    pub normalize_path: Option<bool>,
    #[prost(bool, tag = "32")]
    pub preserve_external_request_id: bool,
    #[prost(enumeration = "ServerHeaderTransformation", tag = "34")]
    pub server_header_transformation: i32,
    #[prost(message, optional, tag = "35")]
    pub common_http_protocol_options: Option<HttpProtocolOptions>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum CodecType {
    /// HTTP/1 and HTTP/2, by what comes.
    Auto = 0,
    Http1 = 1,
    Http2 = 2,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum ServerHeaderTransformation {
    Overwrite = 0,
    AppendIfAbsent = 1,
    PassThrough = 2,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum RouteSpecifier {
    #[prost(message, tag = "3")]
    Rds(Rds),
    #[prost(message, tag = "4")]
    Inline(RouteConfiguration),
}

/// Routes that come as a resource of their own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rds {
    #[prost(message, optional, tag = "1")]
    pub config_source: Option<ConfigSource>,
    #[prost(string, tag = "2")]
    pub route_config_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpFilter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    pub typed_config: Option<Any>,
}

/// A protocol, for example `websocket`, that a connection may change to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpgradeConfig {
    #[prost(string, tag = "1")]
    pub upgrade_type: String,
    #[prost(message, optional, tag = "3")]
    pub enabled: Option<bool>,
}

/// `envoy.extensions.filters.http.router.v3.Router`
#[derive(Clone, PartialEq, prost::Message)]
pub struct Router {
    #[prost(message, optional, tag = "1")]
    pub dynamic_stats: Option<bool>,
    /// Whether `x-envoy-*` headers are left out.
    #[prost(bool, tag = "4")]
    pub suppress_envoy_headers: bool,
}

/// `envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy`
#[derive(Clone, PartialEq, prost::Message)]
pub struct TcpProxy {
    /// Required.
    #[prost(string, tag = "1")]
    pub stat_prefix: String,
    #[prost(oneof = "TcpClusterSpecifier", tags = "2, 10")]
    pub cluster_specifier: Option<TcpClusterSpecifier>,
    #[prost(message, optional, tag = "7")]
    pub max_connect_attempts: Option<u32>,
    /// 1 hour by default; 0 is none.
    #[prost(message, optional, tag = "8")]
    pub idle_timeout: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum TcpClusterSpecifier {
    #[prost(string, tag = "2")]
    Cluster(String),
    #[prost(message, tag = "10")]
    WeightedClusters(TcpWeightedCluster),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TcpWeightedCluster {
    #[prost(message, repeated, tag = "1")]
    pub clusters: Vec<TcpClusterWeight>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TcpClusterWeight {
    #[prost(string, tag = "1")]
    pub name: String,
    /// At least 1.
    #[prost(uint32, tag = "2")]
    pub weight: u32,
}

// === impl HttpConnectionManager ===

impl Typed for HttpConnectionManager {
    const TYPE_URL: &'static str =
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
}

impl HttpConnectionManager {
    /// The name by which Envoy knows the filter.
    pub const NAME: &'static str = "envoy.filters.network.http_connection_manager";

    /// Routes come over ADS, and the router is the only filter.
    #[must_use]
    pub fn routed_by(route_config_name: impl Into<String>, stat_prefix: impl Into<String>) -> HttpConnectionManager {
        let rds = Rds { config_source: Some(ConfigSource::ads()), route_config_name: route_config_name.into() };
        HttpConnectionManager {
            stat_prefix: stat_prefix.into(),
            route_specifier: Some(RouteSpecifier::Rds(rds)),
            http_filters: vec![HttpFilter::router(&Router::default())],
            ..HttpConnectionManager::default()
        }
    }
}

// === impl HttpFilter ===

impl HttpFilter {
    #[must_use]
    pub fn router(router: &Router) -> HttpFilter {
        HttpFilter { name: Router::NAME.to_owned(), typed_config: Some(Any::of(router)) }
    }
}

// === impl Router ===

impl Typed for Router {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
}

impl Router {
    /// The name by which Envoy knows the filter.
    pub const NAME: &'static str = "envoy.filters.http.router";
}

// === impl TcpProxy ===

impl Typed for TcpProxy {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
}

impl TcpProxy {
    /// The name by which Envoy knows the filter.
    pub const NAME: &'static str = "envoy.filters.network.tcp_proxy";

    #[must_use]
    pub fn to_cluster(cluster: impl Into<String>, stat_prefix: impl Into<String>) -> TcpProxy {
        TcpProxy {
            stat_prefix: stat_prefix.into(),
            cluster_specifier: Some(TcpClusterSpecifier::Cluster(cluster.into())),
            ..TcpProxy::default()
        }
    }

    /// The clusters to which it sends connections.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match &self.cluster_specifier {
            Some(TcpClusterSpecifier::Cluster(name)) => (Some(name.as_str()), None),
            Some(TcpClusterSpecifier::WeightedClusters(weighted)) => (None, Some(&weighted.clusters)),
            None => (None, None),
        };
        one.into_iter().chain(several.into_iter().flatten().map(|cluster| cluster.name.as_str()))
    }
}
