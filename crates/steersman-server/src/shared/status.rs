//! Turns errors into the `Status` for the client, in this one place, with upstream's reasons, codes and messages.
//!
//! Code below the handlers fails with errors of its own or with a [`Failure`] made here. Messages follow apimachinery's
//! `api/errors` as recorded from a real server.

mod answered;
mod budget;
mod store;

use std::time::Duration;
use steersman_machinery::status::{Cause, Details, Status};
use steersman_machinery::{GroupKind, GroupResource, field};

/// The most validation errors reported for one object. A body may have as many as it has fields.
const CAUSES_MAX: usize = 1000;

/// A failed request, with the answer for its client.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The Status to send. Boxed, because every `Result` of the write path may hold it.
    pub status: Box<Status>,
    /// Whether authorization refused the request.
    pub(crate) is_denial: bool,
}

/// The most bytes of a text in a Status. Longer ones repeat what a client has sent.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The beginning of a long text, with the number of bytes that are left out.
fn brief(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let (kept, cut) = text.split_at(text.floor_char_boundary(TEXT_BYTES_MAX));
    format!("{kept}... ({} more bytes)", cut.len())
}

impl Failure {
    /// A failure with only code, reason and message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Failure {
        Failure { status: Box::new(Status::failure(code, Some(reason), brief(message.into()))), is_denial: false }
    }

    /// A failure whose Status was made elsewhere.
    pub(crate) fn of_status(status: Status) -> Failure {
        Failure { status: Box::new(status), is_denial: false }
    }

    fn about(code: u16, reason: &str, message: impl Into<String>, details: Details) -> Failure {
        let mut details = Details { name: brief(details.name), kind: brief(details.kind), ..details };
        for cause in &mut details.causes {
            cause.field = brief(std::mem::take(&mut cause.field));
            cause.message = brief(std::mem::take(&mut cause.message));
        }
        let status = Status::failure(code, Some(reason), brief(message.into())).with_details(details);
        Failure { status: Box::new(status), is_denial: false }
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.status.code.unwrap_or(500)
    }

    /// Whether the object already existed.
    pub fn is_already_exists(&self) -> bool {
        self.status.reason.as_deref() == Some("AlreadyExists")
    }

    /// The time after which a retry may help, for the `Retry-After` header.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status.details.as_ref()?.retry_after_seconds?;
        Some(Duration::from_secs(seconds.into()))
    }

    // === errors of the client ===

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    /// 401: the client is not authenticated.
    pub fn unauthorized() -> Failure {
        Failure::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for a resource; `why` follows `x "name" is forbidden: `.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Failure {
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Failure::about(403, "Forbidden", message, details(resource, name))
    }

    /// 422, 403 or 413 of a policy, by the policy's reason, with its message as the cause.
    pub fn denied(resource: &GroupResource, name: &str, reason: &str, message: String) -> Failure {
        let mut failure = Failure::forbidden(resource, name, &message);
        let cause = Cause { reason: String::new(), message, field: String::new() };
        let status = &mut failure.status;
        if let Some(details) = &mut status.details {
            details.causes.push(cause);
        }
        status.reason = Some(reason.to_owned());
        status.code = Some(match reason {
            "Forbidden" => 403,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        });
        failure
    }

    /// 403 of policies that could not mutate an object: the first of their messages, and all of them as causes.
    pub fn not_mutated(resource: &GroupResource, name: &str, reason: &str, messages: Vec<String>) -> Failure {
        let mut failure = Failure::forbidden(resource, name, "");
        let status = &mut failure.status;
        status.message = messages.first().cloned().unwrap_or_default();
        status.reason = Some(reason.to_owned());
        if let Some(details) = &mut status.details {
            let cause = |message| Cause { reason: String::new(), message, field: String::new() };
            details.causes.extend(messages.into_iter().map(cause));
        }
        failure
    }

    /// 403 for a non-resource path.
    pub fn forbidden_path(why: &str) -> Failure {
        Failure::about(403, "Forbidden", format!("forbidden: {why}"), Details::default())
    }

    /// 404 for an object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Failure {
        Failure::about(404, "NotFound", format!("{resource} {name:?} not found"), details(resource, name))
    }

    /// 404 for a resource that is not served.
    pub fn unknown_resource() -> Failure {
        Failure::about(404, "NotFound", "the server could not find the requested resource", Details::default())
    }

    /// 405 for the resource of the request.
    pub fn method_not_allowed() -> Failure {
        let message = "the server does not allow this method on the requested resource";
        Failure::about(405, "MethodNotAllowed", message, Details::default())
    }

    /// 406 for a media type that is not served.
    pub fn not_acceptable_type(available: &[&str]) -> Failure {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Failure::about(406, "NotAcceptable", message, Details::default())
    }

    /// 406 for an unavailable form of a served media type.
    pub fn not_acceptable(accepted: &[&str]) -> Failure {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Failure::new(406, "NotAcceptable", message)
    }

    /// 409: the object already exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Failure {
        Failure::about(409, "AlreadyExists", format!("{resource} {name:?} already exists"), details(resource, name))
    }

    /// 409: the object does not have the state that the client expects.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Failure {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Failure::about(409, "Conflict", message, details(resource, name))
    }

    /// 409: another write was faster.
    pub fn modified(resource: &GroupResource, name: &str) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(resource, name, why)
    }

    /// 409 without a reason, where upstream answers 500 without one: the current state does not allow the request, and
    /// a client can change that. kubectl prints both alike.
    pub fn unsupported_state(message: impl Into<String>) -> Failure {
        Failure { status: Box::new(Status::failure(409, None, message)), is_denial: false }
    }

    /// 409 of a server-side apply: the fields have other managers.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Failure {
        Failure::about(409, "Conflict", message, Details { causes, ..Details::default() })
    }

    /// 410: the version is no longer kept.
    pub fn expired(message: impl Into<String>) -> Failure {
        Failure::new(410, "Expired", message)
    }

    /// 413: the request is too large.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(413, "RequestEntityTooLarge", message)
    }

    /// 415 for a body.
    pub fn unsupported_media_type(accepted: &[&str]) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Failure::new(415, "UnsupportedMediaType", message)
    }

    /// 415 for a PATCH whose media type is no patch.
    pub fn not_a_patch_type() -> Failure {
        Failure::about(415, "UnsupportedMediaType", "415: Unsupported Media Type", Details::default())
    }

    /// 422 with validation errors. `kind` may be a resource's or that of the request's options.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[field::Error]) -> Failure {
        let errors = errors.get(..CAUSES_MAX).unwrap_or(errors);
        let message = format!("{kind} {name:?} is invalid: {}", field::join(errors));
        let details = Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes: errors.iter().map(field::Error::to_cause).collect(),
            ..Details::default()
        };
        Failure::about(422, "Invalid", message, details)
    }

    /// 422 for a patch that cannot be applied to the object; the message is upstream's.
    pub fn unfitting_patch() -> Failure {
        Failure::unprocessable("the server rejected our request due to an error in our request")
    }

    /// 422 for an error that does not concern a single field.
    pub fn unprocessable(message: impl Into<String>) -> Failure {
        Failure::about(422, "Invalid", message, Details::default())
    }

    // === errors of the server ===

    /// 429: too many requests.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Failure {
        let details = Details { retry_after_seconds: Some(retry_after_seconds), ..Details::default() };
        Failure::about(429, "TooManyRequests", message, details)
    }

    /// 500 with a reason. The cause belongs in the log.
    pub fn internal(message: impl Into<String>) -> Failure {
        let message = message.into();
        let details =
            Details { causes: vec![Cause { message: message.clone(), ..Cause::default() }], ..Details::default() };
        Failure::about(500, "InternalError", format!("Internal error occurred: {message}"), details)
    }

    /// 500 without a reason, which upstream answers for errors that it does not classify.
    pub fn unclassified(message: impl Into<String>) -> Failure {
        Failure::new(500, "", message)
    }

    /// 503: try again later.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure::new(503, "ServiceUnavailable", message)
    }

    /// 504: the request was not done in time.
    pub fn timeout(message: impl Into<String>) -> Failure {
        Failure::about(504, "Timeout", message, Details { retry_after_seconds: Some(1), ..Details::default() })
    }

    /// 504: the requested version does not exist yet.
    pub fn version_too_large(requested: impl std::fmt::Display, current: impl std::fmt::Display) -> Failure {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], retry_after_seconds: Some(1), ..Details::default() };
        Failure::about(504, "Timeout", format!("Too large resource version: {requested}, current: {current}"), details)
    }
}

fn details(resource: &GroupResource, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..Details::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_group_but_for_the_core_group() {
        let pods = GroupResource::new("", "pods");
        let deployments = GroupResource::new("apps", "deployments");
        assert_eq!(Failure::not_found(&pods, "p").status.message, "pods \"p\" not found");
        assert_eq!(Failure::already_exists(&deployments, "d").status.message, "deployments.apps \"d\" already exists");
        assert_eq!(Failure::forbidden(&pods, "", "no").status.message, "pods is forbidden: no");
    }

    #[test]
    fn faults_become_causes() {
        let errors = [field::Error::required(&field::Path::new("spec.a"), "")];
        let failure = Failure::invalid(&GroupKind::new("apps", "Deployment"), "d", &errors);
        assert_eq!(failure.status.message, "Deployment.apps \"d\" is invalid: spec.a: Required value");
        let details = failure.status.details.unwrap();
        assert_eq!(
            (details.causes[0].field.as_str(), details.causes[0].reason.as_str()),
            ("spec.a", "FieldValueRequired")
        );
    }
}
