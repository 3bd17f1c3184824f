//! Kinds whose objects are stored: every verb on an object and on a collection, and the subresources that are parts of objects.

mod creation;
mod delete_collection;
mod get;
mod list;
mod object;
mod scale;
mod select;
mod watch;

pub(super) use self::select::Selection;

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::status::Failure;
use bytes::Bytes;
use http::Method;
use steersman_kinds::catalog::Verb;

/// Carries out a request on a stored kind.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(cx: &mut Context<'_>, method: &Method, body: Bytes) -> Result<Answer, Failure> {
    let version = cx.operation.version();
    match cx.operation.attributes.subresource {
        None => {}
        Some("status") if version.has_status => {}
        Some("scale") if version.scale.is_some() => return scale::handle(cx, method, body).await,
        Some(name) => {
            let Some(subresource) = version.subresources.iter().find(|one| &*one.name == name) else {
                return Err(Failure::unknown_resource());
            };
            let allows = |verb| subresource.verbs.contains(&verb);
            return match *method {
                Method::GET if allows(Verb::Get) => get::get(cx).await,
                Method::PATCH if allows(Verb::Patch) => object::patch(cx, body).await,
                Method::PUT if allows(Verb::Update) => object::update(cx, body).await,
                _ => Err(Failure::method_not_allowed()),
            };
        }
    }
    let is_collection = !cx.target.has_name_in_path;
    match *method {
        Method::GET if cx.operation.attributes.verb == "watch" => watch::watch(cx).await,
        Method::GET if is_collection => list::list(cx).await,
        Method::GET => get::get(cx).await,
        Method::POST if is_collection => object::create(cx, body).await,
        Method::PUT if !is_collection => object::update(cx, body).await,
        Method::PATCH if !is_collection => object::patch(cx, body).await,
        Method::DELETE if is_collection && cx.operation.allows(Verb::DeleteCollection) => {
            delete_collection::delete_collection(cx, body).await
        }
        Method::DELETE if !is_collection && cx.operation.attributes.subresource.is_none() => {
            object::delete(cx, body).await
        }
        _ => Err(Failure::method_not_allowed()),
    }
}
