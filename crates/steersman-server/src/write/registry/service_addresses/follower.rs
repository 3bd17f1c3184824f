//! Keeps the allocator's view of the ServiceCIDRs, IPAddresses and node ports up to date with the store, whichever server
//! has changed them.

use crate::shared::conversion;
use crate::shared::follower::{self, Followed, Progress};
use crate::write::registry::service_addresses::allocator::Allocator;
use crate::write::registry::service_addresses::node_ports::{self, NodePorts};
use std::net::IpAddr;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{Event, Kind as EventKind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A resource from which the allocator knows what there is and what is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Addresses,
    NodePorts,
    ServiceCidrs,
    Services,
}

/// How far the allocator has followed each resource.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    addresses: Progress,
    node_ports: Progress,
    service_cidrs: Progress,
    services: Progress,
}

/// The follower of one resource. When it is dropped, even by a panic, requests do not wait for it any more.
struct PartFollower {
    allocator: Arc<Allocator>,
    part: Part,
}

/// Reads the resources, and starts the tasks that follow them until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    allocator: &Arc<Allocator>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let followed = |part| Box::new(PartFollower { allocator: allocator.clone(), part });
    Part::ALL.into_iter().map(|part| follower::start(store, followed(part), stopping)).collect()
}

impl Part {
    pub(crate) const ALL: [Part; 4] = [Part::Addresses, Part::NodePorts, Part::ServiceCidrs, Part::Services];

    /// The part that is known from a resource, which every write asks.
    pub(crate) fn of(resource: &GroupResource) -> Option<Part> {
        match (&*resource.group, &*resource.resource) {
            ("networking.k8s.io", "ipaddresses") => Some(Part::Addresses),
            ("", "ranges") => Some(Part::NodePorts),
            ("networking.k8s.io", "servicecidrs") => Some(Part::ServiceCidrs),
            ("", "services") => Some(Part::Services),
            _ => None,
        }
    }

    /// Whether an object of the resource counts. kube-apiservers of earlier releases have other entries beside that of the node ports.
    fn has(self, object: &Object) -> bool {
        self != Part::NodePorts || object.key == node_ports::key()
    }

    pub(crate) fn resource(self) -> GroupResource {
        match self {
            Part::Addresses => GroupResource::new("networking.k8s.io", "ipaddresses"),
            Part::NodePorts => node_ports::resource(),
            Part::ServiceCidrs => GroupResource::new("networking.k8s.io", "servicecidrs"),
            Part::Services => GroupResource::new("", "services"),
        }
    }
}

impl Followers {
    pub(crate) fn progress(&self, part: Part) -> &Progress {
        match part {
            Part::Addresses => &self.addresses,
            Part::NodePorts => &self.node_ports,
            Part::ServiceCidrs => &self.service_cidrs,
            Part::Services => &self.services,
        }
    }
}

impl PartFollower {
    fn put(&self, object: &Object) {
        match self.part {
            Part::Addresses => address(object).into_iter().for_each(|address| self.allocator.add_address(address)),
            Part::NodePorts => self.allocator.replace_node_ports(ports(object)),
            Part::ServiceCidrs => match conversion::parse(object) {
                Ok(service_cidr) => self.allocator.observe_range(&service_cidr),
                Err(failure) => {
                    tracing::error!(key = %object.key, "a ServiceCIDR cannot be read: {}", failure.status.message);
                }
            },
            Part::Services => match conversion::parse(object) {
                Ok(service) => self.allocator.replace_service(&object.key, &service),
                Err(failure) => {
                    tracing::error!(key = %object.key, "a Service cannot be read: {}", failure.status.message);
                }
            },
        }
    }

    fn remove(&self, object: &Object) {
        match self.part {
            Part::Addresses => address(object).into_iter().for_each(|address| self.allocator.remove_address(address)),
            Part::NodePorts => self.allocator.replace_node_ports(NodePorts::new()),
            Part::ServiceCidrs => self.allocator.forget_range(&object.key.name),
            Part::Services => self.allocator.remove_service(&object.key),
        }
    }
}

impl Followed for PartFollower {
    fn resource(&self) -> GroupResource {
        self.part.resource()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        match self.part {
            Part::Addresses => {
                self.allocator.replace_addresses(objects.iter().filter_map(|one| address(one)).collect());
            }
            Part::NodePorts => {
                let stored = objects.iter().find(|object| self.part.has(object));
                self.allocator.replace_node_ports(stored.map(|object| ports(object)).unwrap_or_default());
            }
            Part::ServiceCidrs => {
                self.allocator.keep_ranges(&objects.iter().map(|object| &*object.key.name).collect());
                objects.iter().for_each(|object| self.put(object));
            }
            Part::Services => {
                self.allocator.remove_services();
                objects.iter().for_each(|object| self.put(object));
            }
        }
        self.allocator.followers.progress(self.part).report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        for event in events.iter().filter(|event| self.part.has(&event.object)) {
            match event.kind {
                EventKind::Added | EventKind::Modified => self.put(&event.object),
                EventKind::Deleted => self.remove(&event.object),
            }
        }
        if let Some(last) = events.last() {
            self.allocator.followers.progress(self.part).report(last.revision);
        }
    }
}

impl Drop for PartFollower {
    fn drop(&mut self) {
        self.allocator.followers.progress(self.part).end();
    }
}

/// The address that an IPAddress is named by.
fn address(object: &Object) -> Option<IpAddr> {
    object.key.name.parse().ok()
}

/// The ports of a stored bitmap. One that cannot be read has none: the next write of a Service computes them from all.
fn ports(object: &Object) -> NodePorts {
    let read = conversion::parse(object).ok().and_then(|object| node_ports::read(&object));
    read.unwrap_or_else(|| {
        tracing::error!("the allocated node ports cannot be read: the next write of a Service with node ports computes them from all Services");
        NodePorts::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_its_resource() {
        assert!(Part::ALL.into_iter().all(|part| Part::of(&part.resource()) == Some(part)));
        assert_eq!(Part::of(&GroupResource::new("", "pods")), None);
    }
}
