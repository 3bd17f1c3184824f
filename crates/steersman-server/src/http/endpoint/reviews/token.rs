//! `TokenReview`: authenticates a token for a client that received it.

use crate::shared::operation::{Notes, Operation};
use crate::shared::status::Failure;
use crate::state::State;
use futures::future::BoxFuture;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{at, set_at, str_at};

pub(super) fn whose<'a>(
    state: &'a State,
    operation: &'a mut Operation<'_>,
    mut review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    Box::pin(async move {
        let token = str_at(&review, &["spec", "token"]).unwrap_or_default();
        if token.is_empty() {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        let asked = at(&review, &["spec", "audiences"]).and_then(Value::as_array).filter(|list| !list.is_empty());
        let asked: Option<Vec<String>> =
            asked.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        let audiences = asked.as_deref().unwrap_or(state.authenticator.audiences());
        let mut notes = Notes::default();
        let identity = state.authenticator.token(token, audiences, &mut notes, operation.now).await;
        operation.warnings.append(&mut notes.warnings);
        operation.audit_annotations.append(&mut notes.audit_annotations);
        let status = match identity {
            Ok(identity) => {
                let mut status = json!({"authenticated": true, "user": &*identity.user});
                if !identity.audiences.is_empty() {
                    status["audiences"] = json!(identity.audiences);
                }
                status
            }
            Err(rejected) => json!({"user": {}, "error": rejected.to_string()}),
        };
        set_at(&mut review, &["status"], status);
        Ok(review)
    })
}
