//! `SelfSubjectReview`: the user of the request, as authenticated (`kubectl auth whoami`).

use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use futures::future::{self, BoxFuture};
use serde_json::json;
use steersman_machinery::Value;

pub(super) fn who<'a>(
    _state: &'a State,
    operation: &'a mut Operation<'_>,
    _review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    let kind = operation.served.kind();
    // The answer has nothing of the request's body.
    let answer = json!({
        "kind": kind.kind,
        "apiVersion": kind.api_version(),
        "metadata": {"creationTimestamp": operation.now_text()},
        "status": {"userInfo": operation.user},
    });
    Box::pin(future::ready(Ok(answer)))
}
