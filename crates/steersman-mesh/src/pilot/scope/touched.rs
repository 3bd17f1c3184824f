//! The Services whose proxies notice a new world: only their views are made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pilot::resources::Resources;
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

/// Calls `differs` with each key whose value is not the same in both.
pub(crate) fn differences<K: Ord, V>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    is_same: impl Fn(&V, &V) -> bool,
    mut differs: impl FnMut(&K),
) {
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(one), Some(two)) => one.0.cmp(two.0),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return,
        };
        let one = if order.is_le() { left.next() } else { None };
        let two = if order.is_ge() { right.next() } else { None };
        match (one, two) {
            (Some(one), Some(two)) if is_same(one.1, two.1) => {}
            (Some((key, _)), _) | (None, Some((key, _))) => differs(key),
            (None, None) => return,
        }
    }
}
