//! What a path below a resource stands for: reads a request, has it carried out, and makes the answer.
//!
//! The catalog's row of a resource or subresource says which of three it is: *stored*, a kind that is kept, with the
//! subresources that are parts of its objects; *virtual*, a review, which is answered and not kept; *connect*, a subresource
//! that takes objects of another kind and does what they say.

mod connect;
pub(crate) mod context;
mod reviews;
mod stored;

use crate::answer::Answer;
use crate::catalog::Handling;
use crate::endpoint::context::Context;
use crate::status::Failure;
use bytes::Bytes;
use http::Method;

/// Carries out a request on a resource.
///
/// # Errors
/// With the answer for the client.
pub(crate) async fn handle(cx: &mut Context<'_>, method: &Method, body: Bytes) -> Result<Answer, Failure> {
    if cx.target.has_rest {
        return Err(Failure::unknown_resource());
    }
    if let Some(obstacle) = cx.operation.strategy().obstacle(cx.operation.resource(), cx.operation.version()) {
        return Err(Failure::internal(obstacle));
    }
    if let Some(fault) = cx.target.name.as_deref().filter(|_| cx.target.has_name_in_path).and_then(path_fault) {
        return Err(Failure::bad_request(fault));
    }
    if cx.target.is_old_watch && *method != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    let operation = &cx.operation;
    match operation.resource().handling() {
        Handling::Virtual => return reviews::handle(cx, method, body).await,
        Handling::Connect | Handling::Stored => {}
    }
    let name = operation.attributes.subresource;
    let subresource = name.and_then(|name| operation.version().subresources.iter().find(|one| &*one.name == name));
    match subresource.filter(|subresource| subresource.handling == Handling::Connect) {
        Some(subresource) => connect::handle(cx, subresource, method, body).await,
        None => stored::handle(cx, method, body).await,
    }
}

/// What is wrong with a name as a segment of a path.
fn path_fault(name: &str) -> Option<String> {
    let fault = steersman_machinery::name::path_segment(name).into_iter().next()?;
    Some(format!("Name parameter invalid: {name:?}: {fault}"))
}
