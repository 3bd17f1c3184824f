//! The part of all resources that one proxy should have: by the namespace of its Pod, and by what the Pod says it calls.
//!
//! Proxies of the same scope share one view, and scopes for which the same comes out share one too. A view stays the same `Arc` as long
//! as nothing in it changes, so that a change of something else costs its proxies nothing.

mod groups;
#[cfg(test)]
mod tests;
mod touched;

use std::collections::BTreeSet;
use std::sync::Arc;

use steersman_xds::{Kind, Resource, Set, View};

use crate::pilot::resources::{EXPLICIT, Filters, Options, Resources, explicit_routes};
use crate::pilot::scope::touched::FrontendChange;
use crate::pilot::world::{Frontend, PortName, ServiceName, World};

pub(crate) use crate::pilot::scope::groups::{GroupKey, Groups};
pub(crate) use crate::pilot::scope::touched::Touched;

/// The annotation of a Pod, or of a namespace for its Pods, with the Services that the Pod calls: names with commas between
/// them, `NAME` for one of its own namespace, `NAME.NAMESPACE` for another, `*.NAMESPACE` for all of a namespace, `*` for all. Without it,
/// all.
pub const CALLS: &str = "mesh.steersman.dev/calls";

/// The most Services that an annotation may name.
const NAMES_MAX: usize = 1_000;

/// Which proxies should have the same.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Scope {
    /// The namespace of the Pod, whose consumer routes count.
    pub namespace: String,
    /// The Services that the Pod calls.
    pub calls: Calls,
}

/// Which Services a Pod calls.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Calls {
    /// All of them.
    All,
    /// The Services that one of the patterns means.
    Only(Arc<BTreeSet<Callee>>),
}

/// One Service, or all of a namespace.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Callee {
    /// All Services of this namespace.
    Namespace(String),
    /// This one.
    Service(ServiceName),
}

/// Why the annotation cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CallsError {
    /// Neither a name nor a pattern.
    #[error("{0:?} in the annotation {CALLS} is no Service: write NAME, NAME.NAMESPACE, *.NAMESPACE or *")]
    Name(String),
    /// Too many.
    #[error("the annotation {CALLS} names {0} Services: at most {NAMES_MAX} are possible; `*` means all")]
    TooMany(usize),
}

/// A world with its resources.
#[derive(Debug)]
pub struct Snapshot {
    /// The world.
    pub world: World,
    resources: Resources,
    options: Options,
    /// The namespaces that have consumer routes.
    consumers: BTreeSet<String>,
    /// The difference from the snapshot before.
    touched: Touched,
}

// === impl Calls ===

impl Calls {
    /// Reads the annotation of a Pod of `namespace`.
    ///
    /// # Errors
    /// It cannot be read: then the Pod calls all, since a proxy that lacks a Service does more harm than one that has too many.
    pub fn parse(text: &str, namespace: &str) -> Result<Calls, CallsError> {
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if words.len() > NAMES_MAX {
            return Err(CallsError::TooMany(words.len()));
        }
        let mut callees = BTreeSet::new();
        for word in words {
            let is_name = |name: &str| {
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            };
            let callee = match word.split_once('.') {
                None if word == "*" => return Ok(Calls::All),
                None if is_name(word) => Callee::Service(ServiceName::new(namespace, word)),
                Some(("*", other)) if is_name(other) => Callee::Namespace(other.to_owned()),
                Some((name, other)) if is_name(name) && is_name(other) => {
                    Callee::Service(ServiceName::new(other, name))
                }
                _ => return Err(CallsError::Name(word.to_owned())),
            };
            callees.insert(callee);
        }
        Ok(Calls::Only(Arc::new(callees)))
    }
}

// === impl Snapshot ===

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            world: World::default(),
            resources: Resources::default(),
            options: Options::default(),
            consumers: BTreeSet::new(),
            touched: Touched::All,
        }
    }
}

impl Snapshot {
    /// The snapshot of `world`. What is the same in `previous` is not encoded again.
    pub fn of(world: World, options: &Options, previous: &Snapshot) -> Snapshot {
        // Other options make other resources of the same world.
        let nothing = Resources::default();
        let known = if previous.options == *options { &previous.resources } else { &nothing };
        let resources = Resources::of(&world, options, known);
        let ports = world.frontends.values().flat_map(|frontend| &frontend.ports);
        let consumers: BTreeSet<String> = ports.flat_map(|port| port.consumers.keys().cloned()).collect();
        let is_alike = previous.options == *options && previous.consumers == consumers;
        let touched = match is_alike {
            true => Touched::between((&previous.world, &previous.resources), (&world, &resources)),
            false => Touched::All,
        };
        Snapshot { world, resources, options: options.clone(), consumers, touched }
    }

    /// The difference from the snapshot before.
    pub(crate) fn touched(&self) -> &Touched {
        &self.touched
    }

    /// The routes of a port, for clients of a namespace with a consumer route or for all others.
    pub(crate) fn routes(&self, port: &PortName, consumer: Option<&str>) -> Option<&Arc<Resource>> {
        self.resources.routes(port, consumer)
    }

    /// Whether the scope should have just what every proxy has for which nothing special is said.
    pub fn is_common(&self, scope: &Scope) -> bool {
        scope.calls == Calls::All && !self.consumers.contains(&scope.namespace) && self.options.explicit_proxy.is_none()
    }

    /// The view for proxies of `scope`; without one, for all proxies for which nothing special is said. The result is `previous` itself if
    /// that is the same. `previous` is the view of the same scope in the snapshot before, or one without the explicit proxy.
    pub fn view(&self, scope: Option<&Scope>, previous: &Arc<View>) -> Arc<View> {
        let namespace = scope.map(|scope| scope.namespace.as_str());
        let frontends = self.frontends(scope);
        let mut parts = Parts::default();
        for frontend in &frontends {
            for port in &frontend.ports {
                let filters = Filters::of(port, namespace);
                for address in &frontend.addresses {
                    parts.listeners.extend(self.resources.listener(*address, &port.name, filters).cloned());
                }
                parts.add_backend(&self.resources, &port.name);
                if filters == Filters::Http {
                    parts.routes.extend(self.resources.routes(&port.name, namespace).cloned());
                    port.table_for(namespace).backends().for_each(|name| parts.add_backend(&self.resources, name));
                }
            }
        }
        if let (Some(listener), Some(namespace)) = (self.resources.explicit(), namespace) {
            parts.listeners.push(Arc::clone(listener));
            let known = previous.get(Kind::Route, EXPLICIT);
            let may_differ = !matches!(&self.touched, Touched::Services { frontends: FrontendChange::None, .. });
            let routes = match known {
                // The table names hosts and clusters, not endpoints.
                Some(known) if !may_differ => Arc::clone(known),
                _ => {
                    let routes = explicit_routes(&frontends, namespace, &self.options.cluster_domain);
                    let same = known.filter(|known| known.version() == routes.version());
                    same.cloned().unwrap_or_else(|| Arc::new(routes))
                }
            };
            parts.routes.push(routes);
        }
        parts.into_view(previous)
    }

    /// The Services that proxies of `scope` call.
    fn frontends(&self, scope: Option<&Scope>) -> Vec<&Arc<Frontend>> {
        let Some(Scope { calls: Calls::Only(callees), .. }) = scope else {
            return self.world.frontends.values().collect();
        };
        let mut found = std::collections::BTreeMap::new();
        for callee in callees.iter() {
            match callee {
                Callee::Service(name) => found.extend(self.world.frontends.get_key_value(name)),
                Callee::Namespace(namespace) => {
                    let first = ServiceName::new(namespace, "");
                    let of_namespace = self.world.frontends.range(first..);
                    found.extend(of_namespace.take_while(|(name, _)| name.namespace == *namespace));
                }
            }
        }
        found.into_values().collect()
    }
}

/// The resources of a view, in any order, some of them more than once.
#[derive(Default)]
struct Parts {
    clusters: Vec<Arc<Resource>>,
    endpoints: Vec<Arc<Resource>>,
    listeners: Vec<Arc<Resource>>,
    routes: Vec<Arc<Resource>>,
}

impl Parts {
    fn add_backend(&mut self, resources: &Resources, port: &PortName) {
        if let Some((cluster, endpoints)) = resources.backend(port) {
            self.clusters.push(Arc::clone(cluster));
            self.endpoints.push(Arc::clone(endpoints));
        }
    }

    /// The view. Sets that did not change are those of `previous`, and if none did, it is `previous`.
    fn into_view(self, previous: &Arc<View>) -> Arc<View> {
        let parts = [
            (Kind::Cluster, self.clusters),
            (Kind::Endpoints, self.endpoints),
            (Kind::Listener, self.listeners),
            (Kind::Route, self.routes),
        ];
        let mut view = View::clone(previous);
        let mut is_same = true;
        for (kind, resources) in parts {
            let set = Set::new(resources);
            if !is_same_set(&set, previous.set(kind)) {
                view = view.with(kind, set);
                is_same = false;
            }
        }
        if is_same { Arc::clone(previous) } else { Arc::new(view) }
    }
}

fn is_same_set(one: &Set, other: &Set) -> bool {
    one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| Arc::ptr_eq(one, other))
}
