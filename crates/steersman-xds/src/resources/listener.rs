//! `envoy.config.listener.v3`: a socket, and the filters that its connections pass.

use crate::kind::Kind;
use crate::resource::Resource;
use crate::resources::core::{Address, Any, CidrRange, Duration, TransportSocket, Typed};
use crate::resources::filters::{HttpConnectionManager, RouteSpecifier, TcpProxy};
use std::collections::BTreeSet;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Listener {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub address: Option<Address>,
    #[prost(message, repeated, tag = "3")]
    pub filter_chains: Vec<FilterChain>,
    #[prost(message, repeated, tag = "9")]
    pub listener_filters: Vec<ListenerFilter>,
    /// Whether it can listen on an address that the machine does not have.
    #[prost(message, optional, tag = "11")]
    pub freebind: Option<bool>,
    /// How long listener filters may take, 15 s by default; 0 is for ever.
    #[prost(message, optional, tag = "15")]
    pub listener_filters_timeout: Option<Duration>,
    #[prost(enumeration = "TrafficDirection", tag = "16")]
    pub traffic_direction: i32,
    #[prost(bool, tag = "17")]
    pub continue_on_listener_filters_timeout: bool,
    /// For connections that no chain matches.
    #[prost(message, optional, tag = "25")]
    pub default_filter_chain: Option<FilterChain>,
    /// False for a listener to which only other listeners hand connections.
    #[prost(message, optional, tag = "26")]
    pub bind_to_port: Option<bool>,
    #[prost(string, tag = "28")]
    pub stat_prefix: String,
    /// True by default: a socket for each worker.
    #[prost(message, optional, tag = "29")]
    pub enable_reuse_port: Option<bool>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum TrafficDirection {
    Unspecified = 0,
    Inbound = 1,
    Outbound = 2,
}

/// The filters of the connections that match.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FilterChain {
    #[prost(message, optional, tag = "1")]
    pub filter_chain_match: Option<FilterChainMatch>,
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<Filter>,
    #[prost(message, optional, tag = "6")]
    pub transport_socket: Option<TransportSocket>,
    #[prost(string, tag = "7")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FilterChainMatch {
    #[prost(message, repeated, tag = "3")]
    pub prefix_ranges: Vec<CidrRange>,
    #[prost(message, optional, tag = "8")]
    pub destination_port: Option<u32>,
    /// `raw_buffer` or `tls`.
    #[prost(string, tag = "9")]
    pub transport_protocol: String,
    #[prost(string, repeated, tag = "10")]
    pub application_protocols: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub server_names: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Filter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    pub typed_config: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListenerFilter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub typed_config: Option<Any>,
}

// === impl Listener ===

impl Typed for Listener {
    const TYPE_URL: &'static str = Kind::Listener.type_url();
}

impl Listener {
    /// A listener with one chain of filters.
    #[must_use]
    pub fn new(name: impl Into<String>, address: Address, filters: Vec<Filter>) -> Listener {
        Listener {
            name: name.into(),
            address: Some(address),
            filter_chains: vec![FilterChain { filters, ..FilterChain::default() }],
            ..Listener::default()
        }
    }

    /// The resource, which refers to the clusters and routes of the filters that are known here.
    #[must_use]
    pub fn to_resource(&self) -> Resource {
        let (mut clusters, mut routes) = (BTreeSet::new(), BTreeSet::new());
        let chains = self.filter_chains.iter().chain(&self.default_filter_chain);
        for config in chains.flat_map(|chain| &chain.filters).filter_map(|filter| filter.typed_config.as_ref()) {
            if let Some(proxy) = config.read::<TcpProxy>() {
                clusters.extend(proxy.clusters().map(str::to_owned));
            }
            match config.read::<HttpConnectionManager>().and_then(|manager| manager.route_specifier) {
                Some(RouteSpecifier::Rds(rds)) => {
                    routes.insert(rds.route_config_name);
                }
                Some(RouteSpecifier::Inline(route)) => clusters.extend(route.clusters().into_iter().map(str::to_owned)),
                None => {}
            }
        }
        Resource::new(Kind::Listener, self.name.as_str(), self)
            .needing(Kind::Cluster, clusters)
            .needing(Kind::Route, routes)
    }
}

// === impl Filter ===

impl Filter {
    #[must_use]
    pub fn http(manager: &HttpConnectionManager) -> Filter {
        Filter { name: HttpConnectionManager::NAME.to_owned(), typed_config: Some(Any::of(manager)) }
    }

    #[must_use]
    pub fn tcp(proxy: &TcpProxy) -> Filter {
        Filter { name: TcpProxy::NAME.to_owned(), typed_config: Some(Any::of(proxy)) }
    }
}
