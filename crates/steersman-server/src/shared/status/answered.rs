//! The failures that answers of other servers become (apimachinery's `NewGenericServerResponse`, and apiserver's
//! `registry/generic/rest/response_checker.go`).

use crate::shared::status::{Failure, details};
use steersman_machinery::GroupResource;

impl Failure {
    /// The failure of a kubelet that has answered a request for a part of an object with an error and a text.
    pub(crate) fn answered(code: u16, text: &str, resource: &GroupResource, name: &str) -> Failure {
        match code {
            400 => return Failure::bad_request(text),
            500 => return Failure::internal(text),
            _ => {}
        }
        let (reason, message) = match code {
            401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
            403 => ("Forbidden", text.to_owned()),
            404 => ("NotFound", "the server could not find the requested resource".to_owned()),
            405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
            409 => ("Conflict", "the server reported a conflict".to_owned()),
            422 => ("Invalid", "the server rejected our request due to an error in our request".to_owned()),
            429 => {
                let why = "the server has received too many requests and has asked us to try again later";
                ("TooManyRequests", why.to_owned())
            }
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
            504 => {
                let why = "the server was unable to return a response in the time allotted, but may still be processing the request";
                ("Timeout", why.to_owned())
            }
            501.. => {
                let why = format!("an error on the server ({text:?}) has prevented the request from succeeding");
                ("InternalError", why)
            }
            _ => {
                let why =
                    format!("the server responded with the status code {code} but did not return more information");
                ("", why)
            }
        };
        // An answer that is no error, such as a redirect, must not pass for the object.
        let code = if code < 400 { 500 } else { code };
        Failure::about(code, reason, format!("{message} ( {resource} {name})"), details(resource, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u16, text: &str, want: (u16, &str, &str)) {
        let failure = Failure::answered(code, text, &GroupResource::new("", "pods/log"), "p");
        let status = &failure.status;
        assert_eq!((failure.code(), status.reason.as_deref().unwrap_or(""), status.message.as_str()), want);
    }

    #[test]
    fn an_answer_with_an_error_becomes_a_failure_in_the_words_of_upstream() {
        check(404, "x", (404, "NotFound", "the server could not find the requested resource ( pods/log p)"));
        check(
            403,
            "Forbidden (user=kube, verb=get)",
            (403, "Forbidden", "Forbidden (user=kube, verb=get) ( pods/log p)"),
        );
        check(400, "no container", (400, "BadRequest", "no container"));
        check(500, "broken", (500, "InternalError", "Internal error occurred: broken"));
        let why = "an error on the server (\"bad\") has prevented the request from succeeding ( pods/log p)";
        check(502, "bad", (502, "InternalError", why));
        let why = "the server responded with the status code 302 but did not return more information ( pods/log p)";
        check(302, "", (500, "", why));
    }
}
