//! The types of resources.

use std::fmt;

/// A type of resources that Envoys ask for, in the order in which changes are made.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A group of endpoints that requests are sent to, and how (CDS).
    Cluster,
    /// The addresses of a cluster, `ClusterLoadAssignment` in the protocol (EDS).
    Endpoints,
    /// A socket and what is done with its connections (LDS).
    Listener,
    /// Which request goes to which cluster, `RouteConfiguration` in the protocol (RDS).
    Route,
    /// Certificates and keys (SDS).
    Secret,
}

// === impl Kind ===

impl Kind {
    /// All types, in the order in which changes are made.
    pub const ALL: [Kind; 5] = [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route, Kind::Secret];

    /// The name of the type in the protocol.
    #[must_use]
    pub const fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Kind::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }

    /// The type with this name in the protocol.
    #[must_use]
    pub fn from_type_url(type_url: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// The place of the type in [`Kind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether a first request without names asks for everything, and whether what a state-of-the-world response
    /// leaves out is deleted.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Kind::Cluster | Kind::Listener)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Cluster => "cluster",
            Kind::Endpoints => "endpoints",
            Kind::Listener => "listener",
            Kind::Route => "route",
            Kind::Secret => "secret",
        })
    }
}
