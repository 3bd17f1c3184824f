//! The resources that Envoy gets of a world, by name, each encoded once.
//!
//! There is one cluster for each port of a Service, named for it and for nothing else, so that a change of weights is one table of
//! routes and never a cluster. A listener is named for its address: if a Service is made anew with the address of another, its
//! listener changes in place. A table of routes has the name of its port, for all clients: which table is meant is a matter of the
//! namespace, so that a first route for a namespace changes no listener of a port that is declared as HTTP.

mod backends;
mod differences;
mod listeners;
mod rewrite;
mod routes;
mod rule;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use steersman_xds::Resource;

use crate::pilot::world::{Backend, Frontend, FrontendPort, PortName, Protocol, Table, World};

pub(crate) use crate::pilot::resources::differences::differences;
pub(crate) use crate::pilot::resources::listeners::EXPLICIT;
pub(crate) use crate::pilot::resources::routes::explicit_routes;

/// How resources are made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Where proxies listen besides, for programs that are told of the proxy (`HTTP_PROXY`). Hosts are names of Services.
    pub explicit_proxy: Option<SocketAddr>,
    /// The domain of the cluster, for the names of Services at the explicit proxy, such as `cluster.local`.
    pub cluster_domain: String,
}

/// The resources of a world, encoded.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    clusters: BTreeMap<PortName, Kept<Protocol>>,
    endpoints: BTreeMap<PortName, Kept<Arc<Backend>>>,
    listeners: BTreeMap<(SocketAddr, Filters), Kept<PortName>>,
    routes: BTreeMap<(PortName, Option<String>), Kept<Arc<Table>>>,
    explicit: Option<Kept<SocketAddr>>,
}

/// The treatment of a listener's connections.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Filters {
    /// Requests are parsed as HTTP.
    Http,
    /// Bytes are passed on.
    Tcp,
}

/// A resource with what it was made from.
#[derive(Clone, Debug)]
struct Kept<I> {
    input: I,
    resource: Arc<Resource>,
}

// === impl Resources ===

impl Resources {
    /// The resources of `world`. What is the same in `previous` is not encoded again.
    pub fn of(world: &World, options: &Options, previous: &Resources) -> Resources {
        let mut resources = Resources::default();
        for (name, backend) in &world.backends {
            let cluster =
                kept(previous.clusters.get(name), backend.protocol, |protocol| backends::cluster(name, *protocol));
            resources.clusters.insert(name.clone(), cluster);
            let endpoints =
                kept(previous.endpoints.get(name), Arc::clone(backend), |backend| backends::endpoints(backend));
            resources.endpoints.insert(name.clone(), endpoints);
        }
        for frontend in world.frontends.values() {
            for port in &frontend.ports {
                resources.add_port(frontend, port, previous);
            }
        }
        resources.explicit = options
            .explicit_proxy
            .map(|address| kept(previous.explicit.as_ref(), address, |address| listeners::explicit(*address)));
        resources
    }

    fn add_port(&mut self, frontend: &Frontend, port: &FrontendPort, previous: &Resources) {
        let tables = std::iter::once((None, &port.producer))
            .chain(port.consumers.iter().map(|(namespace, table)| (Some(namespace.clone()), table)));
        for (namespace, table) in tables {
            let filters = Filters::of(port, namespace.as_deref());
            for address in &frontend.addresses {
                self.add_listener(SocketAddr::new(*address, port.name.port), filters, &port.name, previous);
            }
            if filters == Filters::Http {
                let place = (port.name.clone(), namespace);
                let known = previous.routes.get(&place);
                let routes = kept(known, Arc::clone(table), |table| routes::routes(&port.name, table));
                self.routes.insert(place, routes);
            }
        }
    }

    fn add_listener(&mut self, address: SocketAddr, filters: Filters, port: &PortName, previous: &Resources) {
        // No two Services have one address, but for a moment two may seem to: the first by name has it.
        let owner = [Filters::Http, Filters::Tcp].iter().find_map(|filters| self.listeners.get(&(address, *filters)));
        if owner.is_some_and(|owner| owner.input != *port) {
            return;
        }
        let place = (address, filters);
        let listener =
            kept(previous.listeners.get(&place), port.clone(), |port| listeners::listener(address, port, filters));
        self.listeners.insert(place, listener);
    }

    /// The cluster of a port, and its endpoints.
    pub(crate) fn backend(&self, port: &PortName) -> Option<(&Arc<Resource>, &Arc<Resource>)> {
        Some((&self.clusters.get(port)?.resource, &self.endpoints.get(port)?.resource))
    }

    /// The listener at an address of a port.
    pub(crate) fn listener(&self, address: IpAddr, port: &PortName, filters: Filters) -> Option<&Arc<Resource>> {
        let listener = self.listeners.get(&(SocketAddr::new(address, port.port), filters))?;
        (listener.input == *port).then_some(&listener.resource)
    }

    /// The routes of a port for clients of a namespace.
    pub(crate) fn routes(&self, port: &PortName, namespace: Option<&str>) -> Option<&Arc<Resource>> {
        let place = |namespace: Option<&str>| (port.clone(), namespace.map(str::to_owned));
        let own = namespace.and_then(|namespace| self.routes.get(&place(Some(namespace))));
        own.or_else(|| self.routes.get(&place(None))).map(|kept| &kept.resource)
    }

    /// The ports of which something is not the same in `previous`.
    pub(crate) fn differences(&self, previous: &Resources) -> BTreeSet<PortName> {
        let mut ports = BTreeSet::new();
        differences(&previous.clusters, &self.clusters, is_same, |port| ports.extend([port.clone()]));
        differences(&previous.endpoints, &self.endpoints, is_same, |port| ports.extend([port.clone()]));
        differences(&previous.routes, &self.routes, is_same, |(port, _)| ports.extend([port.clone()]));
        let is_kept = |one: &Kept<PortName>, other: &Kept<PortName>| is_same(one, other) && one.input == other.input;
        differences(&previous.listeners, &self.listeners, is_kept, |place| {
            // An address may go from one Service to another.
            let owners = [previous, self].into_iter().filter_map(|resources| resources.listeners.get(place));
            ports.extend(owners.map(|owner| owner.input.clone()));
        });
        ports
    }

    /// The listener of the explicit proxy.
    pub(crate) fn explicit(&self) -> Option<&Arc<Resource>> {
        self.explicit.as_ref().map(|kept| &kept.resource)
    }

    /// Every resource, in no order.
    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let clusters = self.clusters.values().map(|kept| &kept.resource);
        let endpoints = self.endpoints.values().map(|kept| &kept.resource);
        let listeners = self.listeners.values().map(|kept| &kept.resource);
        let routes = self.routes.values().map(|kept| &kept.resource);
        clusters.chain(endpoints).chain(listeners).chain(routes).chain(self.explicit())
    }
}

// === impl Filters ===

impl Filters {
    /// The treatment of connections to a port from clients of a namespace.
    pub(crate) fn of(port: &FrontendPort, namespace: Option<&str>) -> Filters {
        if port.is_http(namespace) { Filters::Http } else { Filters::Tcp }
    }
}

fn is_same<I>(one: &Kept<I>, other: &Kept<I>) -> bool {
    Arc::ptr_eq(&one.resource, &other.resource)
}

/// The resource of `input`: the previous one if it was made from the same, or turns out to be the same.
fn kept<I: PartialEq>(previous: Option<&Kept<I>>, input: I, encode: impl FnOnce(&I) -> Resource) -> Kept<I> {
    if let Some(previous) = previous.filter(|previous| previous.input == input) {
        return Kept { input, resource: Arc::clone(&previous.resource) };
    }
    let made = encode(&input);
    let same = previous.filter(|previous| {
        previous.resource.version() == made.version() && previous.resource.source() == made.source()
    });
    let resource = same.map_or_else(|| Arc::new(made), |previous| Arc::clone(&previous.resource));
    Kept { input, resource }
}
