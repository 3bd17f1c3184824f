//! ComponentStatuses: the health of the parts that the server itself depends on. They are made when they are read;
//! there is one such part, the store, under the name that clients expect.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::Selection;
use crate::http::representation::ListHead;
use crate::shared::request::negotiate::{Shape, negotiate};
use crate::shared::request::options;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_machinery::{Object, ObjectKey};

const STORE: &str = "etcd-0";

/// Carries out a request on component statuses, which can only be read.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(cx: &Context<'_>, method: &Method) -> Result<Answer, Failure> {
    if cx.operation.attributes.subresource.is_some() {
        return Err(Failure::unknown_resource());
    }
    match (method, cx.operation.attributes.verb) {
        (&Method::GET, "get") => {
            let representation = cx.representation(negotiate(&cx.parts.headers, Shape::One)?)?;
            let name = cx.operation.name();
            if name != STORE {
                return Err(Failure::not_found(&cx.operation.group_resource(), name));
            }
            Answer::object(200, Payload::Stored(Arc::new(store(cx)?)), &representation).await
        }
        (&Method::GET, "list") => {
            let representation = cx.representation(negotiate(&cx.parts.headers, Shape::List)?)?;
            let options = options::List::parse(cx.query, options::Purpose::List)?;
            let selection = Selection::new(cx, &options)?;
            let mut objects = vec![Arc::new(store(cx)?)];
            objects.retain(|object| selection.selects(object));
            let head = ListHead { revision: Some(cx.state.sync().await?), token: None, remaining: None };
            Answer::list(objects, &head, None, cx.rest(), representation).await
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// The state of the store as an object.
fn store(cx: &Context<'_>) -> Result<Object, Failure> {
    let condition = match cx.state.store.health() {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(error) => json!({"type": "Healthy", "status": "False", "error": error.to_string()}),
    };
    let status = json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": STORE}, "conditions": [condition],
    });
    let draft =
        at_rest::draft(cx.operation.resource(), status).map_err(|error| Failure::internal(error.to_string()))?;
    let revision = cx.state.store.stats().revision;
    Object::decode(ObjectKey::cluster(STORE), revision, &draft.encode())
        .map_err(|error| Failure::internal(error.to_string()))
}
