//! The IPAddress objects of Services: one for each address of a Service, written and deleted with it.
//!
//! The allocator assigns addresses; the objects show the assignments to clients. They are written after the Service, so
//! a crash in between leaves one too few or one too many: [`repair`] fixes that at the next start.

use crate::shared::conversion;
use crate::shared::operation::seconds;
use crate::shared::status::Failure;
use crate::shared::uid;
use crate::state::State;
use crate::write::registry::service_addresses::allocator::addresses;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::Served;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value};
use steersman_storage::{At, Page, Scope, WriteError};

/// The label of the objects that the server maintains.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// The number of objects that are written concurrently.
const AT_ONCE: usize = 64;

/// Updates the objects of a Service after a write of it.
///
/// # Errors
/// When the store cannot be written.
pub(crate) async fn publish(
    state: &State,
    added: &[IpAddr],
    removed: &[IpAddr],
    service: &Object,
) -> Result<(), Failure> {
    if added.is_empty() && removed.is_empty() {
        return Ok(());
    }
    let catalog = state.catalog();
    let Some(served) = catalog.find("networking.k8s.io", "v1", "ipaddresses") else { return Ok(()) };
    for address in removed {
        remove(state, *address, &service.key).await?;
    }
    for address in added {
        create(state, served, *address, &service.key).await?;
    }
    Ok(())
}

/// Repairs the objects of all stored Services, and registers the addresses of all objects with the allocator.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn repair(state: &State, services: &[Value]) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find("networking.k8s.io", "v1", "ipaddresses") else { return Ok(()) };
    let mut owners: BTreeMap<IpAddr, ObjectKey> = BTreeMap::new();
    for service in services {
        let text = |key| str_at(service, &["metadata", key]).unwrap_or_default();
        let key = ObjectKey::namespaced(text("namespace"), text("name"));
        owners.extend(addresses(service).into_iter().map(|address| (address, key.clone())));
    }
    let stored = state.store.list(&resource(), &Scope::All, At::Latest, Page::ALL);
    for object in stored.map_err(|error| Failure::of_read(&error))?.objects {
        let Ok(address) = object.key.name.parse::<IpAddr>() else { continue };
        let parent = conversion::parse(&object)?;
        let is_owned = owners.get(&address).is_some_and(|owner| is_of(&parent, owner));
        match is_owned {
            true => {
                owners.remove(&address);
            }
            false if object.label(MANAGED_BY) == Some(ALLOCATOR) => {
                let deleted = state.store.delete(&resource(), &object.key, object.revision).await;
                deleted.map_err(|error| Failure::of_write(&error, &resource(), &object.key.name))?;
            }
            false => state.services.take_address(address),
        }
    }
    // Many concurrently, so that they share commits of the store: a file of a release without these objects may have
    // thousands of Services.
    let missing = stream::iter(owners).map(Ok);
    let create = |(address, owner): (IpAddr, ObjectKey)| async move { create(state, served, address, &owner).await };
    missing.try_for_each_concurrent(AT_ONCE, create).await
}

/// Whether an object names this Service as its parent.
fn is_of(object: &Value, service: &ObjectKey) -> bool {
    let parent = |field| str_at(object, &["spec", "parentRef", field]).unwrap_or_default();
    parent("resource") == "services"
        && parent("group").is_empty()
        && parent("name") == &*service.name
        && service.namespace.as_deref() == Some(parent("namespace"))
}

async fn create(state: &State, served: &Served, address: IpAddr, service: &ObjectKey) -> Result<(), Failure> {
    let key = ObjectKey::cluster(&*address.to_string());
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let object = json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": &*key.name, "uid": uid::random(), "creationTimestamp": seconds(state.now()),
            "labels": {"ipaddress.kubernetes.io/ip-family": family, MANAGED_BY: ALLOCATOR},
        },
        "spec": {"parentRef": {
            "resource": "services", "namespace": service.namespace.as_deref().unwrap_or_default(), "name": &*service.name,
        }},
    });
    let draft = at_rest::draft(&served.resource, object).map_err(|error| Failure::internal(error.to_string()))?;
    match state.store.create_with(&resource(), &key, draft, &[]).await {
        Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
        // Reading it for the server itself removes a damaged object, so that it can be made again.
        Err(WriteError::Unreadable { .. }) if state.get_own(&resource(), &key).await?.is_none() => {
            Box::pin(create(state, served, address, service)).await
        }
        Err(error) => Err(Failure::of_write(&error, &resource(), &key.name)),
    }
}

async fn remove(state: &State, address: IpAddr, service: &ObjectKey) -> Result<(), Failure> {
    let key = ObjectKey::cluster(&*address.to_string());
    let Some(object) = state.get_own(&resource(), &key).await? else { return Ok(()) };
    if !is_of(&conversion::parse(&object)?, service) {
        return Ok(());
    }
    match state.store.delete(&resource(), &key, object.revision).await {
        // Another client has changed or deleted it in the meantime.
        Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::of_write(&error, &resource(), &key.name)),
    }
}

fn resource() -> GroupResource {
    GroupResource::new("networking.k8s.io", "ipaddresses")
}
