//! Requests on resources: turns a request into an operation, has it carried out, and makes the answer.
//!
//! The catalog's row of a resource or subresource has one of five kinds of handling: *stored*, a kind whose objects are
//! kept, with the subresources that are parts of them; *virtual*, a review, which is answered and not kept; *connect*,
//! a subresource that takes an object of another kind and acts on the object in the path, such as a Binding; *stream*,
//! a subresource that leads to what runs the object, such as its logs; *computed*, a kind whose objects are made when
//! they are read.

mod agent;
mod component_statuses;
mod connect;
pub(crate) mod context;
mod resource_metrics;
mod reviews;
mod stored;
mod stream;

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::request::unread::Unread;
use crate::shared::status::Failure;
use bytes::Bytes;
use http::Method;
use steersman_kinds::builtin::cluster::resource_metrics::GROUP;
use steersman_kinds::catalog::Handling;

/// Carries out a request on a resource.
///
/// # Errors
/// With the answer for the client.
pub(crate) async fn handle(cx: &mut Context<'_>, body: Bytes, unread: Unread) -> Result<Answer, Failure> {
    let method = &cx.parts.method;
    // A path after a proxy belongs to the proxied server.
    if cx.target.has_rest && cx.target.subresource.as_deref() != Some("proxy") {
        return Err(Failure::unknown_resource());
    }
    if let Some(fault) = cx.target.name.as_deref().filter(|_| cx.target.has_name_in_path).and_then(path_fault) {
        return Err(Failure::bad_request(fault));
    }
    if cx.target.is_old_watch {
        // The verb that was authorized is `watch`, and only collections and objects are watched.
        if cx.target.subresource.is_some() {
            return Err(Failure::unknown_resource());
        }
        if *method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
    }
    let operation = &cx.operation;
    match operation.resource().handling() {
        Handling::Computed if *operation.resource().group == *GROUP => {
            return resource_metrics::handle(cx, method).await;
        }
        Handling::Computed => return component_statuses::handle(cx, method).await,
        Handling::Connect => return connect::by_name(cx, method, body).await,
        Handling::Virtual => return reviews::handle(cx, method, body).await,
        Handling::Stored | Handling::Stream => {}
    }
    let name = operation.attributes.subresource;
    let subresource = name.and_then(|name| operation.version().subresources.iter().find(|one| &*one.name == name));
    match subresource.map(|subresource| (subresource.handling, subresource)) {
        Some((Handling::Connect, subresource)) => connect::handle(cx, subresource, method, body).await,
        Some((Handling::Stream, subresource)) => stream::handle(cx, subresource, unread).await,
        Some((Handling::Computed | Handling::Stored | Handling::Virtual, _)) | None => {
            stored::handle(cx, method, body).await
        }
    }
}

/// The reason why a name cannot be a segment of a path.
fn path_fault(name: &str) -> Option<String> {
    let fault = steersman_machinery::name::path_segment(name).into_iter().next()?;
    Some(format!("Name parameter invalid: {name:?}: {fault}"))
}
