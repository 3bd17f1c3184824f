//! Passes requests on to the servers behind APIServices, and streams their answers back.
//!
//! A request that is passed on has come through the whole chain: who sends it is known and may send it, and it holds a place
//! among the requests in flight. Neither its body nor the answer is held in memory. It ends when its client disconnects,
//! when its time is over, unless it is a watch or another stream, and when the server stops. Follows upstream's
//! `handler_proxy.go`, in whose words failures are told, in plain text.

use crate::http::answer::Answer;
use crate::shared::aggregation::headers::{self, Sender};
use crate::shared::aggregation::remote::Remote;
use crate::shared::aggregation::remotes::{BodyError, RequestBody, SendError};
use crate::shared::request::body::{Body, Chunks, Error as AnswerError};
use crate::shared::request::memory::Reservation;
use crate::shared::request::payer::payer;
use crate::shared::request::request_info::RequestInfo;
use crate::state::State;
use bytes::Bytes;
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use steersman_kinds::user::User;
use tokio::io::copy_bidirectional;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Subresources whose answers may last for as long as their clients want.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
/// The answer to a request that another server has led back here.
const LOOP: &str =
    "this server sent this request itself, to another server: the Service of the APIService leads back to the server\n";

/// A request for another server, whose body has not been read.
pub(super) struct Forwarded {
    pub(crate) remote: Arc<Remote>,
    pub(crate) body: RequestBody,
    pub(crate) source: Option<IpAddr>,
    pub(crate) audit_id: HeaderValue,
}

/// The body of a request, to be read by the transport to another server.
pub(super) fn body<B>(body: B) -> RequestBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    RequestBody::new(body.map_err(|error| BodyError(error.to_string())))
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
    let Forwarded { remote, body, source, audit_id } = forwarded;
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
    let connection = parts.extensions.get::<OnUpgrade>().cloned();
    let upgrade = connection.and_then(|connection| Some((headers::stream_upgrade(&parts.headers)?, connection)));
    let sender = Sender { user, source, audit_id: &audit_id, upgrade: upgrade.as_ref().map(|(protocol, _)| protocol) };
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
    let mut permit = (upgrade.is_some() || is_stream(info)).then(|| state.memory.tunnels.reserve(&payer(user)));
    if permit.as_mut().is_some_and(|permit| permit.grow_to(1).is_err()) {
        return Answer::text(503, "too many connections of this user to other servers are open; close some of them\n");
    }
    let response = match state.remotes.send(&remote, request).await {
        Ok(response) => response,
        Err(error) => return unreached(&remote, &error),
    };
    match upgrade {
        Some(_) if is_refusal(response.status()) => streamed(state, response, Some(deadline), permit),
        Some((protocol, connection)) => upgraded(state, (&protocol, connection), permit, response),
        None if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Answer::text(502, "the backend switched protocols, which nobody asked it for\n")
        }
        None if is_redirect(response.status(), response.headers()) => {
            Answer::text(502, "the backend attempted to redirect this request, which is not permitted")
        }
        None => {
            let deadline = (!is_stream(info)).then_some(deadline);
            streamed(state, response, deadline, permit)
        }
    }
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

/// Whether an answer may last for as long as its client wants.
fn is_stream(info: &RequestInfo) -> bool {
    let subresource = info.target.as_ref().and_then(|target| target.subresource.as_deref());
    info.verb == "watch" || subresource.is_some_and(|subresource| STREAMS.contains(&subresource))
}

/// Whether the other server has answered a request for an upgrade with an error.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn is_redirect(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_redirection() && headers.contains_key(LOCATION)
}

/// The answer of the other server, whose body is passed on as it comes.
fn streamed(
    state: &State,
    response: Response<Incoming>,
    deadline: Option<Instant>,
    place: Option<Reservation>,
) -> Answer {
    let (head, body) = response.into_parts();
    let is_endless = deadline.is_none();
    let body = Passed {
        body,
        deadline: deadline.map(|deadline| Box::pin(sleep_until(deadline))),
        stopping: is_endless.then(|| Box::pin(state.stopping_token().clone().cancelled_owned())),
        permit: None,
        _place: place,
    };
    let mut answer = Answer::empty(head.status.as_u16());
    *answer.response.headers_mut() = headers::of_answer(head.headers, None);
    *answer.response.body_mut() = if body.body.is_end_stream() { Body::empty() } else { Body::chunks(body) };
    answer
}

/// Connects the client with the other server, if that has upgraded the connection.
fn upgraded(
    state: &State,
    (asked, client): (&HeaderValue, OnUpgrade),
    permit: Option<Reservation>,
    mut response: Response<Incoming>,
) -> Answer {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Answer::text(503, format!("invalid upgrade response: status code {}\n", status.as_u16()));
    }
    let given = headers::upgrade(response.headers());
    if !given.is_some_and(|given| given.as_bytes().eq_ignore_ascii_case(asked.as_bytes())) {
        return Answer::text(502, "the backend switched to another protocol than the one that it was asked for\n");
    }
    let server = hyper::upgrade::on(&mut response);
    let stopping = state.stopping_token().clone();
    state.remotes.tunnels.spawn(tunnel(client, server, stopping, permit));
    let (head, _) = response.into_parts();
    let protocol = headers::upgrade(&head.headers);
    let mut answer = Answer::empty(status.as_u16());
    *answer.response.headers_mut() = headers::of_answer(head.headers, protocol);
    answer
}

/// Copies bytes in both directions until either side ends, or the server stops.
async fn tunnel(client: OnUpgrade, server: OnUpgrade, stopping: CancellationToken, permit: Option<Reservation>) {
    let _permit = permit;
    let copy = async {
        let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
        copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await
    };
    let copied = stopping.run_until_cancelled(copy).await;
    if let Some(Err(error)) = copied {
        tracing::debug!(%error, "an upgraded connection to another server ended with an error");
    }
}

/// The body of an answer of another server.
struct Passed {
    body: Incoming,
    /// When the rest is given up.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Ends an answer that has no end of its own.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    permit: Option<Box<dyn Send>>,
    /// Its place among the connections that may last.
    _place: Option<Reservation>,
}

impl Chunks for Passed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        loop {
            let is_late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
            if is_late {
                let why = "the other server did not send it in time".to_owned();
                return Poll::Ready(Some(Err(AnswerError::Broken(why))));
            }
            if self.stopping.as_mut().is_some_and(|stopping| stopping.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers are not passed on.
                    Ok(_) | Err(_) => {}
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(AnswerError::Broken(error.to_string())))),
                None => {
                    self.permit = None;
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn hold(&mut self, permit: Box<dyn Send>) {
        // As of other streams, only the beginning of one counts among the requests in flight.
        self.permit = self.deadline.is_some().then_some(permit);
    }
}
