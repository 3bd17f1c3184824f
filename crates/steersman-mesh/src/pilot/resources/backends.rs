//! Clusters and their endpoints.

use std::time::Duration;

use steersman_xds::Resource;
use steersman_xds::resources::cluster::{CircuitBreakers, CommonLbConfig, LbPolicy, UpstreamHttp};
use steersman_xds::resources::core::Percent;
use steersman_xds::resources::endpoints::{HealthStatus, LbEndpoint};
use steersman_xds::resources::{Cluster, ClusterLoadAssignment};

use crate::pilot::world::{Backend, Condition, PortName, Protocol};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster of a port of a Service. It says nothing that changes but the protocol: a changed cluster has to become ready anew.
pub(super) fn cluster(name: &PortName, protocol: Protocol) -> Resource {
    let mut cluster = Cluster {
        lb_policy: LbPolicy::LeastRequest.into(),
        connect_timeout: Some(CONNECT_TIMEOUT.into()),
        // A limit that the users have not set would refuse requests; by default Envoy makes three retries at a time.
        circuit_breakers: Some(CircuitBreakers::unlimited()),
        // By default, endpoints that are ending get new requests as soon as half of them are.
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: 0.0 }),
            update_merge_window: None,
        }),
        ..Cluster::eds(name.to_string())
    };
    match protocol {
        Protocol::Http1 | Protocol::Tcp | Protocol::Tls => {}
        Protocol::Http2 => cluster = cluster.speaking(&UpstreamHttp::http2()),
        Protocol::Undeclared => cluster = cluster.speaking(&UpstreamHttp::as_downstream()),
    }
    cluster.to_resource().made_from(format!("Service {}", name.service))
}

pub(super) fn endpoints(backend: &Backend) -> Resource {
    let endpoint = |(address, condition): (&std::net::SocketAddr, &Condition)| {
        let health = match condition {
            Condition::Draining => HealthStatus::Draining,
            Condition::Ready => HealthStatus::Healthy,
        };
        LbEndpoint::new(*address, health)
    };
    let endpoints = backend.endpoints.iter().map(endpoint).collect();
    let assignment = ClusterLoadAssignment::new(backend.name.to_string(), endpoints);
    assignment.to_resource().made_from(format!("Service {}", backend.name.service))
}
