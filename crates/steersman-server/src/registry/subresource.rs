//! Subresources beside status and scale: `finalize` of a Namespace.

use crate::answer::{Answer, Payload};
use crate::catalog::{Subresource, Verb};
use crate::negotiate::{Shape, negotiate};
use crate::options::Write;
use crate::registry::context::Context;
use crate::registry::{body, create, update};
use crate::status::Failure;
use bytes::Bytes;
use http::Method;

pub(crate) async fn handle(
    cx: &mut Context<'_>,
    subresource: &Subresource,
    method: &Method,
    bytes: Bytes,
) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    let is_update = *method == Method::PUT && subresource.verbs.contains(&Verb::Update);
    if !is_update {
        return Err(Failure::method_not_allowed());
    }
    let options = Write::parse(cx.query, "UpdateOptions", false)?;
    let mut object = body::decode(cx, &bytes, options.field_validation)?;
    create::set_namespace(cx, &mut object)?;
    update::check_name(cx, &object)?;
    let (payload, _): (Payload, bool) = update::put(cx, &options, object).await?;
    Answer::object(cx, 200, payload, negotiated)
}
