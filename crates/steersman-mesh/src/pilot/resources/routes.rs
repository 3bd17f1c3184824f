//! Tables of routes: one for each port, and one for all of the explicit proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use steersman_xds::resources::RouteConfiguration;
use steersman_xds::resources::route::{Route, VirtualHost};
use steersman_xds::{Kind, Resource};

use crate::pilot::resources::listeners::EXPLICIT;
use crate::pilot::resources::rule;
use crate::pilot::world::{Frontend, FrontendPort, PortName, Table};

/// The routes of a port.
pub(super) fn routes(port: &PortName, table: &Table) -> Resource {
    let host = VirtualHost {
        name: port.to_string(),
        // Requests come by address: the host that the client names does not matter.
        domains: vec!["*".to_owned()],
        routes: envoy_routes(port, table),
        ..VirtualHost::default()
    };
    let clusters = clusters(port, table);
    finished(
        RouteConfiguration { name: port.to_string(), virtual_hosts: vec![host], ..RouteConfiguration::default() },
        clusters,
    )
    .made_from(source(port, table))
}

fn envoy_routes(port: &PortName, table: &Table) -> Vec<Route> {
    match table {
        Table::Forward => vec![rule::forward(port)],
        Table::Rules(entries) => entries.iter().map(|entry| rule::route(entry, port)).collect(),
    }
}

fn clusters(port: &PortName, table: &Table) -> BTreeSet<String> {
    let own = (*table == Table::Forward).then(|| port.to_string());
    own.into_iter().chain(table.backends().map(PortName::to_string)).collect()
}

/// The resource. Its clusters are said here because the cluster of invalid backends does not exist.
fn finished(routes: RouteConfiguration, clusters: BTreeSet<String>) -> Resource {
    Resource::new(Kind::Route, routes.name.as_str(), &routes).needing(Kind::Cluster, clusters)
}

/// The objects that decide at a port.
fn source(port: &PortName, table: &Table) -> String {
    let Table::Rules(entries) = table else { return format!("Service {}", port.service) };
    let names: BTreeSet<String> = entries.iter().map(|entry| entry.rule.route.to_string()).collect();
    if names.is_empty() { format!("Service {}", port.service) } else { Vec::from_iter(names).join(", ") }
}

/// The routes of the explicit proxy for clients of a namespace: a host for every port of every Service. A program names a
/// Service as it would in a URL; only those of its own namespace go by their name alone.
pub(crate) fn explicit_routes(frontends: &[&Arc<Frontend>], namespace: &str, domain: &str) -> Resource {
    let (mut virtual_hosts, mut needed) = (Vec::new(), BTreeSet::new());
    let mut taken: BTreeMap<String, ()> = BTreeMap::new();
    for frontend in frontends {
        for port in frontend.ports.iter().filter(|port| port.is_http(Some(namespace))) {
            let table = port.table_for(Some(namespace));
            let mut domains = domains(frontend, port, namespace, domain);
            // Envoy refuses a table in which two hosts have the same name.
            domains.retain(|domain| taken.insert(domain.clone(), ()).is_none());
            if domains.is_empty() {
                continue;
            }
            needed.extend(clusters(&port.name, table));
            virtual_hosts.push(VirtualHost {
                name: port.name.to_string(),
                domains,
                routes: envoy_routes(&port.name, table),
                ..VirtualHost::default()
            });
        }
    }
    let routes = RouteConfiguration { name: EXPLICIT.to_owned(), virtual_hosts, ..RouteConfiguration::default() };
    finished(routes, needed).made_from("all Services")
}

fn domains(frontend: &Frontend, port: &FrontendPort, namespace: &str, domain: &str) -> Vec<String> {
    let service = &frontend.service;
    let mut hosts =
        vec![format!("{}.{}", service.name, service.namespace), format!("{}.{}.svc", service.name, service.namespace)];
    if !domain.is_empty() {
        hosts.push(format!("{}.{}.svc.{domain}", service.name, service.namespace));
    }
    if service.namespace == namespace {
        hosts.push(service.name.clone());
    }
    hosts.extend(frontend.addresses.iter().map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }));
    let number = port.name.port;
    let mut domains: Vec<String> = hosts.iter().map(|host| format!("{host}:{number}")).collect();
    // A URL of HTTP leaves this port out.
    if number == 80 {
        domains.extend(hosts);
    }
    domains
}
