//! Services: where requests come in, and which protocol they speak.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;

use crate::pilot::world::names::ServiceName;

/// The protocol that a Service declares for one of its ports.
///
/// `appProtocol` decides; without it the name of the port, up to its first `-` unless it begins with `grpc-web`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// HTTP/1.1: `http`, `grpc-web`, `kubernetes.io/ws`.
    Http1,
    /// HTTP/2 without TLS: `http2`, `h2c`, `grpc`, `kubernetes.io/h2c`.
    Http2,
    /// Bytes that nobody looks into: `tcp` and every protocol that is not named here.
    Tcp,
    /// Encrypted bytes: `https`, `tls`, `kubernetes.io/wss`.
    Tls,
    /// The Service does not say. The port carries bytes until a route is attached to it, from then on HTTP.
    Undeclared,
}

/// A port of a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServicePort {
    /// Its name; a Service with one port need not have any.
    pub(crate) name: Option<String>,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

/// How requests reach a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Address {
    /// At these addresses; the first is in the Service's first family.
    Cluster(Vec<IpAddr>),
    /// Under another name outside the cluster (`ExternalName`).
    External,
    /// At its endpoints (headless, or without an address yet).
    None,
}

/// A Service, as far as the mesh needs it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServiceInfo {
    pub(crate) name: ServiceName,
    pub(crate) address: Address,
    /// The family of the endpoints that are used; `None` where the Service leaves it open.
    pub(crate) family: Option<Family>,
    /// The TCP ports, in the order of the Service.
    pub(crate) ports: Vec<ServicePort>,
    /// The ports of other protocols than TCP, which the mesh leaves alone.
    pub(crate) other_ports: Vec<u16>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

// === impl Protocol ===

impl Protocol {
    /// The protocol of a port with this `appProtocol` and name.
    fn of(app_protocol: Option<&str>, name: Option<&str>) -> Protocol {
        if let Some(app_protocol) = app_protocol {
            return Protocol::named(&app_protocol.to_ascii_lowercase()).unwrap_or(Protocol::Tcp);
        }
        let name = name.unwrap_or_default().to_ascii_lowercase();
        // The one protocol with a `-` in its name, which servers of HTTP/1.1 speak.
        let prefix = match name.strip_prefix("grpc-web") {
            Some("") => "grpc-web",
            Some(rest) if rest.starts_with('-') => "grpc-web",
            _ => name.split('-').next().unwrap_or_default(),
        };
        // A port may be called anything: only a known protocol says something.
        Protocol::named(prefix).unwrap_or(Protocol::Undeclared)
    }

    fn named(word: &str) -> Option<Protocol> {
        match word {
            "grpc-web" | "http" | "kubernetes.io/ws" => Some(Protocol::Http1),
            "grpc" | "h2c" | "http2" | "kubernetes.io/h2c" => Some(Protocol::Http2),
            "tcp" | "mongo" | "mysql" | "redis" => Some(Protocol::Tcp),
            "https" | "kubernetes.io/wss" | "tls" => Some(Protocol::Tls),
            _ => None,
        }
    }

    /// Whether routes can be attached to such a port.
    pub fn is_routable(self) -> bool {
        matches!(self, Protocol::Http1 | Protocol::Http2 | Protocol::Undeclared)
    }

    /// The word for a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Http1 => "http",
            Protocol::Http2 => "http2",
            Protocol::Tcp => "tcp",
            Protocol::Tls => "tls",
            Protocol::Undeclared => "undeclared",
        }
    }
}

// === impl ServiceInfo ===

impl ServiceInfo {
    /// Reads a Service; `None` for one without a name.
    pub(crate) fn of(service: &Service) -> Option<ServiceInfo> {
        let metadata = &service.metadata;
        let name = ServiceName::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        let spec = service.spec.as_ref()?;
        let (mut ports, mut other_ports) = (Vec::new(), Vec::new());
        for port in spec.ports.iter().flatten() {
            let Ok(number) = u16::try_from(port.port) else { continue };
            if port.protocol.as_deref().unwrap_or("TCP") == "TCP" {
                let protocol = Protocol::of(port.app_protocol.as_deref(), port.name.as_deref());
                let name = port.name.clone().filter(|name| !name.is_empty());
                ports.push(ServicePort { name, port: number, protocol });
            } else {
                other_ports.push(number);
            }
        }
        let family = match spec.ip_families.as_deref().and_then(|families| families.first()).map(String::as_str) {
            Some("IPv4") => Some(Family::V4),
            Some("IPv6") => Some(Family::V6),
            _ => None,
        };
        let is_external = spec.type_.as_deref() == Some("ExternalName");
        let mut addresses: Vec<IpAddr> =
            spec.cluster_ips.iter().flatten().filter_map(|address| address.parse().ok()).collect();
        if addresses.is_empty() {
            addresses.extend(spec.cluster_ip.as_deref().and_then(|address| address.parse::<IpAddr>().ok()));
        }
        let address = match (is_external, addresses.is_empty()) {
            (true, _) => Address::External,
            (false, true) => Address::None,
            (false, false) => Address::Cluster(addresses),
        };
        Some(ServiceInfo { name, address, family, ports, other_ports })
    }

    /// The TCP port of this number.
    pub(crate) fn port(&self, port: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|known| known.port == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(app_protocol: Option<&str>, name: Option<&str>, expected: Protocol) {
        assert_eq!(Protocol::of(app_protocol, name), expected);
    }

    #[test]
    fn the_name_of_a_port_declares_its_protocol() {
        check(None, Some("http"), Protocol::Http1);
        check(None, Some("http-metrics"), Protocol::Http1);
        check(None, Some("http2-api"), Protocol::Http2);
        check(None, Some("grpc"), Protocol::Http2);
        check(None, Some("grpc-web"), Protocol::Http1);
        check(None, Some("grpc-web-2"), Protocol::Http1);
        check(None, Some("grpc-webhook"), Protocol::Http2);
        check(None, Some("tcp-db"), Protocol::Tcp);
        check(None, Some("https"), Protocol::Tls);
        check(None, Some("httpd"), Protocol::Undeclared);
        check(None, Some("web"), Protocol::Undeclared);
        check(None, None, Protocol::Undeclared);
    }

    #[test]
    fn app_protocol_wins_over_the_name() {
        check(Some("kubernetes.io/h2c"), Some("http"), Protocol::Http2);
        check(Some("grpc-web"), Some("grpc"), Protocol::Http1);
        check(Some("HTTP"), Some("tcp"), Protocol::Http1);
        check(Some("example.com/custom"), Some("http"), Protocol::Tcp);
    }
}
