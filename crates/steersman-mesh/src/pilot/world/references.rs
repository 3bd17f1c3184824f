//! References from routes to Services: whether they may be made, and what they lead to.

use std::collections::{BTreeMap, BTreeSet};

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::ReferenceGrant;
use crate::pilot::world::draft::Reference;
use crate::pilot::world::names::{PortName, RouteName, ServiceName};
use crate::pilot::world::service::{Address, Protocol, ServiceInfo};
use crate::pilot::world::verdict::{BACKEND_NOT_FOUND, INVALID_KIND, Problem, REF_NOT_PERMITTED, UNSUPPORTED_PROTOCOL};

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The references from one namespace into another that are permitted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Grants {
    permitted: BTreeSet<Grant>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Grant {
    from_kind: String,
    from_namespace: String,
    to_namespace: String,
    /// One Service; none is all of the namespace.
    to_name: Option<String>,
}

/// Resolves references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver<'a> {
    pub(crate) services: &'a BTreeMap<ServiceName, ServiceInfo>,
    pub(crate) grants: &'a Grants,
}

impl Grants {
    pub(crate) fn of<'a>(grants: impl IntoIterator<Item = &'a ReferenceGrant>) -> Grants {
        let mut permitted = BTreeSet::new();
        for grant in grants {
            let Some(to_namespace) = grant.metadata.namespace.as_ref() else { continue };
            for to in grant.spec.to.iter().filter(|to| to.group.is_empty() && to.kind == "Service") {
                for from in grant.spec.from.iter().filter(|from| from.group == GATEWAY_GROUP) {
                    permitted.insert(Grant {
                        from_kind: from.kind.clone(),
                        from_namespace: from.namespace.clone(),
                        to_namespace: to_namespace.clone(),
                        to_name: to.name.clone().filter(|name| !name.is_empty()),
                    });
                }
            }
        }
        Grants { permitted }
    }

    fn permits(&self, route: &RouteName, to: &ServiceName) -> bool {
        let grant = |to_name: Option<String>| Grant {
            from_kind: route.kind.as_str().to_owned(),
            from_namespace: route.namespace.clone(),
            to_namespace: to.namespace.clone(),
            to_name,
        };
        self.permitted.contains(&grant(None)) || self.permitted.contains(&grant(Some(to.name.clone())))
    }
}

impl Resolver<'_> {
    /// The port that `reference` of `route` leads to. `parent` is the Service that the route is attached to: requests go there
    /// without the route too, so that it needs no permission.
    ///
    /// # Errors
    /// It leads to nothing, or may not be made.
    pub(crate) fn resolve(
        &self,
        reference: &Reference,
        route: &RouteName,
        parent: &ServiceName,
    ) -> Result<PortName, Problem> {
        let failed = |reason: &'static str, message: String| Err(Problem { reason, message });
        if !reference.group.is_empty() || reference.kind != "Service" {
            let group = if reference.group.is_empty() { "core" } else { &reference.group };
            let message = format!("{} of {group} cannot get requests: only Services can", reference.kind);
            return failed(INVALID_KIND, message);
        }
        let namespace = reference.namespace.as_deref().unwrap_or(&route.namespace);
        let name = ServiceName::new(namespace, &reference.name);
        if namespace != route.namespace && name != *parent && !self.grants.permits(route, &name) {
            let message = format!(
                "Service {name} is in another namespace, where no ReferenceGrant permits it for a {} of {}",
                route.kind.as_str(),
                route.namespace
            );
            return failed(REF_NOT_PERMITTED, message);
        }
        let Some(service) = self.services.get(&name) else {
            return failed(BACKEND_NOT_FOUND, format!("Service {name} does not exist"));
        };
        if service.address == Address::External {
            return failed(INVALID_KIND, format!("Service {name} is of the type ExternalName and has no endpoints"));
        }
        let Some(number) = reference.port.and_then(|port| u16::try_from(port).ok()) else {
            return failed(BACKEND_NOT_FOUND, format!("a reference to Service {name} names no port"));
        };
        match service.port(number) {
            Some(port) if port.protocol == Protocol::Tls => {
                let message = format!("port {number} of Service {name} is declared as tls: the mesh cannot route it");
                failed(UNSUPPORTED_PROTOCOL, message)
            }
            Some(_) => Ok(name.port(number)),
            None if service.other_ports.contains(&number) => {
                failed(UNSUPPORTED_PROTOCOL, format!("port {number} of Service {name} is no port of TCP"))
            }
            None => failed(BACKEND_NOT_FOUND, format!("Service {name} has no port {number}")),
        }
    }
}
