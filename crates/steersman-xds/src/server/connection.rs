//! One connection: HTTP/2, which of its requests are streams of the service, and when it is closed.

use crate::report::Variant;
use crate::server::Shared;
use crate::server::body::OutgoingBody;
use crate::server::status::{Code, Status};
use crate::server::stream::Stream;
use crate::source::Source;
use crate::subscriber::{Peer, Token};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";
/// Envoy opens one, and a second one if it speaks to two ADS clusters at one address. Streams that nobody is known to own are bounded by it too.
const STREAMS_PER_CONNECTION_MAX: u32 = 8;
/// The bytes that a stream and a connection receive ahead of their readers.
const WINDOW_BYTES: u32 = 256 * 1024;
/// The bytes of a response that HTTP/2 keeps beside the piece that it writes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// How often a peer is asked whether it is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long streams may take to end when the server stops.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a connection has ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    #[error("cannot serve HTTP/2")]
    Http(#[source] hyper::Error),
    #[error("the peer has opened no stream for {0:?}")]
    Idle(Duration),
    #[error("the peer has taken nothing of a response for {0:?}")]
    Stalled(Duration),
}

/// Serves a connection to its end.
pub(crate) async fn serve<S, IO>(shared: &Arc<Shared<S>>, io: IO, peer: Peer) -> Result<(), ConnectionError>
where
    S: Source,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stalled = CancellationToken::new();
    // Ends the streams of a connection that is dropped.
    let gone = CancellationToken::new();
    let _gone = gone.clone().drop_guard();
    let streams = TaskTracker::new();
    let service = service_fn(|request| {
        let response = answer(shared, &streams, request, &peer, &stalled, &gone);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(16 * 1024)
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let stall_timeout = shared.options.stall_timeout;
    let mut was_idle = false;
    let mut idle = tokio::time::interval(stall_timeout);
    idle.tick().await;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(ConnectionError::Http),
            () = stalled.cancelled() => return Err(ConnectionError::Stalled(stall_timeout)),
            () = shared.shutdown.cancelled() => break,
            _ = idle.tick() => {
                let is_idle = streams.is_empty();
                if is_idle && was_idle {
                    return Err(ConnectionError::Idle(stall_timeout));
                }
                was_idle = is_idle;
            }
        }
    }
    // Streams end by themselves, and say so to their peers.
    connection.as_mut().graceful_shutdown();
    match tokio::time::timeout(GOODBYE_TIMEOUT, connection).await {
        Ok(ended) => ended.map_err(ConnectionError::Http),
        Err(_) => Ok(()),
    }
}

fn answer<S: Source>(
    shared: &Arc<Shared<S>>,
    streams: &TaskTracker,
    request: Request<Incoming>,
    peer: &Peer,
    stalled: &CancellationToken,
    gone: &CancellationToken,
) -> Response<OutgoingBody> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|content_type| content_type.to_str().ok());
    if request.method() != Method::POST || !content_type.is_some_and(|text| text.starts_with("application/grpc")) {
        let mut response = ended(Status::new(Code::Unimplemented, "requests are gRPC"));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let variant = match request.uri().path().strip_prefix(SERVICE) {
        Some("DeltaAggregatedResources") => Variant::Delta,
        Some("StreamAggregatedResources") => Variant::StateOfTheWorld,
        _ => {
            let message = format!("{} is not served; aggregated discovery is", request.uri().path());
            return ended(Status::new(Code::Unimplemented, message));
        }
    };
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(Token::new);
    let (body, sender, progress) = OutgoingBody::new();
    let stream = Stream {
        shared: shared.clone(),
        variant,
        peer: peer.clone(),
        token,
        sender,
        progress,
        stalled: stalled.clone(),
        gone: gone.clone(),
    };
    let run = streams.track_future(stream.run(request.into_body()));
    shared.tasks.spawn(run);
    grpc(body)
}

fn ended(status: Status) -> Response<OutgoingBody> {
    let headers = status.to_headers();
    let mut response = grpc(OutgoingBody::ended(status));
    // Without a message, gRPC has the status in the head of the response.
    response.headers_mut().extend(headers);
    response
}

fn grpc(body: OutgoingBody) -> Response<OutgoingBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
    response
}
