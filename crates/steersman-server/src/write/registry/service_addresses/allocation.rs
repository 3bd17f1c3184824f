//! Allocates the values that no two Services may share: cluster IPs and node ports, from the ranges of ServiceCIDRs.
//! The IPAddress objects that show the owners of addresses are in [`crate::write::registry::service_addresses::addresses`].

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::metadata;
use crate::write::registry::service_addresses::addresses;
use crate::write::registry::service_addresses::allocator::{self, Reservation};
use std::net::IpAddr;
use steersman_machinery::{GroupResource, Object, Value};
use steersman_storage::{At, Page, Scope};

/// Registers the stored ServiceCIDRs and the addresses and ports of all stored Services with the allocator, and repairs
/// the IPAddress objects of these.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn observe(state: &State) -> Result<(), Failure> {
    let ranges = state.store.list(&service_cidrs(), &Scope::All, At::Latest, Page::ALL);
    for range in ranges.map_err(|error| Failure::of_read(&error))?.objects {
        state.services.observe_range(&conversion::parse(&range)?, range.revision);
    }
    let list = state.store.list(&services(), &Scope::All, At::Latest, Page::ALL);
    let mut all = Vec::new();
    for object in list.map_err(|error| Failure::of_read(&error))?.objects {
        let service = conversion::parse(&object)?;
        state.services.observe(&service);
        all.push(service);
    }
    addresses::repair(state, &all).await
}

/// Called when an object is stored: commits its reservation, and publishes its addresses.
///
/// # Errors
/// When the store cannot be written.
pub(crate) async fn stored(
    state: &State,
    operation: &Operation<'_>,
    reservation: Option<Reservation<'_>>,
    object: &Object,
) -> Result<(), Failure> {
    if let Some(address) = address_of(operation, object) {
        state.services.take_address(address);
    }
    let Some(reservation) = reservation else { return Ok(()) };
    let (added, removed) = reservation.addresses();
    reservation.commit();
    addresses::publish(state, &added, &removed, object).await
}

/// Called when an object is stored, even if it is marked as being deleted: a ServiceCIDR yields addresses while it is
/// ready.
///
/// # Errors
/// When the stored object cannot be read.
pub(crate) fn written(state: &State, operation: &Operation<'_>, object: &Object) -> Result<(), Failure> {
    if *operation.storage() == service_cidrs() {
        state.services.observe_range(&conversion::parse(object)?, object.revision);
    }
    Ok(())
}

/// The address of an IPAddress object.
fn address_of(operation: &Operation<'_>, object: &Object) -> Option<IpAddr> {
    let is_address = operation.attributes.is_about("networking.k8s.io", "ipaddresses");
    if is_address { object.key.name.parse().ok() } else { None }
}

/// Allocates the values that a prepared Service still needs; does nothing for other kinds. The reservation must be
/// committed when the Service is stored. A dry run fills in addresses and ports without reserving them.
///
/// # Errors
/// 422 when an address or port that it names is taken, or the range is exhausted.
pub(crate) fn reserve<'s>(
    state: &'s State,
    operation: &Operation<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<Option<Reservation<'s>>, Failure> {
    if *operation.storage() != services() {
        return Ok(None);
    }
    let reserved = match operation.options.is_dry_run {
        true => state.services.preview(new, old).map(|()| None),
        false => state.services.reserve(new, old).map(Some),
    };
    let name = metadata::text(new, "name");
    reserved.map_err(|errors| Failure::invalid(&operation.resource().group_kind(), name, &errors))
}

/// Releases the addresses and ports of a deleted Service, or the address of a deleted IPAddress that no Service uses.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn release(state: &State, operation: &Operation<'_>, object: &Object) -> Result<(), Failure> {
    if let Some(address) = address_of(operation, object) {
        state.services.release_address(address);
    }
    if *operation.storage() == service_cidrs() {
        state.services.forget_range(&object.key.name);
    }
    if *operation.storage() == services() {
        let service = conversion::parse(object)?;
        // The objects are removed first: a free address has none.
        addresses::publish(state, &[], &allocator::addresses(&service), object).await?;
        state.services.release(&service);
    }
    Ok(())
}

fn service_cidrs() -> GroupResource {
    GroupResource::new("networking.k8s.io", "servicecidrs")
}

fn services() -> GroupResource {
    GroupResource::new("", "services")
}
