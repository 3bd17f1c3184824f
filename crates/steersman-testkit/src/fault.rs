//! Injected faults, and the requests that get them.

use http::{Method, Request, Response};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::VecDeque;
use std::fmt;

/// The effect of a fault on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The request is answered with this HTTP status code, and the server never gets it. The codes 429 and 503 come
    /// with `Retry-After: 1`.
    Refused(u16),
    /// The server carries out the request, but the connection breaks before the answer.
    Unanswered,
    /// The connection breaks before the server gets the request.
    Unsent,
}

/// The faults that have not happened yet.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<VecDeque<Rule>>);

/// A number of faults of one kind.
struct Rule {
    /// At least one; a rule that is used up is removed.
    n_left: usize,
    fault: Fault,
    selects: Selects,
}

/// Whether a fault applies to a request with this method and path.
type Selects = Box<dyn Fn(&Method, &str) -> bool + Send + Sync>;

// === impl Fault ===

impl Fault {
    /// The answer of a refused request.
    pub(crate) fn refusal(code: u16) -> Response<Vec<u8>> {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => ("Expired", "the requested version is too old"),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "Internal error occurred"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "request did not complete within the allotted timeout"),
            _ => ("", "the request was made to fail"),
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": message, "reason": reason, "code": code,
        });
        let mut response = Response::builder().status(code).header("content-type", "application/json");
        if matches!(code, 429 | 503) {
            status["details"] = json!({"retryAfterSeconds": 1});
            response = response.header("retry-after", "1");
        }
        response.body(status.to_string().into_bytes()).unwrap_or_else(|_| {
            panic!("Fault::Refused({code}): {code} is no HTTP status code; use one from 100 to 999");
        })
    }
}

// === impl Faults ===

impl Faults {
    /// Adds `n` faults for the requests that `selects` selects by method and path.
    pub(crate) fn push(&self, n: usize, fault: Fault, selects: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) {
        if n > 0 {
            self.0.lock().push_back(Rule { n_left: n, fault, selects: Box::new(selects) });
        }
    }

    /// Takes the fault for this request, if there is one.
    pub(crate) fn take<B>(&self, request: &Request<B>) -> Option<Fault> {
        let mut rules = self.0.lock();
        let at = rules.iter().position(|rule| (rule.selects)(request.method(), request.uri().path()))?;
        let rule = rules.get_mut(at)?;
        rule.n_left -= 1;
        let fault = rule.fault;
        if rule.n_left == 0 {
            rules.remove(at);
        }
        Some(fault)
    }

    /// The number of faults that have not happened yet.
    pub(crate) fn n_left(&self) -> usize {
        self.0.lock().iter().map(|rule| rule.n_left).sum()
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("n_left", &self.n_left).field("fault", &self.fault).finish_non_exhaustive()
    }
}
