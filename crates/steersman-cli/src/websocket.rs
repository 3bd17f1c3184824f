//! Watches over WebSocket, which fabric8's client asks for first, and which is all that some browsers can read as a stream.
//!
//! As with kube-apiserver, each event is a message of its own, in text. What the peer sends is not looked at; when it closes,
//! the watch ends, and when the watch ends, the socket is closed. Requests that are no watch are answered as if they had not
//! asked for a WebSocket.

use crate::tasks::Tasks;
use bytes::{Buf as _, BytesMut};
use futures::future::{BoxFuture, Either, FutureExt as _, MapOk, TryFutureExt as _};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
};
use http::header::{SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Either as EitherBody, Empty};
use hyper::body::Body;
use hyper::rt::Executor as _;
use hyper::service::Service as HyperService;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Silence after which a peer is asked for a sign of life; without one until the next time its watch ends.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long a peer may take to receive a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of a message of a peer, who has nothing to say.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;

/// A service whose watches may be had over WebSocket.
#[derive(Clone, Debug)]
pub(crate) struct WebSockets<S> {
    service: S,
    /// Where the sockets are served once their connections are theirs.
    tasks: Tasks,
}

type Answer<B> = Response<EitherBody<B, Empty<<B as Body>::Data>>>;

// === impl WebSockets ===

impl<S> WebSockets<S> {
    pub(crate) fn new(service: S, tasks: Tasks) -> WebSockets<S> {
        WebSockets { service, tasks }
    }
}

impl<S, R, B> HyperService<Request<R>> for WebSockets<S>
where
    S: HyperService<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: fmt::Display + Send,
{
    type Response = Answer<B>;
    type Error = S::Error;
    type Future =
        Either<MapOk<S::Future, fn(Response<B>) -> Answer<B>>, BoxFuture<'static, Result<Answer<B>, S::Error>>>;

    fn call(&self, mut request: Request<R>) -> Self::Future {
        let key = accept_key(&request);
        let upgrade = key.and_then(|key| Some((key, request.extensions_mut().remove::<OnUpgrade>()?)));
        let Some((key, upgrade)) = upgrade else {
            let plain: fn(Response<B>) -> Answer<B> = |answer| answer.map(EitherBody::Left);
            return Either::Left(self.service.call(request).map_ok(plain));
        };
        let protocol = only_protocol(request.headers());
        let (answer, tasks) = (self.service.call(request), self.tasks.clone());
        Either::Right(answer.map_ok(move |answer| switch(answer, key, protocol, upgrade, &tasks)).boxed())
    }
}

/// Answers 101 and has the events sent as messages, if the answer is a watch in JSON.
fn switch<B>(
    answer: Response<B>,
    key: HeaderValue,
    protocol: Option<HeaderValue>,
    upgrade: OnUpgrade,
    tasks: &Tasks,
) -> Answer<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: fmt::Display + Send,
{
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    if answer.status() != StatusCode::OK || !answer.headers().get(CONTENT_TYPE).is_some_and(is_json) {
        return answer.map(EitherBody::Left);
    }
    let (mut head, events) = answer.into_parts();
    tasks.execute(async move {
        match upgrade.await {
            Ok(stream) => send(TokioIo::new(stream), events).await,
            Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
        }
    });
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    for name in [CONTENT_TYPE, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    head.headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    head.headers.extend(protocol.map(|protocol| (SEC_WEBSOCKET_PROTOCOL, protocol)));
    Response::from_parts(head, EitherBody::Right(Empty::new()))
}

/// Sends each line as a message, until there are no more or the peer has gone.
async fn send<T, B>(stream: T, mut lines: B)
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body + Unpin,
    B::Error: fmt::Display,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .max_message_size(Some(RECEIVED_BYTES_MAX))
        .max_frame_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let mut is_alive = true;
    let mut rest = BytesMut::new();
    loop {
        let mut messages = Vec::new();
        // Each arm is cancel-safe: a frame, a message and a tick that are not taken stay where they are.
        tokio::select! {
            frame = lines.frame() => match frame {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        rest.extend_from_slice(&data.copy_to_bytes(data.remaining()));
                    }
                    messages.extend(whole_lines(&mut rest));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a watch over WebSocket ended with an error");
                    messages.push(Message::Close(None));
                }
                None => messages.push(Message::Close(None)),
            },
            received = socket.next() => match received {
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => is_alive = true,
            },
            _ = pings.tick() => {
                if !std::mem::replace(&mut is_alive, false) {
                    return tracing::debug!("the peer of a WebSocket gives no sign of life");
                }
                messages.push(Message::Ping(bytes::Bytes::new()));
            }
        }
        let is_end = matches!(messages.last(), Some(Message::Close(_)));
        let sending = async {
            for message in messages {
                socket.feed(message).await?;
            }
            // Also what the library has to say by itself: it answers pings.
            socket.flush().await
        };
        match tokio::time::timeout(SEND_TIMEOUT, sending).await {
            Ok(Ok(())) if !is_end => {}
            _ => return,
        }
    }
}

/// Takes the lines that have ended, each as a message. What is not text cannot be one and is left out; JSON is.
fn whole_lines(rest: &mut BytesMut) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let mut line = rest.split_to(end + 1);
        line.truncate(end);
        messages.extend(Utf8Bytes::try_from(line.freeze()).ok().map(Message::Text));
    }
    messages
}

/// What proves to a peer that its handshake was understood; `None` if the request is none for a watch over WebSocket.
fn accept_key<R>(request: &Request<R>) -> Option<HeaderValue> {
    let headers = request.headers();
    let is_wanted = request.method() == Method::GET
        && has_token(headers, &CONNECTION, "upgrade")
        && has_token(headers, &UPGRADE, "websocket")
        && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13")
        && is_watch(request.uri());
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_wanted)?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok()
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(token))
}

/// By the parameter `watch`, or the path of old.
fn is_watch(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&');
    let watch = parameters.map(|one| one.split_once('=').unwrap_or((one, ""))).find(|(name, _)| *name == "watch");
    match watch {
        Some((_, value)) => !matches!(value, "0" | "false" | "False" | "FALSE"),
        None => uri.path().split('/').any(|part| part == "watch"),
    }
}

/// The protocol that the peer offers, if it offers one only: there is nothing to choose from more.
fn only_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let only = offered.next().filter(|_| offered.next().is_none())?;
    (!only.as_bytes().contains(&b',')).then(|| only.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::channel::mpsc;
    use http_body_util::StreamBody;
    use hyper::body::{Frame, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::Error as WebSocketError;

    type Events = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

    const WATCH: &str = "ws://localhost/api/v1/pods?watch=true";

    /// A connection to a service that answers everything with this status and what is sent as events.
    fn connect(status: StatusCode) -> (DuplexStream, Events) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (events, body) = mpsc::unbounded();
        let body = Arc::new(Mutex::new(Some(body)));
        let service = service_fn(move |_: Request<Incoming>| {
            let body = body.lock().unwrap().take().unwrap();
            let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
            async move { Ok::<_, Infallible>(answer.body(StreamBody::new(body)).unwrap()) }
        });
        let service = WebSockets::new(service, Tasks::default());
        let connection = http1::Builder::new().serve_connection(TokioIo::new(near), service).with_upgrades();
        tokio::spawn(async move { connection.await.unwrap() });
        (far, events)
    }

    fn tell(events: &Events, bytes: &'static str) {
        events.unbounded_send(Ok(Frame::data(Bytes::from(bytes)))).unwrap();
    }

    #[tokio::test]
    async fn every_event_is_a_message_however_its_bytes_come() {
        let (stream, events) = connect(StatusCode::OK);
        let (mut socket, answer) = client_async(WATCH, stream).await.unwrap();
        assert_eq!(answer.headers().get(CONTENT_TYPE), None);
        tell(&events, "{\"type\":\"ADDED\"}\n{\"type\":");
        tell(&events, "\"MODIFIED\"}\n");
        for want in ["{\"type\":\"ADDED\"}", "{\"type\":\"MODIFIED\"}"] {
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(want));
        }
        drop(events);
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Close(None));
    }

    #[tokio::test]
    async fn a_peer_that_closes_ends_the_watch() {
        let (stream, events) = connect(StatusCode::OK);
        let (mut socket, _) = client_async(WATCH, stream).await.unwrap();
        socket.close(None).await.unwrap();
        // Its receiver is dropped with the body.
        futures::future::poll_fn(|cx| {
            let _ = futures::Stream::poll_next(std::pin::Pin::new(&mut socket), cx);
            match events.poll_ready(cx) {
                std::task::Poll::Ready(Err(_)) => std::task::Poll::Ready(()),
                _ => {
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_without_a_sign_of_life_loses_its_watch() {
        let (stream, events) = connect(StatusCode::OK);
        let (socket, _) = client_async(WATCH, stream).await.unwrap();
        let began = Instant::now();
        // Nobody reads, so nobody answers the ping.
        while !events.is_closed() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!((PING_INTERVAL..PING_INTERVAL * 3).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(socket);
    }

    #[tokio::test]
    async fn a_refusal_is_answered_as_it_is() {
        let (stream, events) = connect(StatusCode::FORBIDDEN);
        drop(events);
        let WebSocketError::Http(answer) = client_async(WATCH, stream).await.unwrap_err() else { panic!("no answer") };
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn what_is_no_watch_or_no_handshake_is_answered_as_ever() {
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
        let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for (path, headers, want) in [
            ("/api/v1/pods?watch=1", format!("{upgrade}{key}"), "HTTP/1.1 101"),
            ("/api/v1/watch/pods", format!("{upgrade}{key}"), "HTTP/1.1 101"),
            ("/api/v1/pods?watch=0", format!("{upgrade}{key}"), "HTTP/1.1 200"),
            ("/api/v1/pods", format!("{upgrade}{key}"), "HTTP/1.1 200"),
            ("/api/v1/pods?watch=1", upgrade.to_owned(), "HTTP/1.1 200"),
            ("/api/v1/pods?watch=1", key.to_owned(), "HTTP/1.1 200"),
        ] {
            let (mut stream, _events) = connect(StatusCode::OK);
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).await.unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            assert_eq!(std::str::from_utf8(&start).unwrap(), want, "{path} {headers}");
        }
    }
}
