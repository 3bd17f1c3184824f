//! One webhook and one write: matching, the call, and its result.

use crate::metrics::{WebhookCall, WebhookOutcome};
use crate::shared::identity::uid;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::admitted_write::{AdmittedWrite, Objects};
use crate::write::admission::dynamic::condition::{Inputs, Matched, Names};
use crate::write::admission::dynamic::questions::Questions;
use crate::write::admission::dynamic::webhook_plugins::request;
use crate::write::admission::dynamic::webhook_plugins::response::{self, Response};
use crate::write::admission::dynamic::webhooks::hook::Hook;
use crate::write::admission::dynamic::webhooks::registered::Kind;
use http::StatusCode;
use steersman_kinds::catalog::Served;
use steersman_machinery::{Value, name};
use tokio::time::Instant;

/// A write in the form that a webhook expects.
#[derive(Debug)]
pub(super) struct CallTarget<'a> {
    /// The version of its objects.
    pub(super) target: Served,
    pub(super) objects: Objects<'a>,
}

/// Why a webhook prevents a write.
#[derive(Debug)]
pub(super) enum CallError {
    /// The webhook could not be called, or its answer is invalid.
    Call { why: String, code: u16 },
    /// The server itself failed.
    Internal(Failure),
}

/// Matches a write with the criteria and conditions of a webhook; none if the webhook is not called.
///
/// # Errors
/// When a namespace does not exist, or a condition cannot be evaluated.
pub(super) async fn target<'a>(
    state: &State,
    kind: Kind,
    hook: &Hook,
    write: &AdmittedWrite<'a>,
) -> Result<Option<CallTarget<'a>>, Failure> {
    let Some(target) = hook.criteria.find(write)? else { return Ok(None) };
    let objects = write.objects(&target).await?;
    if !hook.conditions.is_empty() {
        let questions = Questions::new(&*state.authorizer, write.operation.user);
        let inputs = Inputs::new(write, &target, &objects, &questions)?;
        match hook.conditions.judge(&inputs, &Value::Null, Names::WEBHOOK).await {
            Matched::Yes => {}
            Matched::No => {
                state.metrics.webhooks.excluded(&hook.name, kind.as_str(), write.action.as_str());
                return Ok(None);
            }
            Matched::Failed(why) => {
                return Err(Failure::forbidden(&write.operation.group_resource(), write.name, &why));
            }
        }
    }
    Ok(Some(CallTarget { target, objects }))
}

/// Calls a webhook.
///
/// # Errors
/// When it cannot be called. A refusal is an answer, not an error.
pub(super) async fn call(
    state: &State,
    kind: Kind,
    hook: &Hook,
    write: &AdmittedWrite<'_>,
    call_target: &CallTarget<'_>,
) -> Result<Response, CallError> {
    if write.operation.options.is_dry_run && hook.has_side_effects {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(CallError::Internal(Failure::bad_request(why)));
    }
    let bad_request = StatusCode::BAD_REQUEST.as_u16();
    let failed = |why: String, code: u16| CallError::Call { why, code };
    let Some(version) = hook.review else {
        let why =
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(failed(why.to_owned(), bad_request));
    };
    let uid = uid::random();
    let request = request::encode(version, &uid, write, &call_target.target, &call_target.objects);
    let request =
        request.map_err(|error| failed(format!("could not create admission objects: {error}"), bad_request))?;
    let client = hook.client.as_ref();
    let client = client.map_err(|why| failed(format!("could not get REST client: {why}"), bad_request))?;
    let timeout = match write.operation.deadline {
        Some(deadline) => hook.timeout.min(deadline.saturating_duration_since(Instant::now())),
        None => hook.timeout,
    };
    let answer = state.webhooks.post(client, request, timeout).await;
    let answer = answer.map_err(|error| failed(format!("failed to call webhook: {error}"), error.code()))?;
    let unavailable = StatusCode::SERVICE_UNAVAILABLE.as_u16();
    let response = response::read(kind, version, &hook.name, &uid, &answer);
    response.map_err(|error| failed(error.to_string(), unavailable))
}

/// Counts a call in the metrics.
pub(super) fn count(
    state: &State,
    kind: Kind,
    hook: &Hook,
    operation: &'static str,
    begun: Instant,
    answer: Result<&Response, &CallError>,
) {
    let outcome = match answer {
        Ok(Response { refusal: Some(failure), .. }) => WebhookOutcome::Refused { code: failure.code() },
        Ok(_) => WebhookOutcome::Passed,
        Err(CallError::Call { code, .. }) if hook.is_ignored_on_failure => WebhookOutcome::Ignored { code: *code },
        Err(CallError::Call { code, .. }) => WebhookOutcome::Failed { code: *code },
        Err(CallError::Internal(_)) => WebhookOutcome::Internal,
    };
    let call = WebhookCall { name: &hook.name, kind: kind.as_str(), operation };
    state.metrics.webhooks.called(&call, outcome, begun.elapsed());
}

/// The error for a client whose write fails because of a webhook.
pub(super) fn failure(hook: &Hook, error: CallError) -> Failure {
    match error {
        CallError::Call { why, .. } => Failure::internal(calling(hook, &why)),
        CallError::Internal(failure) => failure,
    }
}

/// The message of a failed call, in upstream's words.
pub(super) fn calling(hook: &Hook, why: &str) -> String {
    format!("failed calling webhook {:?}: {why}", hook.name)
}

/// Passes the warnings and audit annotations of a webhook on to the client and the audit log.
pub(super) fn note(operation: &mut Operation<'_>, hook: &Hook, response: &mut Response) {
    std::mem::take(&mut response.warnings).into_iter().for_each(|warning| operation.warn(warning));
    for (key, value) in std::mem::take(&mut response.audit_annotations) {
        let key = format!("{}/{key}", hook.name);
        match name::qualified(&key).is_empty() {
            true => operation.annotate(key, value),
            false => tracing::warn!(webhook = %hook.name, key, "an audit annotation of a webhook has no usable key"),
        }
    }
}

/// Fails when the request has timed out because of earlier webhooks.
pub(super) fn check_time(operation: &Operation<'_>) -> Result<(), Failure> {
    match operation.deadline {
        Some(deadline) if deadline <= Instant::now() => {
            Err(Failure::timeout("request did not complete within requested timeout"))
        }
        Some(_) | None => Ok(()),
    }
}
