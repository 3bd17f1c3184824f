//! GET of one object.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::compute::text_bytes;
use crate::shared::request::negotiate::Shape;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use steersman_machinery::Revision;

/// Answers with the object in the path: the current one, or one at least as new as the requested version.
pub(crate) async fn get(cx: &Context<'_>) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::One)?)?;
    let object = match cx.query.non_empty("resourceVersion") {
        None => cx.current().await?,
        Some(text) => {
            let revision = Revision::parse(text)
                .map_err(|error| Failure::bad_request(format!("invalid resource version: {error}")))?;
            cx.state.wait_for(revision).await?;
            cx.cached()?
        }
    };
    if !representation.is_verbatim() {
        cx.operation.load.expect(text_bytes(object.json())).await;
    }
    Answer::object(200, Payload::Stored(object), &representation).await
}
