//! The world as the mesh sees it: where requests come in, where they go, and what becomes of each route. A pure function of the
//! objects.
//!
//! A Service has two sides. Its *frontend* is its cluster IP, to which routes are attached; its *backend* is its endpoints, to
//! which routes send requests, past the routes that these Services have themselves.

mod attach;
mod draft;
mod duration;
mod endpoints;
mod expression;
mod filters;
mod grpc_route;
mod http_route;
mod names;
mod references;
mod route;
mod service;
mod values;
mod verdict;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::{GRPCRoute, HTTPRoute, ReferenceGrant};
use crate::pilot::world::attach::Tables;
use crate::pilot::world::endpoints::Slices;
use crate::pilot::world::references::{Grants, Resolver};
use crate::pilot::world::service::{Address, ServiceInfo};

pub use crate::pilot::world::endpoints::{Backend, Condition};
pub use crate::pilot::world::names::{PortName, RouteKind, RouteName, ServiceName};
pub use crate::pilot::world::route::{
    Action, Entry, HeaderChanges, Match, Mirror, PathChange, PathMatch, Redirect, Retry, Rewrite, Rule, Table, Target,
    TextMatch,
};
pub use crate::pilot::world::service::Protocol;
pub use crate::pilot::world::verdict::{Attachment, Finding, Holds, RouteVerdict, Verdict};

pub(crate) use crate::pilot::world::attach::error_status;
pub(crate) use crate::pilot::world::values::leading;
pub(crate) use crate::pilot::world::verdict::{ACCEPTED, PARTIALLY_INVALID, RESOLVED_REFS};

/// The objects that the mesh is made of, in any order.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// All Services.
    pub services: Vec<Arc<Service>>,
    /// Their endpoints.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// All HTTPRoutes, whatever their parents are.
    pub http_routes: Vec<Arc<HTTPRoute>>,
    /// All GRPCRoutes.
    pub grpc_routes: Vec<Arc<GRPCRoute>>,
    /// The permissions of routes to refer to other namespaces.
    pub grants: Vec<Arc<ReferenceGrant>>,
}

/// The world as the mesh sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// The Services with a cluster IP.
    pub frontends: BTreeMap<ServiceName, Arc<Frontend>>,
    /// The endpoints behind every TCP port of every Service that has endpoints.
    pub backends: BTreeMap<PortName, Arc<Backend>>,
    /// The verdict on each route with a Service among its parents.
    pub verdicts: BTreeMap<RouteName, RouteVerdict>,
}

/// Where requests to a Service come in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frontend {
    /// The Service.
    pub service: ServiceName,
    /// Its cluster IPs, at least one.
    pub addresses: Vec<IpAddr>,
    /// Its TCP ports.
    pub ports: Vec<FrontendPort>,
}

/// A port of a frontend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FrontendPort {
    /// The port.
    pub name: PortName,
    /// The protocol that clients speak.
    pub protocol: Protocol,
    /// The table for clients without one of their own.
    pub producer: Arc<Table>,
    /// The tables for the clients of a namespace.
    pub consumers: BTreeMap<String, Arc<Table>>,
}

// === impl World ===

impl World {
    /// The world that the objects make. Their order does not matter.
    pub fn of(objects: &Objects) -> World {
        let services: BTreeMap<ServiceName, ServiceInfo> = objects
            .services
            .iter()
            .filter_map(|service| ServiceInfo::of(service))
            .map(|service| (service.name.clone(), service))
            .collect();
        let grants = Grants::of(objects.grants.iter().map(|grant| &**grant));
        let mut drafts: Vec<_> = objects.http_routes.iter().filter_map(|route| http_route::draft(route)).collect();
        drafts.extend(objects.grpc_routes.iter().filter_map(|route| grpc_route::draft(route)));
        let mut attached = attach::attach(&drafts, Resolver { services: &services, grants: &grants });

        let slices = Slices::of(objects.slices.iter().map(|slice| &**slice));
        let mut world = World::default();
        for service in services.values() {
            if let Address::Cluster(addresses) = &service.address {
                let frontend = frontend(service, addresses, &mut attached.tables);
                world.frontends.insert(service.name.clone(), Arc::new(frontend));
            }
            if service.address != Address::External {
                let backends = endpoints::backends(service, &slices).into_iter();
                world.backends.extend(backends.map(|backend| (backend.name.clone(), Arc::new(backend))));
            }
        }
        world.verdicts = attached.verdicts;
        world
    }
}

fn frontend(service: &ServiceInfo, addresses: &[IpAddr], tables: &mut BTreeMap<PortName, Tables>) -> Frontend {
    let port = |port: &service::ServicePort| {
        let name = service.name.port(port.port);
        let Tables { producer, consumers } = tables.remove(&name).unwrap_or_default();
        FrontendPort {
            name,
            protocol: port.protocol,
            producer: Arc::new(producer.unwrap_or(Table::Forward)),
            consumers: consumers.into_iter().map(|(namespace, table)| (namespace, Arc::new(table))).collect(),
        }
    };
    Frontend {
        service: service.name.clone(),
        addresses: addresses.to_vec(),
        ports: service.ports.iter().map(port).collect(),
    }
}

// === impl FrontendPort ===

impl FrontendPort {
    /// The tables for the clients of a namespace.
    pub fn table_for(&self, namespace: Option<&str>) -> &Arc<Table> {
        namespace.and_then(|namespace| self.consumers.get(namespace)).unwrap_or(&self.producer)
    }

    /// Whether requests of clients of a namespace are parsed as HTTP: the port is declared as HTTP, or they have a route. Otherwise
    /// bytes are passed on. A consumer route says nothing of the bytes of others: else any namespace could break their connections.
    pub fn is_http(&self, namespace: Option<&str>) -> bool {
        match self.protocol {
            Protocol::Http1 | Protocol::Http2 => true,
            Protocol::Tcp | Protocol::Tls => false,
            Protocol::Undeclared => **self.table_for(namespace) != Table::Forward,
        }
    }
}
