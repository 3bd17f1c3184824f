//! Passes requests on to the servers behind APIServices, and streams their answers back.
//!
//! A request that is passed on has come through the whole chain: who sends it is known and may send it, and it holds a place
//! among the requests in flight. Neither its body nor the answer is held in memory. It ends when its client disconnects,
//! when its time is over, unless it is a watch or another stream, and when the server stops. Follows upstream's
//! `handler_proxy.go`, in whose words failures are told, in plain text.

use crate::http::answer::Answer;
use crate::http::passing::{self, Lasts, Upgrade, UpgradeError};
use crate::shared::aggregation::remote::Remote;
use crate::shared::aggregation::remotes::SendError;
use crate::shared::request::passed_headers::{self as headers, Sender};
use crate::shared::request::payer::payer;
use crate::shared::request::request_info::RequestInfo;
use crate::shared::request::unread::Unread;
use crate::state::State;
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use std::sync::Arc;
use steersman_kinds::user::User;
use tokio::time::Instant;

/// The answer to a request that another server has led back here.
const LOOP: &str =
    "this server sent this request itself, to another server: the Service of the APIService leads back to the server\n";

/// A request for another server, whose body has not been read.
pub(super) struct Forwarded {
    pub(crate) remote: Arc<Remote>,
    pub(crate) unread: Unread,
    pub(crate) audit_id: HeaderValue,
}

/// Passes a request on. The head of the answer is waited for; the caller bounds the time by dropping the future.
pub(super) async fn pass_on(
    state: &State,
    info: &RequestInfo,
    parts: &Parts,
    user: &Arc<User>,
    deadline: Instant,
    forwarded: Forwarded,
) -> Answer {
    let Forwarded { remote, unread: Unread { body, source }, audit_id } = forwarded;
    // The target of CONNECT is not the path that was authorized.
    if parts.method == Method::CONNECT {
        return Answer::text(405, "CONNECT is not passed on to other servers\n");
    }
    if state.remotes.is_own(&parts.headers) {
        return Answer::text(508, LOOP);
    }
    if !remote.is_available {
        return unavailable();
    }
    let upgrade = Upgrade::asked(parts).filter(|upgrade| headers::is_of_streams(&upgrade.protocol));
    let protocol = upgrade.as_ref().map(|upgrade| &upgrade.protocol);
    let sender = Sender { user, source, audit_id: &audit_id, upgrade: protocol };
    let is_identity = |name: &str| state.authenticator.is_identity_header(name);
    let headers = match headers::of_request(&parts.headers, &sender, is_identity) {
        Ok(headers) => headers,
        Err(error) => return Answer::text(500, format!("{error}\n")),
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder().method(parts.method.clone()).uri(path).body(body);
    let mut request = match request {
        Ok(request) => request,
        Err(error) => return Answer::text(400, format!("{error}\n")),
    };
    *request.headers_mut() = headers;
    // A connection that may last is asked for only if it has a place here: each has one to the other server.
    let may_last = upgrade.is_some() || info.is_long_running();
    let place = may_last.then(|| passing::place(state, &payer(user))).transpose();
    let Ok(place) = place else {
        return Answer::text(503, "too many connections of this user to other servers are open; close some of them\n");
    };
    let response = match state.remotes.send(&remote, request).await {
        Ok(response) => response,
        Err(error) => return unreached(&remote, &error),
    };
    match (upgrade, place) {
        (Some(_), place) if passing::is_refusal(response.status()) => {
            passing::streamed(state, response, Lasts::Until(deadline), place)
        }
        (Some(upgrade), Some(place)) => {
            passing::upgraded(state, upgrade, place, response).unwrap_or_else(|error| not_upgraded(&error))
        }
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Answer::text(502, "the backend switched protocols, which nobody asked it for\n")
        }
        _ if is_redirect(response.status(), response.headers()) => {
            Answer::text(502, "the backend attempted to redirect this request, which is not permitted")
        }
        (_, place) => {
            let lasts = match info.verb {
                "watch" => Lasts::Watch,
                _ if info.is_long_running() => Lasts::Unbounded,
                _ => Lasts::Until(deadline),
            };
            passing::streamed(state, response, lasts, place)
        }
    }
}

fn not_upgraded(error: &UpgradeError) -> Answer {
    let code = match error {
        UpgradeError::Protocol => 502,
        UpgradeError::Status(_) => 503,
    };
    Answer::text(code, format!("{error}\n"))
}

fn unavailable() -> Answer {
    Answer::text(503, "service unavailable\n")
}

/// The answer to a request that did not reach the other server. How it was to be reached is for the log.
fn unreached(remote: &Remote, error: &SendError) -> Answer {
    tracing::debug!(name = remote.name, %error, "a request could not be passed on");
    match error {
        SendError::Service(_) => unavailable(),
        SendError::Certificates(_) => Answer::text(500, format!("{error}\n")),
        SendError::Connection { .. } | SendError::Timeout(_) | SendError::TooLong(_) => {
            Answer::text(503, format!("error trying to reach service: {error}\n"))
        }
    }
}

fn is_redirect(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_redirection() && headers.contains_key(LOCATION)
}
