//! Watches and logs over WebSocket, the only streams that some browsers can read. fabric8's client tries it first for watches.
//!
//! As in kube-apiserver, each event is a separate text message; a log is binary messages, or text messages in base64, after
//! an empty one (apiserver's `wsstream`). Messages of the peer are ignored; when it closes, the
//! stream ends, and when the stream ends, the socket is closed. Other requests are answered as if they had
//! not asked for a WebSocket.
//!
//! A socket holds no copy of an event, only the base64 of a chunk of a log. The bytes, which watches share, are written as
//! the peer reads them, and the body is polled for more only when all of them are written. So a peer that does not read costs
//! as much as over HTTP, and is cut off after the same time.

mod lines;
mod messages;

use crate::connections::activity::WRITE_TIMEOUT;
use crate::connections::tasks::Tasks;
use crate::connections::websocket::messages::{Coding, Content, Message as Whole, Messages};
use bytes::{Buf as _, Bytes};
use futures::future::{BoxFuture, Either, FutureExt as _, MapOk, TryFutureExt as _};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL,
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
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// The idle time after which a peer is pinged; if it has not answered after the same time again, its watch ends.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The most bytes of a message from a peer, which has no reason to send any.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of pings, pongs and the close frame that wait for the peer; with more of them the socket is closed.
/// The next message of the peer is read when they are sent, so that only a faulty peer reaches the limit.
const CONTROL_BYTES_MAX: usize = 4096;

/// A service whose watches and logs are also available over WebSocket.
#[derive(Clone, Debug)]
pub(crate) struct WebSockets<S> {
    service: S,
    /// The tasks that serve upgraded connections.
    tasks: Tasks,
    /// The permit of the connection among those served at a time, which its WebSocket keeps.
    place: Arc<OwnedSemaphorePermit>,
}

/// A request to upgrade, with its connection.
struct Handshake {
    content: Content,
    key: HeaderValue,
    protocol: Option<HeaderValue>,
    upgrade: OnUpgrade,
    place: Arc<OwnedSemaphorePermit>,
}

type Answer<B> = Response<EitherBody<B, Empty<<B as Body>::Data>>>;

// === impl WebSockets ===

impl<S> WebSockets<S> {
    pub(crate) fn new(service: S, tasks: Tasks, place: Arc<OwnedSemaphorePermit>) -> WebSockets<S> {
        WebSockets { service, tasks, place }
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

    fn call(&self, request: Request<R>) -> Self::Future {
        let wanted = wanted(&request);
        // The service keeps its own: what looks like a watch may be a proxied request, or an `exec` in a namespace of this name.
        let upgrade = wanted.and_then(|wanted| Some((wanted, request.extensions().get::<OnUpgrade>()?.clone())));
        let Some(((content, protocol, key), upgrade)) = upgrade else {
            let plain: fn(Response<B>) -> Answer<B> = |answer| answer.map(EitherBody::Left);
            return Either::Left(self.service.call(request).map_ok(plain));
        };
        let (answer, tasks, place) = (self.service.call(request), self.tasks.clone(), self.place.clone());
        let handshake = Handshake { content, key, protocol, upgrade, place };
        Either::Right(answer.map_ok(move |answer| switch(answer, handshake, &tasks)).boxed())
    }
}

/// Answers 101 and starts to send messages, if the answer is a watch in JSON or a log.
fn switch<B>(answer: Response<B>, handshake: Handshake, tasks: &Tasks) -> Answer<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: fmt::Display + Send,
{
    let media_type: &[u8] = match handshake.content {
        Content::Watch => b"application/json",
        Content::Log(_) => b"text/plain",
    };
    let is_wanted = |value: &HeaderValue| value.as_bytes().starts_with(media_type);
    if answer.status() != StatusCode::OK || !answer.headers().get(CONTENT_TYPE).is_some_and(is_wanted) {
        return answer.map(EitherBody::Left);
    }
    let (mut head, body) = answer.into_parts();
    let Handshake { content, key, protocol, upgrade, place } = handshake;
    tasks.execute(async move {
        let _place = place;
        match upgrade.await {
            Ok(stream) => send(TokioIo::new(stream), body, content).await,
            Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
        }
    });
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    for name in [CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    head.headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    head.headers.extend(protocol.map(|protocol| (SEC_WEBSOCKET_PROTOCOL, protocol)));
    Response::from_parts(head, EitherBody::Right(Empty::new()))
}

/// Sends the messages of a body, until it ends or the peer disconnects.
async fn send<T, B>(stream: T, mut body: B, content: Content)
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body + Unpin,
    B::Error: fmt::Display,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(CONTROL_BYTES_MAX)
        .max_message_size(Some(RECEIVED_BYTES_MAX))
        .max_frame_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    // A peer that reads a message slowly gets the whole interval to answer the next ping.
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_alive = true;
    let mut messages = Messages::new(content);
    if let Err(error) = send_next(&mut socket, &mut messages, None).await {
        return tracing::debug!(%error, "a WebSocket is closed");
    }
    loop {
        let mut control = None;
        // Each arm is cancel-safe: a frame, a message and a tick that are not taken are kept.
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        messages.push(data.copy_to_bytes(data.remaining()));
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a stream over WebSocket ended with an error");
                    control = Some(Message::Close(None));
                }
                None => control = Some(Message::Close(None)),
            },
            received = socket.next() => match received {
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => is_alive = true,
            },
            _ = pings.tick() => {
                if !std::mem::replace(&mut is_alive, false) {
                    return tracing::debug!("the peer of a WebSocket gives no sign of life");
                }
                control = Some(Message::Ping(Bytes::new()));
            }
        }
        let is_end = matches!(control, Some(Message::Close(_)));
        if let Err(error) = send_next(&mut socket, &mut messages, control).await {
            return tracing::debug!(%error, "a WebSocket is closed");
        }
        if is_end {
            return;
        }
    }
}

/// Sends the complete messages, a control frame, and the library's own frames: it answers pings.
async fn send_next<T>(
    socket: &mut WebSocketStream<T>,
    messages: &mut Messages,
    control: Option<Message>,
) -> Result<(), tungstenite::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let controls = async {
        if let Some(message) = control {
            socket.feed(message).await?;
        }
        // After this the library's buffer is empty, and frames may be written past it.
        socket.flush().await
    };
    tokio::time::timeout(WRITE_TIMEOUT, controls).await.map_err(|_| unread())??;
    while let Some(message) = messages.next() {
        write_message(socket.get_mut(), message).await?;
    }
    Ok(())
}

/// Writes a message of one frame: some clients take the first frame for the whole message. Each piece leaves this process
/// when the peer reads it.
async fn write_message<T: AsyncWrite + Unpin>(stream: &mut T, message: Whole) -> Result<(), tungstenite::Error> {
    let mut header = Vec::new();
    let kind = FrameHeader { opcode: OpCode::Data(message.kind), ..FrameHeader::default() };
    kind.format(message.bytes() as u64, &mut header)?;
    for mut piece in std::iter::once(Bytes::from(header)).chain(message.pieces) {
        while !piece.is_empty() {
            let written = tokio::time::timeout(WRITE_TIMEOUT, stream.write(&piece)).await.map_err(|_| unread())??;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            piece.advance(written);
        }
    }
    tokio::time::timeout(WRITE_TIMEOUT, stream.flush()).await.map_err(|_| unread())??;
    Ok(())
}

/// The same rule as for answers over HTTP (`activity`).
fn unread() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer has taken nothing for a minute")
}

/// The contents of the WebSocket that a request asks for, its protocol, and the value that proves to the peer that its
/// handshake was understood; `None` if the request is for none.
fn wanted<R>(request: &Request<R>) -> Option<(Content, Option<HeaderValue>, HeaderValue)> {
    let headers = request.headers();
    let is_handshake = request.method() == Method::GET
        && has_token(headers, &CONNECTION, "upgrade")
        && has_token(headers, &UPGRADE, "websocket")
        && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_handshake)?;
    let key = HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok()?;
    if is_log(request.uri()) {
        let (coding, protocol) = coding(headers)?;
        return Some((Content::Log(coding), protocol, key));
    }
    is_watch(request.uri()).then(|| (Content::Watch, only_protocol(headers), key))
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(token))
}

/// Whether a request is a watch, by the parameter `watch` or the old path.
fn is_watch(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&');
    let watch = parameters.map(|one| one.split_once('=').unwrap_or((one, ""))).find(|(name, _)| *name == "watch");
    match watch {
        Some((_, value)) => !matches!(value, "0" | "false" | "False" | "FALSE"),
        None => uri.path().split('/').any(|part| part == "watch"),
    }
}

/// Whether a request is for the log of a Pod.
fn is_log(uri: &Uri) -> bool {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    matches!(parts[..], ["api", "v1", "namespaces", _, "pods", _, "log"])
}

/// The first coding of logs that the peer offers, and its name as a protocol; `None` if it offers others only.
fn coding(headers: &HeaderMap) -> Option<(Coding, Option<HeaderValue>)> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Some((Coding::Binary, None));
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).find_map(|name| {
        let coding = match name.trim() {
            "binary.k8s.io" => Coding::Binary,
            "base64.binary.k8s.io" => Coding::Base64,
            _ => return None,
        };
        Some((coding, HeaderValue::from_str(name.trim()).ok()))
    })
}

/// The protocol that the peer offers, if it is only one: among several the server cannot choose.
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
    use tokio::io::{AsyncReadExt as _, DuplexStream};
    use tokio::sync::Semaphore;
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::Error as WebSocketError;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    use tokio_tungstenite::tungstenite::protocol::frame::Frame as WebSocketFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

    type Events = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

    const WATCH: &str = "ws://localhost/api/v1/pods?watch=true";

    /// A connection to a service that always answers with this status and the events that the test sends.
    fn connect(status: StatusCode) -> (DuplexStream, Events) {
        let (stream, events, _) = connect_with_places(status);
        (stream, events)
    }

    /// The same, with the only permit for connections.
    fn connect_with_places(status: StatusCode) -> (DuplexStream, Events, Arc<Semaphore>) {
        connect_to(status, "application/json")
    }

    fn connect_to(status: StatusCode, media_type: &'static str) -> (DuplexStream, Events, Arc<Semaphore>) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (events, body) = mpsc::unbounded();
        let body = Arc::new(Mutex::new(Some(body)));
        let service = service_fn(move |_: Request<Incoming>| {
            let body = body.lock().unwrap().take().unwrap();
            let answer = Response::builder().status(status).header(CONTENT_TYPE, media_type);
            async move { Ok::<_, Infallible>(answer.body(StreamBody::new(body)).unwrap()) }
        });
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::new(places.clone().try_acquire_owned().unwrap());
        let service = WebSockets::new(service, Tasks::default(), place);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(near), service).with_upgrades();
        tokio::spawn(async move { connection.await.unwrap() });
        (far, events, places)
    }

    /// A namespace may be called `watch`, and a proxied path may have any query.
    #[tokio::test]
    async fn a_service_upgrades_what_only_looks_like_a_watch_itself() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let service = service_fn(|mut request: Request<Incoming>| async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                stream.write_all(b"of the service").await.unwrap();
            });
            let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            let answer = answer.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
            Ok::<_, Infallible>(answer.body(Empty::<Bytes>::new()).unwrap())
        });
        let place = Arc::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
        let service = WebSockets::new(service, Tasks::default(), place);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(near), service).with_upgrades();
        tokio::spawn(async move { connection.await.unwrap() });
        let head = "GET /api/v1/namespaces/watch/pods/p/exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        far.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        assert!(read.starts_with(b"HTTP/1.1 101") && read.ends_with(b"of the service"), "{read:?}");
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
    async fn a_log_is_messages_in_the_coding_that_the_peer_chooses() {
        for (protocols, chosen, want) in [
            ("", None, [Message::binary(""), Message::binary("one\ntwo"), Message::binary(" three")]),
            (
                "channel.k8s.io, base64.binary.k8s.io, binary.k8s.io",
                Some("base64.binary.k8s.io"),
                [Message::text(""), Message::text("b25lCnR3bw=="), Message::text("IHRocmVl")],
            ),
        ] {
            let (stream, events, _) = connect_to(StatusCode::OK, "text/plain");
            let mut request = "ws://localhost/api/v1/namespaces/a/pods/p/log".into_client_request().unwrap();
            if !protocols.is_empty() {
                request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
            }
            let (mut socket, answer) = client_async(request, stream).await.unwrap();
            let protocol = answer.headers().get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().unwrap());
            assert_eq!(protocol, chosen);
            tell(&events, "one\ntwo");
            tell(&events, " three");
            drop(events);
            for want in want.into_iter().chain([Message::Close(None)]) {
                assert_eq!(socket.next().await.unwrap().unwrap(), want);
            }
        }
    }

    #[tokio::test]
    async fn a_peer_that_closes_ends_the_watch() {
        let (stream, events) = connect(StatusCode::OK);
        let (mut socket, _) = client_async(WATCH, stream).await.unwrap();
        socket.close(None).await.unwrap();
        // The receiver is dropped with the body.
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
        // Nothing reads, so nothing answers the ping.
        while !events.is_closed() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!((PING_INTERVAL..PING_INTERVAL * 3).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(socket);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_holds_no_copy_of_an_event_and_is_cut_off_in_time() {
        let (stream, events) = connect(StatusCode::OK);
        let (socket, _) = client_async(WATCH, stream).await.unwrap();
        let mut event = vec![b'x'; 1 << 20];
        event.push(b'\n');
        let event = Bytes::from(event);
        let began = Instant::now();
        for _ in 0..3 {
            events.unbounded_send(Ok(Frame::data(event.clone()))).unwrap();
        }
        while !events.is_closed() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let lasted = began.elapsed();
        assert!((WRITE_TIMEOUT..WRITE_TIMEOUT + Duration::from_secs(2)).contains(&lasted), "{lasted:?}");
        drop((events, socket));
        // No other reference to the shared bytes is left.
        assert!(event.try_into_mut().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_has_a_large_event_as_one_message_after_minutes() {
        let (mut stream, events) = connect(StatusCode::OK);
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: a\r\n{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            "/a?watch=1"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        const EVENT_BYTES: usize = 400_000;
        for piece in [vec![b'x'; EVENT_BYTES - 10], vec![b'y'; 10], vec![b'\n']] {
            events.unbounded_send(Ok(Frame::data(Bytes::from(piece)))).unwrap();
        }
        let (mut read, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
        let began = Instant::now();
        let whole = loop {
            tokio::time::sleep(WRITE_TIMEOUT / 2).await;
            let n = stream.read(&mut chunk).await.unwrap();
            assert_ne!(n, 0, "the connection ended after {} bytes", read.len());
            read.extend_from_slice(&chunk[..n]);
            let begins = read.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(read.len()) + 4;
            if read.len() > begins + EVENT_BYTES {
                break read.split_off(begins);
            }
        };
        assert!(began.elapsed() > WRITE_TIMEOUT, "{:?}", began.elapsed());
        // A final text frame with a length of eight bytes.
        assert_eq!(whole[..2], [0x81, 127]);
        assert_eq!(whole[2..10], (EVENT_BYTES as u64).to_be_bytes());
    }

    #[tokio::test]
    async fn a_peer_that_says_too_much_in_a_message_loses_its_watch() {
        let fragment = |length: usize, opcode, is_final| {
            Message::Frame(WebSocketFrame::message(vec![b'x'; length], OpCode::Data(opcode), is_final))
        };
        let half = RECEIVED_BYTES_MAX / 2 + 1;
        for messages in [
            vec![Message::binary(vec![0; RECEIVED_BYTES_MAX + 1])],
            vec![fragment(half, Data::Text, false), fragment(half, Data::Continue, true)],
        ] {
            let (stream, events) = connect(StatusCode::OK);
            let (mut socket, _) = client_async(WATCH, stream).await.unwrap();
            // A message within the limit has no effect, whatever it is.
            socket.send(Message::binary(vec![0; 100])).await.unwrap();
            tell(&events, "{}\n");
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("{}"));
            for message in messages {
                let _ = socket.send(message).await;
            }
            while let Some(Ok(_)) = socket.next().await {}
            assert!(events.is_closed());
        }
    }

    #[tokio::test]
    async fn a_socket_keeps_the_place_of_its_connection_until_it_ends() {
        let (stream, events, places) = connect_with_places(StatusCode::OK);
        let (mut socket, _) = client_async(WATCH, stream).await.unwrap();
        for _ in 0..2 {
            tell(&events, "{}\n");
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("{}"));
        }
        assert_eq!(places.available_permits(), 0);
        drop(events);
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Close(None));
        drop(socket);
        assert!(places.acquire().await.is_ok());
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
