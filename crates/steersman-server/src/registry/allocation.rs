//! Allocates what no two Services may share: cluster IPs and node ports.

use crate::builtin::service::Reservation;
use crate::conversion;
use crate::operation::Operation;
use crate::registry::metadata;
use crate::state::State;
use crate::status::Failure;
use steersman_machinery::{GroupResource, Object, Value};
use steersman_storage::{At, Page, Scope};

/// Registers the addresses and ports of all stored Services with the allocator.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn observe(state: &State) -> Result<(), Failure> {
    let list = state.store.list(&services(), &Scope::All, At::Latest, Page::ALL);
    for object in list.map_err(|error| Failure::of_read(&error))?.objects {
        state.services.observe(&conversion::parse(&object)?);
    }
    Ok(())
}

/// Allocates what a prepared Service still needs; does nothing for other kinds. The reservation must be committed once the
/// Service is stored. A dry run fills in addresses and ports without reserving them.
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

/// Releases the addresses and ports of a deleted Service.
pub(crate) fn release(state: &State, operation: &Operation<'_>, object: &Object) {
    if *operation.storage() == services()
        && let Ok(service) = conversion::parse(object)
    {
        state.services.release(&service);
    }
}

fn services() -> GroupResource {
    GroupResource::new("", "services")
}
