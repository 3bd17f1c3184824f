//! Names of Services, of their ports and of routes.

use std::fmt;

/// A Service.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A port of a Service: of its cluster IP where requests come in, and of its endpoints where they go.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortName {
    /// The Service.
    pub service: ServiceName,
    /// The port that the Service has; its endpoints may have another.
    pub port: u16,
}

/// The kinds of routes. In this order one takes the place of the other at a port that has both.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RouteKind {
    /// GRPCRoute.
    Grpc,
    /// HTTPRoute.
    Http,
}

/// A route.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RouteName {
    /// Its kind.
    pub kind: RouteKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceName {
    /// The Service of this namespace and name.
    pub fn new(namespace: &str, name: &str) -> ServiceName {
        ServiceName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// One of its ports.
    pub fn port(&self, port: u16) -> PortName {
        PortName { service: self.clone(), port }
    }
}

impl RouteKind {
    /// The kind as objects write it.
    pub fn as_str(self) -> &'static str {
        match self {
            RouteKind::Grpc => "GRPCRoute",
            RouteKind::Http => "HTTPRoute",
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The name of everything that Envoy has of a port: its listener, its routes, its cluster.
impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbound|{}||{}.{}.svc", self.port, self.service.name, self.service.namespace)
    }
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}
