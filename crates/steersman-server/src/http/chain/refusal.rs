//! Refuses requests that would change something, at a server that takes no writes.
//!
//! Reads pass, and so do reviews, which are sent like writes and store nothing. Of the subresources that lead to a node only the log is one that
//! reads.

use crate::http::route;
use crate::shared::request::request_info::RequestInfo;
use crate::shared::status::Failure;
use crate::write::writes::Writes;
use steersman_kinds::catalog::{Catalog, Handling};
use steersman_machinery::GroupResource;

/// Refuses a request that is no read, if writes are refused.
///
/// # Errors
/// 403 with the sentence of the server.
pub(super) fn check(writes: &Writes, catalog: &Catalog, info: &RequestInfo) -> Result<(), Failure> {
    let (Some(why), Some(target)) = (writes.refusal(), &info.target) else { return Ok(()) };
    let is_read = match info.verb {
        "get" | "list" | "watch" => {
            target.subresource.as_deref() == Some("log") || !route::leads_to_node(catalog, info)
        }
        "create" => {
            let served = catalog.find(&target.group, &target.version, &target.resource);
            served.is_some_and(|served| served.resource.handling() == Handling::Virtual)
        }
        _ => false,
    };
    if is_read {
        return Ok(());
    }
    let name = match &target.subresource {
        None => target.resource.clone(),
        Some(subresource) => format!("{}/{subresource}", target.resource),
    };
    let resource = GroupResource::new(target.group.as_str(), name);
    Err(Failure::forbidden(&resource, target.name.as_deref().unwrap_or_default(), why))
}
