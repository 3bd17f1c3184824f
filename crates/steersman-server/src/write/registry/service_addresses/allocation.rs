//! Allocates the values that no two Services may share: cluster IPs and node ports, from the ranges of ServiceCIDRs.
//!
//! The allocator proposes values that are free as far as this server knows. They are claimed in the transaction that
//! writes the Service: its IPAddress objects must be absent, and the stored node ports must be as they were read. So two
//! servers never give out the same value, and a crash leaves nothing allocated.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::metadata;
use crate::write::registry::service_addresses::addresses;
use crate::write::registry::service_addresses::allocator::Reservation;
use crate::write::registry::service_addresses::follower::Part;
use crate::write::registry::service_addresses::node_ports;
use crate::write::registry::service_addresses::repair;
use steersman_machinery::{Object, ObjectKey, Revision, Value};
use steersman_storage::{Guard, GuardChange, WriteError};

/// Allocates the values that a prepared Service still needs; does nothing for other kinds. A dry run fills in addresses
/// and ports without reserving them.
///
/// # Errors
/// 422 when an address or port that it names is taken, or the range is exhausted.
pub(crate) fn reserve<'s>(
    state: &'s State,
    operation: &Operation<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<Option<Reservation<'s>>, Failure> {
    if !is_of_services(operation) {
        return Ok(None);
    }
    let reserved = match operation.options.is_dry_run {
        true => state.services.preview(new, old).map(|()| None),
        false => state.services.reserve(new, old).map(Some),
    };
    let name = metadata::text(new, "name");
    reserved.map_err(|errors| Failure::invalid(&operation.resource().group_kind(), name, &errors))
}

/// The values that a deletion of this object frees; `None` for other kinds than Services.
///
/// # Errors
/// When the stored object cannot be read.
pub(crate) fn freed<'s>(
    state: &'s State,
    operation: &Operation<'_>,
    object: &Object,
) -> Result<Option<Reservation<'s>>, Failure> {
    if !is_of_services(operation) {
        return Ok(None);
    }
    Ok(Some(state.services.freed(&conversion::parse(object)?)))
}

/// The outcome of a reservation that may wait until the fields of the object are known to be valid. Upstream does not look for taken ports in a
/// dry run, so that errors of fields come first there.
///
/// # Errors
/// When the refusal comes before that.
pub(crate) fn after_errors_of_fields<'s>(
    operation: &Operation<'_>,
    reserved: Result<Option<Reservation<'s>>, Failure>,
) -> Result<Result<Option<Reservation<'s>>, Failure>, Failure> {
    let Err(failure) = &reserved else { return Ok(reserved) };
    let causes = failure.status.details.iter().flat_map(|details| &details.causes);
    let is_about_ports = causes.clone().count() > 0 && causes.into_iter().all(|cause| cause.field.ends_with("odePort"));
    if operation.options.is_dry_run && is_about_ports { Ok(reserved) } else { reserved.map(Ok) }
}

/// The changes of IPAddresses and node ports that belong to a reservation; `None` if another server has allocated one of
/// the ports: then another attempt finds others.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn claims(
    state: &State,
    reservation: &Reservation<'_>,
    service: &ObjectKey,
) -> Result<Option<Vec<Guard>>, Failure> {
    let mut guards = Vec::new();
    let (added, removed) = reservation.addresses();
    for address in removed {
        guards.extend(addresses::release(state, address, service).await?);
    }
    for address in added {
        guards.push(addresses::claim(state, address, service)?);
    }
    let (added, removed) = reservation.node_ports();
    if added.is_empty() && removed.is_empty() {
        return Ok(Some(guards));
    }
    let (resource, key) = (node_ports::resource(), node_ports::key());
    let stored = state.get_own(&resource, &key).await?;
    let read = match &stored {
        Some(stored) => node_ports::read(&conversion::parse(stored)?),
        None => None,
    };
    let mut ports = match read {
        Some(ports) => ports,
        None => {
            let ports = repair::node_ports_of_services(state)?;
            state.services.replace_node_ports(ports.clone());
            ports
        }
    };
    for port in &removed {
        ports.remove(port);
    }
    for port in added {
        if !ports.insert(port) {
            if let Some(stored) = &stored {
                state.services.followers.progress(Part::NodePorts).wait_for(stored.revision).await;
            }
            return Ok(None);
        }
    }
    let change = GuardChange::Put(node_ports::draft(state.services.node_ports(), &ports)?);
    guards.push(Guard { resource, key, expected: stored.map(|stored| stored.revision), change });
    Ok(Some(guards))
}

/// Waits until the allocator knows what a write at this revision has changed with these guards, and ends its reservation.
pub(crate) async fn committed(
    state: &State,
    reservation: Option<Reservation<'_>>,
    guards: &[Guard],
    revision: Revision,
) {
    for guard in guards.iter().filter(|guard| !matches!(guard.change, GuardChange::Nothing)) {
        // Nothing follows the store any more if the server stops.
        state.services.wait_for(&guard.resource, revision).await;
    }
    drop(reservation);
}

/// Called when a guard did not hold or cannot be read. Waits until the allocator knows why.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn failed(state: &State, guards: &[Guard], error: &WriteError) -> Result<(), Failure> {
    match error {
        WriteError::Guard { resource, current: Some(current), .. } => {
            state.services.wait_for(resource, current.revision).await;
        }
        // Reading it for the server itself removes a damaged object, so that it can be made again.
        WriteError::Unreadable { key, .. } => {
            if let Some(guard) = guards.iter().find(|guard| guard.key == *key) {
                state.get_own(&guard.resource, key).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_of_services(operation: &Operation<'_>) -> bool {
    Part::of(operation.storage()) == Some(Part::Services)
}
