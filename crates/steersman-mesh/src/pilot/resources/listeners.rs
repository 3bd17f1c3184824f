//! Listeners: where programs reach the proxy.
//!
//! A listener is at a Service's cluster IP. Connections to it stay in the Pod if the Pod's network says that the range of cluster IPs is
//! local (`ip route add local 10.96.0.0/16 dev lo`): then programs notice nothing, and no packet is rewritten.

use std::net::SocketAddr;
use std::time::Duration;

use steersman_xds::Resource;
use steersman_xds::resources::filters::{HttpFilter, ServerHeaderTransformation, UpgradeConfig};
use steersman_xds::resources::listener::{Filter, TrafficDirection};
use steersman_xds::resources::{Address, HttpConnectionManager, Listener, Router, TcpProxy};

use crate::pilot::resources::Filters;
use crate::pilot::world::PortName;

/// The name of the listener of the explicit proxy, and of its routes.
pub(crate) const EXPLICIT: &str = "explicit";

pub(super) fn listener(address: SocketAddr, port: &PortName, filters: Filters) -> Resource {
    let name = port.to_string();
    let filter = match filters {
        Filters::Http => Filter::http(&manager(&name)),
        Filters::Tcp => Filter::tcp(&TcpProxy {
            // A connection that is silent is none of the proxy's business.
            idle_timeout: Some(Duration::ZERO.into()),
            ..TcpProxy::to_cluster(name.as_str(), name.as_str())
        }),
    };
    let listener = Listener {
        // The address is that of a Service, which the network of the Pod may come to have later than the proxy is told of it.
        freebind: Some(true),
        traffic_direction: TrafficDirection::Outbound.into(),
        ..Listener::new(address.to_string(), Address::tcp(address.ip(), address.port()), vec![filter])
    };
    listener.to_resource().made_from(format!("Service {}", port.service))
}

pub(super) fn explicit(address: SocketAddr) -> Resource {
    let filter = Filter::http(&manager(EXPLICIT));
    let listener = Listener {
        traffic_direction: TrafficDirection::Outbound.into(),
        ..Listener::new(EXPLICIT, Address::tcp(address.ip(), address.port()), vec![filter])
    };
    listener.to_resource().made_from("the option of the explicit proxy")
}

/// A manager that changes as little as possible of what passes.
fn manager(routes: &str) -> HttpConnectionManager {
    HttpConnectionManager {
        http_filters: vec![HttpFilter::router(&Router { suppress_envoy_headers: true, ..Router::default() })],
        // Paths that mean the same match the same routes.
        normalize_path: Some(true),
        server_header_transformation: ServerHeaderTransformation::PassThrough.into(),
        skip_xff_append: true,
        // A stream may be silent as long as it likes.
        stream_idle_timeout: Some(Duration::ZERO.into()),
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".to_owned(), enabled: None }],
        ..HttpConnectionManager::routed_by(routes, routes)
    }
}
