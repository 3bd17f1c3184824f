//! Endpoints: where the requests of a Service port go.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::pilot::world::names::{PortName, ServiceName};
use crate::pilot::world::service::{Family, Protocol, ServiceInfo, ServicePort};

/// The label of a slice with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Whether an endpoint gets new requests.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Condition {
    /// It gets new requests.
    Ready,
    /// Its Pod is ending: it finishes what it has and gets nothing new.
    Draining,
}

/// The endpoints behind a port of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Backend {
    /// The port.
    pub name: PortName,
    /// The protocol that its endpoints speak.
    pub protocol: Protocol,
    /// The endpoints, each once. Those that are neither ready nor draining are left out.
    pub endpoints: BTreeMap<SocketAddr, Condition>,
}

/// The slices of all Services.
#[derive(Debug, Default)]
pub(crate) struct Slices<'a> {
    by_service: BTreeMap<ServiceName, Vec<&'a EndpointSlice>>,
}

impl<'a> Slices<'a> {
    pub(crate) fn of(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Slices<'a> {
        let mut by_service: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for slice in slices {
            let labels = slice.metadata.labels.as_ref();
            let service = labels.and_then(|labels| labels.get(SERVICE_LABEL));
            if let (Some(namespace), Some(service)) = (slice.metadata.namespace.as_deref(), service) {
                by_service.entry(ServiceName::new(namespace, service)).or_default().push(slice);
            }
        }
        Slices { by_service }
    }

    fn of_service(&self, name: &ServiceName) -> &[&'a EndpointSlice] {
        self.by_service.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The backends of a Service, one for each of its ports.
pub(crate) fn backends(service: &ServiceInfo, slices: &Slices<'_>) -> Vec<Backend> {
    let slices = slices.of_service(&service.name);
    let backend = |port: &ServicePort| {
        let mut found = BTreeMap::new();
        for slice in slices.iter().filter(|slice| is_of_family(slice, service.family)) {
            collect(slice, port.name.as_deref(), &mut found);
        }
        Backend { name: service.name.port(port.port), protocol: port.protocol, endpoints: usable(found) }
    };
    service.ports.iter().map(backend).collect()
}

fn is_of_family(slice: &EndpointSlice, family: Option<Family>) -> bool {
    match slice.address_type.as_str() {
        "IPv4" => family.is_none_or(|family| family == Family::V4),
        "IPv6" => family.is_none_or(|family| family == Family::V6),
        _ => false,
    }
}

/// Adds the endpoints that `slice` has for the Service port of this name. Two slices may name the same endpoint while it
/// moves between them: it is ready if one of them says so.
fn collect(slice: &EndpointSlice, port_name: Option<&str>, found: &mut BTreeMap<SocketAddr, Condition>) {
    let named = |name: Option<&str>| name.unwrap_or_default() == port_name.unwrap_or_default();
    let ports = slice
        .ports
        .iter()
        .flatten()
        .filter(|port| named(port.name.as_deref()) && port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let numbers: Vec<u16> = ports.filter_map(|port| port.port.and_then(|port| u16::try_from(port).ok())).collect();
    for endpoint in slice.endpoints.iter().flatten() {
        let Some(condition) = condition(endpoint) else { continue };
        // The addresses of one endpoint are alternatives; since 1.28 there is never more than one.
        let Some(address) = endpoint.addresses.first().and_then(|address| address.parse::<IpAddr>().ok()) else {
            continue;
        };
        for number in &numbers {
            let known = found.entry(SocketAddr::new(address, *number)).or_insert(condition);
            *known = condition.min(*known);
        }
    }
}

fn condition(endpoint: &Endpoint) -> Option<Condition> {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
    let terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
    // Without `serving`, `ready` says it.
    let serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(ready);
    match (ready, serving && terminating) {
        // An endpoint of a Service that publishes Pods that are not ready is ready while it ends.
        (true, _) => Some(Condition::Ready),
        (false, true) => Some(Condition::Draining),
        (false, false) => None,
    }
}

/// If none is ready, those that still serve while they end get the requests: kube-proxy does the same.
fn usable(found: BTreeMap<SocketAddr, Condition>) -> BTreeMap<SocketAddr, Condition> {
    if found.values().any(|condition| *condition == Condition::Ready) {
        return found;
    }
    found.into_keys().map(|address| (address, Condition::Ready)).collect()
}
