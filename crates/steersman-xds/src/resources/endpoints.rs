//! `envoy.config.endpoint.v3`: the addresses of a cluster.

use crate::kind::Kind;
use crate::resource::Resource;
use crate::resources::core::{Address, Locality, Typed};
use std::net::SocketAddr;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<LocalityLbEndpoints>,
    #[prost(message, optional, tag = "4")]
    pub policy: Option<Policy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Policy {
    #[prost(message, optional, tag = "3")]
    pub overprovisioning_factor: Option<u32>,
}

/// The endpoints of one place and priority.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<Locality>,
    #[prost(message, repeated, tag = "2")]
    pub lb_endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    pub load_balancing_weight: Option<u32>,
    /// 0 is tried first. Without gaps.
    #[prost(uint32, tag = "5")]
    pub priority: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub endpoint: Option<Endpoint>,
    #[prost(enumeration = "HealthStatus", tag = "2")]
    pub health_status: i32,
    #[prost(message, optional, tag = "4")]
    pub load_balancing_weight: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
    #[prost(string, tag = "3")]
    pub hostname: String,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum HealthStatus {
    /// Counts as healthy.
    Unknown = 0,
    Healthy = 1,
    Unhealthy = 2,
    /// Gets nothing new; what it works on ends well.
    Draining = 3,
    Timeout = 4,
    Degraded = 5,
}

// === impl ClusterLoadAssignment ===

impl Typed for ClusterLoadAssignment {
    const TYPE_URL: &'static str = Kind::Endpoints.type_url();
}

impl ClusterLoadAssignment {
    /// Endpoints without places: one group, or none.
    #[must_use]
    pub fn new(cluster_name: impl Into<String>, endpoints: Vec<LbEndpoint>) -> ClusterLoadAssignment {
        let group = LocalityLbEndpoints { lb_endpoints: endpoints, ..LocalityLbEndpoints::default() };
        let endpoints = if group.lb_endpoints.is_empty() { Vec::new() } else { vec![group] };
        ClusterLoadAssignment { cluster_name: cluster_name.into(), endpoints, policy: None }
    }

    #[must_use]
    pub fn to_resource(&self) -> Resource {
        Resource::new(Kind::Endpoints, self.cluster_name.as_str(), self)
    }
}

// === impl LbEndpoint ===

impl LbEndpoint {
    #[must_use]
    pub fn new(address: SocketAddr, health_status: HealthStatus) -> LbEndpoint {
        let address = Some(Address::tcp(address.ip(), address.port()));
        LbEndpoint {
            endpoint: Some(Endpoint { address, hostname: String::new() }),
            health_status: health_status.into(),
            load_balancing_weight: None,
        }
    }
}
