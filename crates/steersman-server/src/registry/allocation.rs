//! What a Service is given once and nobody else may have: its addresses and ports.

use crate::builtin::service::Reservation;
use crate::conversion;
use crate::operation::Operation;
use crate::registry::metadata;
use crate::state::State;
use crate::status::Failure;
use steersman_machinery::{GroupResource, Object, Value};
use steersman_storage::{At, Page, Scope};

/// Tells the allocator what the stored Services have.
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

/// Gives a prepared Service what it still needs; nothing for other kinds. Commit it when the Service is stored. In a dry run
/// it gets what it would get, and nothing is taken.
///
/// # Errors
/// 422 when what it names is taken or nothing is left.
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

/// Gives back what a deleted Service had.
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
