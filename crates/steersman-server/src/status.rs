//! The one place where errors become the `Status` that a client sees, with upstream's reasons, codes and words.
//!
//! Everything below the handlers fails with errors of its own or with a [`Failure`] made here. Texts follow apimachinery's
//! `api/errors` as recorded from a real server.

mod budget;
mod signing;
mod store;

use std::time::Duration;
use steersman_machinery::status::{Cause, Details, Status};
use steersman_machinery::{GroupKind, GroupResource, field};

/// The most faults reported for one object. A body may have as many as it has fields.
const CAUSES_MAX: usize = 1000;

/// A failed request, with the answer for its client.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is sent. Boxed: it travels through every `Result` of the write path.
    pub status: Box<Status>,
    /// Whether authorization refused the request.
    pub(crate) is_denial: bool,
}

impl Failure {
    /// A failure with no more than code, reason and text.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Failure {
        Failure { status: Box::new(Status::failure(code, Some(reason), message)), is_denial: false }
    }

    /// A failure that somebody else has put into words.
    pub(crate) fn of_status(status: Status) -> Failure {
        Failure { status: Box::new(status), is_denial: false }
    }

    fn about(code: u16, reason: &str, message: impl Into<String>, details: Details) -> Failure {
        let status = Status::failure(code, Some(reason), message).with_details(details);
        Failure { status: Box::new(status), is_denial: false }
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.status.code.unwrap_or(500)
    }

    /// Whether the object was there already.
    pub fn is_already_exists(&self) -> bool {
        self.status.reason.as_deref() == Some("AlreadyExists")
    }

    /// After how long a retry may help, for the `Retry-After` header.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status.details.as_ref()?.retry_after_seconds?;
        Some(Duration::from_secs(seconds.into()))
    }

    // === faults of the client ===

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Failure {
        Failure::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for a resource; the message is what follows `x "name" is forbidden: `.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Failure {
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Failure::about(403, "Forbidden", message, details(resource, name))
    }

    /// 422, 403 or 413 of a policy, with its message as the cause, by the reason that the policy gives.
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

    /// 403 of policies that could not mutate an object: the first of their messages, and all as causes.
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

    /// 403 for a path that is no resource.
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

    /// 405.
    pub fn method_not_allowed() -> Failure {
        let message = "the server does not allow this method on the requested resource";
        Failure::about(405, "MethodNotAllowed", message, Details::default())
    }

    /// 406 for a media type that is not served.
    pub fn not_acceptable_type(available: &[&str]) -> Failure {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Failure::about(406, "NotAcceptable", message, Details::default())
    }

    /// 406 for a form that is not served, of a media type that is.
    pub fn not_acceptable(accepted: &[&str]) -> Failure {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Failure::new(406, "NotAcceptable", message)
    }

    /// 409: it is there already.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Failure {
        Failure::about(409, "AlreadyExists", format!("{resource} {name:?} already exists"), details(resource, name))
    }

    /// 409: the object is not in the state that the client expects.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Failure {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Failure::about(409, "Conflict", message, details(resource, name))
    }

    /// 409: another write was faster.
    pub fn modified(resource: &GroupResource, name: &str) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(resource, name, why)
    }

    /// 409 without a reason, where upstream answers 500 without one: what there is does not allow what is asked, and a client can
    /// change that. kubectl prints both alike.
    pub fn unsupported_state(message: impl Into<String>) -> Failure {
        Failure { status: Box::new(Status::failure(409, None, message)), is_denial: false }
    }

    /// 409 of a server-side apply: other managers own the fields.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Failure {
        Failure::about(409, "Conflict", message, Details { causes, ..Details::default() })
    }

    /// 410: the version is no longer kept.
    pub fn expired(message: impl Into<String>) -> Failure {
        Failure::new(410, "Expired", message)
    }

    /// 413.
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

    /// 415 for a PATCH whose type is no patch at all.
    pub fn not_a_patch_type() -> Failure {
        Failure::about(415, "UnsupportedMediaType", "415: Unsupported Media Type", Details::default())
    }

    /// 422 with the single faults. `kind` may be a resource's or that of the request's options.
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

    /// 422 for a patch that does not fit the object, in upstream's words.
    pub fn unfitting_patch() -> Failure {
        Failure::unprocessable("the server rejected our request due to an error in our request")
    }

    /// 422 for a fault that does not concern a single field.
    pub fn unprocessable(message: impl Into<String>) -> Failure {
        Failure::about(422, "Invalid", message, Details::default())
    }

    // === faults of the server ===

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Failure {
        let details = Details { retry_after_seconds: Some(retry_after_seconds), ..Details::default() };
        Failure::about(429, "TooManyRequests", message, details)
    }

    /// 500 with a reason. The cause belongs into the log.
    pub fn internal(message: impl Into<String>) -> Failure {
        let message = message.into();
        let details =
            Details { causes: vec![Cause { message: message.clone(), ..Cause::default() }], ..Details::default() };
        Failure::about(500, "InternalError", format!("Internal error occurred: {message}"), details)
    }

    /// 500 without a reason, which is what upstream makes of a failure that it has no class for.
    pub fn unclassified(message: impl Into<String>) -> Failure {
        Failure::new(500, "", message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure::new(503, "ServiceUnavailable", message)
    }

    /// 504: not done in time.
    pub fn timeout(message: impl Into<String>) -> Failure {
        Failure::about(504, "Timeout", message, Details { retry_after_seconds: Some(1), ..Details::default() })
    }

    /// 504: the client asks for a version that is not there yet.
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
