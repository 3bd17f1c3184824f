//! `envoy.config.cluster.v3`: where requests are sent, and how.

use crate::kind::Kind;
use crate::resource::Resource;
use crate::resources::core::{
    Any, ConfigSource, Duration, Empty, Http2ProtocolOptions, HttpProtocolOptions, Percent, TransportSocket, Typed,
};
use crate::resources::endpoints::ClusterLoadAssignment;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Cluster {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(oneof = "DiscoverySpecifier", tags = "2")]
    pub discovery: Option<DiscoverySpecifier>,
    #[prost(message, optional, tag = "3")]
    pub eds_cluster_config: Option<EdsClusterConfig>,
    /// 5 s by default.
    #[prost(message, optional, tag = "4")]
    pub connect_timeout: Option<Duration>,
    #[prost(enumeration = "LbPolicy", tag = "6")]
    pub lb_policy: i32,
    #[prost(message, optional, tag = "10")]
    pub circuit_breakers: Option<CircuitBreakers>,
    #[prost(message, optional, tag = "24")]
    pub transport_socket: Option<TransportSocket>,
    #[prost(message, optional, tag = "27")]
    pub common_lb_config: Option<CommonLbConfig>,
    /// The name in statistics, if it differs.
    #[prost(string, tag = "28")]
    pub alt_stat_name: String,
    /// The endpoints of clusters that are not of type EDS.
    #[prost(message, optional, tag = "33")]
    pub load_assignment: Option<ClusterLoadAssignment>,
    /// Has [`UpstreamHttp`] under its type's name.
    #[prost(btree_map = "string, message", tag = "36")]
    pub typed_extension_protocol_options: BTreeMap<String, Any>,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Oneof)]
pub enum DiscoverySpecifier {
    #[prost(enumeration = "DiscoveryType", tag = "2")]
    Type(i32),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum DiscoveryType {
    Static = 0,
    StrictDns = 1,
    LogicalDns = 2,
    Eds = 3,
    OriginalDst = 4,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum LbPolicy {
    RoundRobin = 0,
    LeastRequest = 1,
    RingHash = 2,
    Random = 3,
    Maglev = 5,
    ClusterProvided = 6,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct EdsClusterConfig {
    #[prost(message, optional, tag = "1")]
    pub eds_config: Option<ConfigSource>,
    /// The name of the endpoints, if it is not the cluster's.
    #[prost(string, tag = "2")]
    pub service_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonLbConfig {
    /// Below this share of healthy endpoints all are used. 50 by default.
    #[prost(message, optional, tag = "1")]
    pub healthy_panic_threshold: Option<Percent>,
    /// How long changes of endpoints are gathered. 1 s by default; membership is never delayed.
    #[prost(message, optional, tag = "4")]
    pub update_merge_window: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CircuitBreakers {
    #[prost(message, repeated, tag = "1")]
    pub thresholds: Vec<Thresholds>,
}

/// Limits of what is under way at a time. The defaults are 1,024, and 3 for retries.
#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct Thresholds {
    #[prost(enumeration = "RoutingPriority", tag = "1")]
    pub priority: i32,
    #[prost(message, optional, tag = "2")]
    pub max_connections: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub max_pending_requests: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub max_requests: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub max_retries: Option<u32>,
    #[prost(message, optional, tag = "7")]
    pub max_connection_pools: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum RoutingPriority {
    Default = 0,
    High = 1,
}

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`: which HTTP is spoken to a cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpstreamHttp {
    #[prost(message, optional, tag = "1")]
    pub common_http_protocol_options: Option<HttpProtocolOptions>,
    #[prost(oneof = "UpstreamProtocol", tags = "3, 4")]
    pub protocol: Option<UpstreamProtocol>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum UpstreamProtocol {
    #[prost(message, tag = "3")]
    Explicit(ExplicitHttpConfig),
    /// The version in which the request came.
    #[prost(message, tag = "4")]
    UseDownstream(DownstreamHttpConfig),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExplicitHttpConfig {
    #[prost(oneof = "ExplicitProtocol", tags = "1, 2")]
    pub protocol: Option<ExplicitProtocol>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ExplicitProtocol {
    #[prost(message, tag = "1")]
    Http1(Empty),
    #[prost(message, tag = "2")]
    Http2(Http2ProtocolOptions),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DownstreamHttpConfig {
    #[prost(message, optional, tag = "1")]
    pub http1: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub http2: Option<Http2ProtocolOptions>,
}

// === impl Cluster ===

impl Typed for Cluster {
    const TYPE_URL: &'static str = Kind::Cluster.type_url();
}

impl Cluster {
    /// A cluster whose endpoints come over ADS under its own name.
    #[must_use]
    pub fn eds(name: impl Into<String>) -> Cluster {
        Cluster {
            name: name.into(),
            discovery: Some(DiscoverySpecifier::Type(DiscoveryType::Eds.into())),
            eds_cluster_config: Some(EdsClusterConfig {
                eds_config: Some(ConfigSource::ads()),
                service_name: String::new(),
            }),
            ..Cluster::default()
        }
    }

    /// Sets which HTTP is spoken to the cluster. HTTP/1.1 is the default.
    #[must_use]
    pub fn speaking(mut self, http: &UpstreamHttp) -> Cluster {
        let name = UpstreamHttp::TYPE_URL.trim_start_matches("type.googleapis.com/");
        self.typed_extension_protocol_options.insert(name.to_owned(), Any::of(http));
        self
    }

    /// The name of the endpoints that come over ADS.
    #[must_use]
    pub fn endpoints(&self) -> Option<&str> {
        let eds = self.eds_cluster_config.as_ref()?;
        let is_eds = self.discovery == Some(DiscoverySpecifier::Type(DiscoveryType::Eds.into()));
        let name = if eds.service_name.is_empty() { &self.name } else { &eds.service_name };
        is_eds.then_some(name)
    }

    /// The resource, which refers to its endpoints.
    #[must_use]
    pub fn to_resource(&self) -> Resource {
        Resource::new(Kind::Cluster, self.name.as_str(), self).needing(Kind::Endpoints, self.endpoints())
    }
}

// === impl UpstreamHttp ===

impl Typed for UpstreamHttp {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
}

impl UpstreamHttp {
    /// HTTP/2 without asking, as gRPC needs it.
    #[must_use]
    pub fn http2() -> UpstreamHttp {
        let protocol = Some(ExplicitProtocol::Http2(Http2ProtocolOptions::default()));
        let protocol = Some(UpstreamProtocol::Explicit(ExplicitHttpConfig { protocol }));
        UpstreamHttp { common_http_protocol_options: None, protocol }
    }

    /// The version in which a request came.
    #[must_use]
    pub fn as_downstream() -> UpstreamHttp {
        let config = DownstreamHttpConfig { http1: Some(Empty {}), http2: Some(Http2ProtocolOptions::default()) };
        UpstreamHttp { common_http_protocol_options: None, protocol: Some(UpstreamProtocol::UseDownstream(config)) }
    }
}

// === impl CircuitBreakers ===

impl CircuitBreakers {
    /// Limits that nothing reaches.
    #[must_use]
    pub fn unlimited() -> CircuitBreakers {
        let most = Some(u32::MAX);
        CircuitBreakers {
            thresholds: vec![Thresholds {
                priority: RoutingPriority::Default.into(),
                max_connections: most,
                max_pending_requests: most,
                max_requests: most,
                max_retries: most,
                max_connection_pools: None,
            }],
        }
    }
}
