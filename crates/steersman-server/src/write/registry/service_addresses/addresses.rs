//! The IPAddress objects of Services: one for each address of a Service, written and deleted in the same transaction.

use crate::shared::conversion;
use crate::shared::identity::uid;
use crate::shared::operation::{Operation, seconds};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::managed;
use serde_json::json;
use std::net::IpAddr;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::str_at;
use steersman_machinery::{Draft, GroupResource, ObjectKey, Value};
use steersman_storage::{Guard, GuardChange};

/// The label of the objects that the server maintains.
pub(super) const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
pub(super) const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The creation of the object of an address, as a part of the write of its Service. It fails if the address has an
/// object.
///
/// # Errors
/// When the object cannot be made.
pub(super) fn claim(state: &State, address: IpAddr, service: &ObjectKey) -> Result<Guard, Failure> {
    let change = GuardChange::Put(draft(state, address, service)?);
    Ok(Guard { resource: resource(), key: key(address), expected: None, change })
}

/// The deletion of the object of an address; `None` if the Service has none there.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn release(state: &State, address: IpAddr, service: &ObjectKey) -> Result<Option<Guard>, Failure> {
    let key = key(address);
    let Some(object) = state.get_own(&resource(), &key).await? else { return Ok(None) };
    if !is_of(&conversion::parse(&object)?, service) {
        return Ok(None);
    }
    let (expected, change) = (Some(object.revision), GuardChange::Delete);
    Ok(Some(Guard { resource: resource(), key, expected, change }))
}

/// The object of an address of a Service.
///
/// # Errors
/// When the object cannot be made.
pub(super) fn draft(state: &State, address: IpAddr, service: &ObjectKey) -> Result<Draft, Failure> {
    let catalog = state.catalog();
    let served = catalog.find("networking.k8s.io", "v1", "ipaddresses").ok_or_else(Failure::unknown_resource)?;
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let mut object = json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": &*key(address).name, "uid": uid::random(), "creationTimestamp": seconds(state.now()),
            "labels": {"ipaddress.kubernetes.io/ip-family": family, MANAGED_BY: ALLOCATOR},
        },
        "spec": {"parentRef": {
            "resource": "services", "namespace": service.namespace.as_deref().unwrap_or_default(), "name": &*service.name,
        }},
    });
    managed::record_new(&Operation::of_system(served, Verb::Create, state.now()), &mut object);
    at_rest::draft(&served.resource, object).map_err(|error| Failure::internal(error.to_string()))
}

/// Whether an object names this Service as its parent.
pub(super) fn is_of(object: &Value, service: &ObjectKey) -> bool {
    let parent = |field| str_at(object, &["spec", "parentRef", field]).unwrap_or_default();
    parent("resource") == "services"
        && parent("group").is_empty()
        && parent("name") == &*service.name
        && service.namespace.as_deref() == Some(parent("namespace"))
}

pub(super) fn key(address: IpAddr) -> ObjectKey {
    ObjectKey::cluster(&*address.to_string())
}

pub(super) fn resource() -> GroupResource {
    GroupResource::new("networking.k8s.io", "ipaddresses")
}
