//! Failures of lists and watches, classified by the reflector's reaction.

use std::fmt;
use std::time::Duration;

use http::header::RETRY_AFTER;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use crate::list_watch::reflector::next_chunk;
use crate::list_watch::wire::TooLarge;
use crate::shared::chain::Chain;

/// The most bytes of an error answer that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// A failed request or a broken watch.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// One line for people.
    pub(crate) message: String,
    /// How long the server asked us to wait.
    pub(crate) retry_after: Option<Duration>,
}

/// The class of a failure, which decides the reflector's reaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The server no longer has the version.
    Expired,
    /// Nothing was received for too long.
    Idle,
    /// The server failed internally.
    Internal,
    /// The server does not support this form of the request.
    Invalid,
    /// The answer does not conform to the API.
    Malformed,
    /// A streaming list did not come to its end.
    NoBookmark,
    /// The server does not serve the type.
    NotServed,
    /// Anything else the server refused: authentication, authorization, selectors.
    Refused,
    /// A write of a controller did not appear for too long.
    Stale,
    /// The version is one the server has not reached.
    TooLargeVersion,
    /// The server asks for fewer requests.
    TooManyRequests,
    /// The connection failed or broke.
    Transport,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

impl Kind {
    /// The label value in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Internal => "internal",
            Self::Invalid => "invalid",
            Self::Malformed => "malformed",
            Self::NoBookmark => "no_bookmark",
            Self::NotServed => "not_served",
            Self::Refused => "refused",
            Self::Stale => "stale",
            Self::TooLargeVersion => "too_large_version",
            Self::TooManyRequests => "too_many_requests",
            Self::Transport => "transport",
        }
    }
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    pub(crate) fn chain(kind: Kind, what: &str, error: &dyn std::error::Error) -> Self {
        Self::new(kind, format!("{what}: {}", Chain(error)))
    }

    pub(crate) fn malformed(what: &str, error: &serde_json::Error) -> Self {
        // A list cut short by a broken connection looks the same as a malformed one; both are tried again.
        Self::new(Kind::Malformed, format!("{what} is not what the API prescribes: {error}"))
    }

    /// From the object of an ERROR event.
    pub(crate) fn of_error_event(object: &[u8]) -> Self {
        match serde_json::from_slice::<Status>(object) {
            Ok(status) => Self::of_status(status.code, &status, None),
            Err(error) => Self::malformed("the object of an ERROR event", &error),
        }
    }

    /// From a line of a watch that is not an event.
    pub(crate) fn of_stray_line(line: &[u8]) -> Self {
        match serde_json::from_slice::<Status>(line) {
            Ok(status) if status.code >= 400 => Self::of_status(status.code, &status, None),
            _ => {
                let start = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
                Self::new(Kind::Malformed, format!("the watch carries something that is no event: {start:?}"))
            }
        }
    }

    /// From an answer whose status is not a success.
    pub(crate) async fn of_response(response: http::Response<Body>, deadline: Instant) -> Self {
        let code = response.status().as_u16();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let mut body = response.into_body();
        let mut text = Vec::new();
        while text.len() < ERROR_BYTES_MAX {
            match next_chunk(&mut body, deadline).await {
                Ok(Some(chunk)) => text.extend_from_slice(&chunk[..chunk.len().min(ERROR_BYTES_MAX)]),
                Ok(None) | Err(_) => break,
            }
        }
        let status = serde_json::from_slice(&text).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&text[..text.len().min(200)]).trim().to_owned(),
            ..Status::default()
        });
        Self::of_status(code, &status, retry_after.map(Duration::from_secs))
    }

    fn of_status(code: u16, status: &Status, retry_after: Option<Duration>) -> Self {
        let is_too_large = status.details.causes.iter().any(|cause| {
            cause.reason == "ResourceVersionTooLarge" || cause.message.contains("Too large resource version")
        }) || status.message.contains("Too large resource version");
        let kind = match (code, status.reason.as_str()) {
            _ if is_too_large => Kind::TooLargeVersion,
            (410, _) | (_, "Expired" | "Gone") => Kind::Expired,
            (429, _) => Kind::TooManyRequests,
            (404, _) => Kind::NotServed,
            (400 | 422, _) => Kind::Invalid,
            (500, _) => Kind::Internal,
            (502..=504, _) => Kind::Transport,
            _ => Kind::Refused,
        };
        let seconds = status.details.retry_after_seconds;
        let retry_after = retry_after.or((seconds > 0).then(|| Duration::from_secs(seconds)));
        let message = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("the server answered {code}"),
            (text, "") | ("", text) => format!("the server answered {code}: {text}"),
            (message, reason) => format!("the server answered {code} {reason}: {message}"),
        };
        Self { kind, message, retry_after }
    }
}

impl From<TooLarge> for Failure {
    fn from(error: TooLarge) -> Self {
        Self::new(Kind::Malformed, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
