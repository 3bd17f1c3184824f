//! Every verb on every resource, one pipeline for all kinds.
//!
//! The stages of a write and the forms an object takes in them are described in [`crate::strategy`]; what is particular
//! about a kind is asked of its [`Strategy`](crate::strategy::Strategy), never decided here.

mod admission;
mod allocation;
mod body;
mod context;
mod create;
mod current;
mod delete;
mod get;
mod list;
mod managed;
mod metadata;
mod own;
mod patch;
mod scale;
mod select;
mod subresource;
mod update;
mod watch;

pub(crate) use self::allocation::observe;
pub(crate) use self::context::{Context, read_failure, tree};
pub(crate) use self::create::{Recorded, insert};
pub(crate) use self::delete::{DeleteOutcome, delete_object, is_done_waiting};
pub(crate) use self::own::Own;
pub(crate) use self::watch::{WatchAnswer, WatchStream, error_frame};

use crate::answer::Answer;
use crate::status::Failure;
use bytes::Bytes;
use http::Method;

/// Carries out a request on a resource.
///
/// # Errors
/// With the answer for the client.
pub(crate) async fn handle(cx: &mut Context<'_>, method: &Method, body: Bytes) -> Result<Answer, Failure> {
    let is_collection = !cx.target.has_name_in_path;
    if cx.target.has_rest {
        return Err(Failure::unknown_resource());
    }
    if let Some(obstacle) = cx.strategy().obstacle(cx.resource(), cx.version()) {
        return Err(Failure::internal(obstacle));
    }
    if let Some(fault) = cx.target.name.as_deref().filter(|_| !is_collection).and_then(path_fault) {
        return Err(Failure::bad_request(fault));
    }
    if cx.target.is_old_watch && *method != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    match cx.target.subresource.as_deref() {
        None => {}
        Some("status") if cx.version().has_status => {}
        Some("scale") if cx.version().scale.is_some() => return scale::handle(cx, method, body).await,
        Some(name) => {
            let Some(subresource) = cx.version().subresources.iter().find(|one| &*one.name == name).cloned() else {
                return Err(Failure::unknown_resource());
            };
            return subresource::handle(cx, &subresource, method, body).await;
        }
    }
    match *method {
        Method::GET if cx.verb == "watch" => watch::watch(cx).await,
        Method::GET if is_collection => list::list(cx).await,
        Method::GET => get::get(cx).await,
        Method::POST if is_collection => create::create(cx, body).await,
        Method::PUT if !is_collection => update::update(cx, body).await,
        Method::PATCH if !is_collection => patch::patch(cx, body).await,
        Method::DELETE if is_collection && cx.allows(crate::catalog::Verb::DeleteCollection) => {
            delete::delete_collection(cx, body).await
        }
        Method::DELETE if !is_collection && cx.target.subresource.is_none() => delete::delete(cx, body).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

/// What is wrong with a name as a segment of a path.
fn path_fault(name: &str) -> Option<String> {
    let fault = steersman_machinery::name::path_segment(name).into_iter().next()?;
    Some(format!("Name parameter invalid: {name:?}: {fault}"))
}
