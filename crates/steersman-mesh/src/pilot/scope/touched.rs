//! The Services whose proxies notice a new world: only their views are made anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::pilot::resources::{Resources, differences};
use crate::pilot::world::{Frontend, FrontendPort, PortName, ServiceName, World};

/// The difference between two snapshots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Touched {
    /// Any view may be another.
    All,
    /// Only views that have one of these Services.
    Services {
        /// Their names.
        names: BTreeSet<ServiceName>,
        /// Whether frontends have changed, and not only endpoints.
        frontends: FrontendChange,
    },
}

/// Whether a frontend has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrontendChange {
    None,
    Some,
}

impl Touched {
    /// The Services of `new` whose views differ from those of `old`. Options and the namespaces of consumers must be the same.
    pub(crate) fn between(old: (&World, &Resources), new: (&World, &Resources)) -> Touched {
        let mut names = BTreeSet::new();
        differences(&old.0.frontends, &new.0.frontends, Arc::eq, |name| names.extend([name.clone()]));
        let frontends = if names.is_empty() { FrontendChange::None } else { FrontendChange::Some };
        let ports = new.1.differences(old.1);
        let refers = |port: &FrontendPort| {
            let mut tables = std::iter::once(&port.producer).chain(port.consumers.values());
            tables.any(|table| table.backends().any(|backend| ports.contains(backend)))
        };
        if !ports.is_empty() {
            let of_routes =
                new.0.frontends.values().filter(|frontend: &&Arc<Frontend>| frontend.ports.iter().any(refers));
            names.extend(of_routes.map(|frontend| frontend.service.clone()));
            names.extend(ports.into_iter().map(|port: PortName| port.service));
        }
        Touched::Services { names, frontends }
    }
}
