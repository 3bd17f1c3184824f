//! Connects a client with another server: streams the body of an answer, or the bytes of an upgraded connection.
//!
//! Called for the servers behind APIServices (`chain::proxy`), and for nodes, Pods and Services (`endpoint::stream`).
//! Nothing is held in memory but what is under way: a side that does not read stops the other one. An answer
//! without a deadline ends when this server stops.

use crate::http::answer::Answer;
use crate::shared::request::body::{Body, Chunks, Error as AnswerError};
use crate::shared::request::memory::Reservation;
use crate::shared::request::passed_headers as headers;
use crate::shared::status::Failure;
use crate::state::State;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use steersman_kinds::user::User;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The time for which one direction of an upgraded connection goes on after the other one has ended.
const LINGER: Duration = Duration::from_secs(10);

/// A request of a client to upgrade its connection.
pub(crate) struct Upgrade {
    pub(crate) protocol: HeaderValue,
    client: OnUpgrade,
}

/// How long an answer may last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lasts {
    /// The rest is given up then.
    Until(Instant),
    /// As long as the client wants. It ends when this server stops: each event is whole, and clients watch again.
    Watch,
    /// As long as the client wants. It breaks off when this server stops, so that nobody takes a part for the whole.
    Unbounded,
}

/// Why a connection was not upgraded, although the other server has not refused it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("the backend switched to another protocol than the one that it was asked for")]
    Protocol,
    #[error("invalid upgrade response: status code {}", .0.as_u16())]
    Status(StatusCode),
}

impl Upgrade {
    /// `None` if the client asks for no upgrade, or its connection cannot be upgraded.
    pub(crate) fn asked(parts: &Parts) -> Option<Upgrade> {
        let client = parts.extensions.get::<OnUpgrade>()?.clone();
        Some(Upgrade { protocol: headers::upgrade(&parts.headers)?, client })
    }
}

/// Takes a place among the open connections to other servers, of which each user has a share.
///
/// # Errors
/// 429 if there is none.
pub(crate) fn place(state: &State, payer: &Arc<User>) -> Result<Reservation, Failure> {
    let mut place = state.memory.tunnels.reserve(payer);
    place.grow_to(1)?;
    Ok(place)
}

/// Whether the other server has answered a request for an upgrade with an error.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// The answer of the other server, whose body is passed on as it comes.
pub(crate) fn streamed(
    state: &State,
    response: Response<Incoming>,
    lasts: Lasts,
    place: Option<Reservation>,
) -> Answer {
    let (head, incoming) = response.into_parts();
    let mut answer = Answer::empty(head.status.as_u16());
    *answer.response.headers_mut() = headers::of_answer(head.headers, None);
    if !incoming.is_end_stream() {
        *answer.response.body_mut() = body(state, incoming, lasts, place);
    }
    answer
}

/// The body of an answer, passed on as it comes.
pub(crate) fn body(state: &State, body: Incoming, lasts: Lasts, place: Option<Reservation>) -> Body {
    let stopping = || Box::pin(state.stopping_token().clone().cancelled_owned());
    let end = match lasts {
        Lasts::Until(deadline) => End::Deadline(Box::pin(sleep_until(deadline))),
        Lasts::Watch => End::Stop(stopping()),
        Lasts::Unbounded => End::BreakOff(stopping()),
    };
    Body::chunks(Passed { body, end, permit: None, _place: place })
}

/// Connects the client with the other server, which keeps the place until either has ended.
///
/// # Errors
/// When the other server has not upgraded the connection.
pub(crate) fn upgraded(
    state: &State,
    upgrade: Upgrade,
    place: Reservation,
    mut response: Response<Incoming>,
) -> Result<Answer, UpgradeError> {
    let Upgrade { protocol, client } = upgrade;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(UpgradeError::Status(status));
    }
    let given = headers::upgrade(response.headers());
    if !given.as_ref().is_some_and(|given| given.as_bytes().eq_ignore_ascii_case(protocol.as_bytes())) {
        return Err(UpgradeError::Protocol);
    }
    let server = hyper::upgrade::on(&mut response);
    state.tunnels.spawn(tunnel(client, server, state.stopping_token().clone(), place));
    let (head, _) = response.into_parts();
    let mut answer = Answer::empty(status.as_u16());
    *answer.response.headers_mut() = headers::of_answer(head.headers, given);
    Ok(answer)
}

/// Copies bytes in both directions until either side ends, or the server stops.
async fn tunnel(client: OnUpgrade, server: OnUpgrade, stopping: CancellationToken, place: Reservation) {
    let _place = place;
    let connected = async {
        let (client, server) = tokio::try_join!(client, server).map_err(io::Error::other)?;
        join(TokioIo::new(client), TokioIo::new(server)).await
    };
    if let Some(Err(error)) = stopping.run_until_cancelled(connected).await {
        tracing::debug!(%error, "an upgraded connection to another server ended with an error");
    }
}

/// Copies bytes in both directions. When one direction has ended, the other one has ten more seconds: a side that has sent
/// everything may wait for an answer, but one that is gone reads nothing, and must not be waited for.
///
/// # Errors
/// When either side cannot be read or written.
pub async fn join<C, S>(client: C, server: S) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (split(client), split(server));
    let mut up = pin!(async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    });
    let mut down = pin!(async {
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    });
    // A direction that has not ended is polled again, so that nothing that it has read is lost.
    tokio::select! {
        ended = &mut up => {
            ended?;
            tokio::time::timeout(LINGER, down).await.unwrap_or(Ok(()))
        }
        ended = &mut down => {
            ended?;
            tokio::time::timeout(LINGER, up).await.unwrap_or(Ok(()))
        }
    }
}

/// The body of an answer of another server.
struct Passed {
    body: Incoming,
    end: End,
    permit: Option<Box<dyn Send>>,
    _place: Option<Reservation>,
}

/// The event that ends an answer before its sender does.
enum End {
    Deadline(Pin<Box<Sleep>>),
    Stop(Pin<Box<WaitForCancellationFutureOwned>>),
    BreakOff(Pin<Box<WaitForCancellationFutureOwned>>),
}

impl End {
    /// The last chunk, when it is time.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        let broken = |why: &str| Some(Err(AnswerError::Broken(why.to_owned())));
        match self {
            End::Deadline(deadline) => {
                deadline.as_mut().poll(cx).map(|()| broken("the other server did not send it in time"))
            }
            End::Stop(stopping) => stopping.as_mut().poll(cx).map(|()| None),
            End::BreakOff(stopping) => stopping.as_mut().poll(cx).map(|()| broken("this server is stopping")),
        }
    }
}

impl Chunks for Passed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        loop {
            if let Poll::Ready(end) = self.end.poll(cx) {
                return Poll::Ready(end);
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
        self.permit = matches!(self.end, End::Deadline(_)).then_some(permit);
    }
}
