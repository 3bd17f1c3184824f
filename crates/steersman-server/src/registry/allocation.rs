//! What a Service is given once and nobody else may have: its addresses and ports.

use crate::builtin::service::Reservation;
use crate::registry::context::{Context, tree};
use crate::server::Inner;
use crate::status::Failure;
use steersman_machinery::{GroupResource, Object, Value};
use steersman_storage::{At, Page, Scope};

/// Tells the allocator what the stored Services have.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn observe(server: &Inner) -> Result<(), Failure> {
    let list = server.store.list(&services(), &Scope::All, At::Latest, Page::ALL);
    for object in list.map_err(|error| crate::registry::read_failure(&error))?.objects {
        server.services.observe(&tree(&object)?);
    }
    Ok(())
}

/// Gives a prepared Service what it still needs; nothing for other kinds. Commit it when the Service is stored.
///
/// # Errors
/// 422 when what it names is taken or nothing is left.
pub(crate) fn reserve<'a>(
    cx: &Context<'a>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<Option<Reservation<'a>>, Failure> {
    if *cx.storage() != services() {
        return Ok(None);
    }
    let reserved = cx.server.services.reserve(new, old);
    let name = crate::registry::metadata::text(new, "name");
    reserved.map(Some).map_err(|errors| Failure::invalid(&cx.resource().group_kind(), name, &errors))
}

/// Gives back what a deleted Service had.
pub(crate) fn release(cx: &Context<'_>, object: &Object) {
    if *cx.storage() == services()
        && let Ok(service) = tree(object)
    {
        cx.server.services.release(&service);
    }
}

fn services() -> GroupResource {
    GroupResource::new("", "services")
}
