//! Makes the IPAddress objects and the allocated node ports agree with the stored Services, at the start of a server: a
//! release without them may have written the store, and clients may delete IPAddresses.
//!
//! A write of a Service changes all of them in one transaction, so what is read at one revision is consistent, and a
//! change at the revision that was read fails if a Service has changed it since.

use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::service_addresses::addresses::{self, ALLOCATOR, MANAGED_BY};
use crate::write::registry::service_addresses::allocator;
use crate::write::registry::service_addresses::node_ports::{self, NodePorts};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value, time};
use steersman_storage::{At, Guard, GuardChange, List, Page, Scope, WriteError};

/// The number of objects that are written concurrently.
const AT_ONCE: usize = 64;
/// An IPAddress without a Service is kept for so many seconds: a kube-apiserver on the same store writes it before its
/// Service.
const ORPHAN_SECONDS: i64 = 60;

/// A Service that has an address, as it was listed.
#[derive(Clone, Debug)]
struct Owner {
    key: ObjectKey,
    revision: Revision,
}

/// Repairs the IPAddresses and the node ports of all stored Services.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn run(state: &State) -> Result<(), Failure> {
    let services = list(state, &GroupResource::new("", "services"), At::Latest)?;
    let at = At::Exact(services.revision);
    let n_services = services.objects.len();
    let services = readable(&services.objects);
    let stored = match list(state, &addresses::resource(), at) {
        Ok(stored) => stored.objects,
        Err(failure) if failure.code() == 410 => {
            too_late();
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let ports = match list(state, &node_ports::resource(), at) {
        Ok(ports) => ports.objects.into_iter().find(|object| object.key == node_ports::key()),
        Err(failure) if failure.code() == 410 => {
            too_late();
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let is_complete = services.len() == n_services && is_complete(state);
    repair_addresses(state, &services, stored, is_complete).await?;
    repair_node_ports(state, &services, ports, is_complete).await
}

/// The node ports of all stored Services.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn node_ports_of_services(state: &State) -> Result<NodePorts, Failure> {
    let services = list(state, &GroupResource::new("", "services"), At::Latest)?.objects;
    Ok(readable(&services).iter().flat_map(allocator::node_ports).collect())
}

/// The objects that can be read. One that cannot must not keep a server from its start, nor others from their ports.
fn readable(objects: &[Arc<Object>]) -> Vec<Value> {
    objects.iter().filter_map(|object| conversion::parse(object).ok()).collect()
}

/// Whether all Services can be read. Otherwise nothing may be freed: an address or a port may be that of one that cannot, such
/// as one that is encrypted with a key that this server does not have.
fn is_complete(state: &State) -> bool {
    let services = GroupResource::new("", "services");
    let unreadable = state.store.unreadable();
    let is_service =
        |object: &Option<(GroupResource, ObjectKey)>| object.as_ref().is_none_or(|(resource, _)| *resource == services);
    !unreadable.iter().any(|unreadable| is_service(&unreadable.object))
}

/// The history was compacted between two lists.
fn too_late() {
    tracing::warn!(
        "the IPAddresses and node ports of Services were not compared with the Services: the next start does so"
    );
}

fn list(state: &State, resource: &GroupResource, at: At) -> Result<List, Failure> {
    state.store.list(resource, &Scope::All, at, Page::ALL).map_err(|error| Failure::of_read(&error))
}

async fn repair_addresses(
    state: &State,
    services: &[Value],
    stored: Vec<Arc<Object>>,
    is_complete: bool,
) -> Result<(), Failure> {
    let mut owners: BTreeMap<IpAddr, Owner> = BTreeMap::new();
    for service in services {
        let text = |key| str_at(service, &["metadata", key]).unwrap_or_default();
        let key = ObjectKey::namespaced(text("namespace"), text("name"));
        let owner = Owner { key, revision: Revision::parse(text("resourceVersion")).unwrap_or_default() };
        owners.extend(allocator::addresses(service).into_iter().map(|address| (address, owner.clone())));
    }
    let mut others = HashMap::new();
    for object in stored {
        let Ok(address) = object.key.name.parse::<IpAddr>() else { continue };
        let parent = conversion::parse(&object)?;
        match owners.get(&address) {
            Some(owner) if addresses::is_of(&parent, &owner.key) => {
                owners.remove(&address);
            }
            Some(_) => {
                others.insert(address, object);
            }
            None if is_complete && is_left_behind(state, &object, &parent) => {
                match state.store.delete(&addresses::resource(), &object.key, object.revision).await {
                    Ok(_) | Err(WriteError::Conflict { .. }) => {}
                    Err(error) => {
                        return Err(Failure::of_write(&error, &addresses::resource(), &object.key.name));
                    }
                }
            }
            None => {}
        }
    }
    // Many concurrently, so that they share commits of the store: a file of a release without these objects may have
    // thousands of Services.
    let missing = stream::iter(owners).map(Ok);
    let put = |(address, owner): (IpAddr, Owner)| {
        let other = others.get(&address).map(|object| object.revision);
        async move { put(state, address, &owner, other).await }
    };
    missing.try_for_each_concurrent(AT_ONCE, put).await
}

/// Whether an object without a Service is one of ours, and older than the time that a Service may take to be written.
fn is_left_behind(state: &State, object: &Object, parsed: &Value) -> bool {
    let created = str_at(parsed, &["metadata", "creationTimestamp"]).and_then(time::parse);
    let age = created.map_or(i64::MAX, |created| state.now().as_second().saturating_sub(created.as_second()));
    object.label(MANAGED_BY) == Some(ALLOCATOR) && (ORPHAN_SECONDS <= age || !state.store.is_shared())
}

/// Writes the object of an address; `other` is the revision of one that names another Service.
async fn put(state: &State, address: IpAddr, owner: &Owner, other: Option<Revision>) -> Result<(), Failure> {
    let (resource, key) = (addresses::resource(), addresses::key(address));
    let draft = addresses::draft(state, address, &owner.key)?;
    // Another server may have changed or deleted the Service since it was listed.
    let guards = [Guard {
        resource: GroupResource::new("", "services"),
        key: owner.key.clone(),
        expected: Some(owner.revision),
        change: GuardChange::Nothing,
    }];
    let written = match other {
        Some(revision) => state.store.update_with(&resource, &key, revision, draft, &guards).await,
        None => state.store.create_with(&resource, &key, draft, &guards).await,
    };
    match written {
        Ok(_) | Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. } | WriteError::Guard { .. }) => {
            Ok(())
        }
        // Reading it for the server itself removes a damaged object, so that it can be made again.
        Err(WriteError::Unreadable { .. }) if state.get_own(&resource, &key).await?.is_none() => {
            Box::pin(put(state, address, owner, None)).await
        }
        Err(error) => Err(Failure::of_write(&error, &resource, &key.name)),
    }
}

async fn repair_node_ports(
    state: &State,
    services: &[Value],
    stored: Option<Arc<Object>>,
    is_complete: bool,
) -> Result<(), Failure> {
    let mut ports: NodePorts = services.iter().flat_map(allocator::node_ports).collect();
    let recorded = match &stored {
        Some(stored) => node_ports::read(&conversion::parse(stored)?),
        None => Some(NodePorts::new()),
    };
    if !is_complete {
        ports.extend(recorded.iter().flatten());
    }
    let is_right = recorded == Some(ports.clone());
    if is_right {
        return Ok(());
    }
    let (resource, key) = (node_ports::resource(), node_ports::key());
    let draft = node_ports::draft(state.services.node_ports(), &ports)?;
    let written = match stored {
        Some(stored) => state.store.update_with(&resource, &key, stored.revision, draft, &[]).await,
        None => state.store.create_with(&resource, &key, draft, &[]).await,
    };
    match written {
        // On a conflict a Service has been written meanwhile, by a server that has repaired them before.
        Ok(_) | Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => Ok(()),
        // Reading it for the server itself removes a damaged one.
        Err(WriteError::Unreadable { .. }) if state.get_own(&resource, &key).await?.is_none() => {
            Box::pin(repair_node_ports(state, services, None, is_complete)).await
        }
        Err(error) => Err(Failure::of_write(&error, &resource, &key.name)),
    }
}
