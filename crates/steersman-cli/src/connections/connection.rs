//! One connection, from the handshake to its end: HTTP/1 or HTTP/2, its deadlines, and its end when the server stops.

#[cfg(test)]
mod unread;

use crate::connections::activity::{Activity, Answering, Observed, Overdue, Sender};
use crate::connections::tasks::Tasks;
use crate::connections::unauthenticated::Slot;
use futures::future::Either;
use hyper::body::{Body, Incoming};
use hyper::rt;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, Service as HyperService, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use steersman_server::AuthenticatedUser;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// The most concurrent streams of one HTTP/2 connection. Clients such as kube's and hyper's have one connection, on
/// which every watch is a stream, and wait when there are no more; a Go client opens another connection. Ten times the
/// limit of kube-apiserver (`--http2-max-streams-per-connection`), because a waiting stream takes a few KB here.
const STREAMS_MAX: u32 = 1000;
/// The most streams that a peer may open and reset before they are accepted. Beyond that it gets ENHANCE_YOUR_CALM and
/// the connection ends: otherwise a peer makes the server work at next to no cost (CVE-2023-44487).
const RESET_STREAMS_MAX: usize = 20;
/// The most streams that may be reset here because their peer broke the protocol; beyond that the connection ends.
const FAULTY_STREAMS_MAX: usize = 128;
/// The most bytes of the unpacked headers of an HTTP/2 request. A larger request gets 431. Each stream may hold this
/// much.
const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
/// The most bytes buffered for a slow HTTP/2 peer, per stream.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// The idle time after which an HTTP/2 peer is pinged, and the time limit for its answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of the head of an HTTP/1 request. Go's limit is 1 MB; no sensible request needs a tenth of it.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// The time limit for a connection to end when it is told to and no request is in flight.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol of a connection, as negotiated in the TLS handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The settings with which a connection serves its socket.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) protocol: Protocol,
    pub(crate) activity: Activity,
    /// Its place among unauthenticated connections; `None` for a peer whose certificate was verified.
    pub(crate) unauthenticated: Option<Slot>,
    /// The executor of HTTP/2 streams.
    pub(crate) streams: Tasks,
    /// When cancelled, requests in flight may end and no more are accepted.
    pub(crate) stop: CancellationToken,
}

impl Connection {
    /// Serves the connection to its end. The future is small beside the boxes that it holds: a waiting watcher takes
    /// hardly more than those.
    pub(crate) fn serve<I, S, B>(self, stream: I, service: S) -> impl Future<Output = ()> + Send + use<I, S, B>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: HyperService<Request<Incoming>, Response = Response<B>> + Send + 'static,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::Future: Send + 'static,
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Connection { protocol, activity, unauthenticated, streams, stop } = self;
        let requests = activity.clone();
        let service = service_fn(move |request| {
            let (activity, begun) = (requests.clone(), requests.begin_request());
            let answer = service.call(request);
            async move {
                let answer = answer.await?;
                activity.answered(match answer.extensions().get::<AuthenticatedUser>() {
                    Some(_) => Sender::Authenticated,
                    None => Sender::Unauthenticated,
                });
                Ok::<_, S::Error>(answer.map(|body| Answering::new(body, begun)))
            }
        });
        match protocol {
            Protocol::Http1 => {
                let stream = TokioIo::new(Observed::new(stream, activity.clone()));
                let connection = Box::pin(http1_builder().serve_connection(stream, service).with_upgrades());
                Either::Left(attend(connection, activity, unauthenticated, stop))
            }
            Protocol::Http2 => {
                let connection = Box::pin(http2_builder(streams).serve_connection(TokioIo::new(stream), service));
                Either::Right(attend(connection, activity, unauthenticated, stop))
            }
        }
    }
}

/// A connection that can be told to end once it is idle.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn end(self: Pin<&mut Self>);
}

impl<I, S, B> Graceful for http1::UpgradeableConnection<I, S>
where
    I: rt::Read + rt::Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B> Graceful for http2::Connection<I, S, Tasks>
where
    I: rt::Read + rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    Tasks: rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// The events that a connection's loop waits for.
enum Event {
    Ended(hyper::Result<()>),
    Evicted,
    Overdue(Overdue),
    Stop,
}

/// Serves a connection until it ends, is overdue, or is evicted.
async fn attend<C>(mut connection: Pin<Box<C>>, activity: Activity, mut place: Option<Slot>, stop: CancellationToken)
where
    C: Graceful,
{
    let mut timer = pin!(tokio::time::sleep(FAREWELL_TIMEOUT));
    let mut stopped = pin!(stop.cancelled());
    let mut ending: Option<Instant> = None;
    loop {
        let event = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Event::Ended(ended));
            }
            // Checked after the connection was polled, so that its latest activity counts. Activity of HTTP/2 streams,
            // which run in tasks of their own, is seen when they send, and with the next ping at the latest.
            if activity.is_authenticated() {
                place = None;
            }
            if place.as_mut().is_some_and(|place| place.poll_evicted(cx).is_ready()) {
                return Poll::Ready(Event::Evicted);
            }
            if ending.is_none() && stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            let deadline = match ending {
                None => activity.deadline(),
                Some(_) if activity.is_busy() => activity.deadline(),
                Some(since) => Some((since + FAREWELL_TIMEOUT, Overdue::Idle)),
            };
            poll_deadline(timer.as_mut(), deadline, cx).map(Event::Overdue)
        });
        match event.await {
            Event::Ended(Ok(())) => return,
            Event::Ended(Err(error)) => return tracing::debug!(%error, "a connection ended with an error"),
            Event::Evicted => return tracing::debug!("an unauthenticated connection is closed for a newer one"),
            Event::Stop => {
                ending = Some(Instant::now());
                connection.as_mut().end();
            }
            Event::Overdue(Overdue::Idle) if ending.is_none() => {
                ending = Some(Instant::now());
                connection.as_mut().end();
            }
            Event::Overdue(overdue) => return tracing::debug!(?overdue, "a connection is closed"),
        }
    }
}

/// Ready when the deadline has passed. The timer is reset only for an earlier deadline: deadlines move on with every
/// request, and a timer that fires too early costs less than a reset with each.
fn poll_deadline(
    mut timer: Pin<&mut Sleep>,
    deadline: Option<(Instant, Overdue)>,
    cx: &mut Context<'_>,
) -> Poll<Overdue> {
    let Some((at, overdue)) = deadline else { return Poll::Pending };
    if at <= Instant::now() {
        return Poll::Ready(overdue);
    }
    if timer.is_elapsed() || at < timer.deadline() {
        timer.as_mut().reset(at);
    }
    while timer.as_mut().poll(cx).is_ready() {
        if at <= Instant::now() {
            return Poll::Ready(overdue);
        }
        timer.as_mut().reset(at);
    }
    Poll::Pending
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // `Activity` has the deadlines instead.
    builder.header_read_timeout(None).max_header_size(HEAD_BYTES_MAX);
    builder
}

fn http2_builder(streams: Tasks) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(FAULTY_STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::activity::{AUTHENTICATION_TIMEOUT, FIRST_REQUEST_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT};
    use crate::connections::unauthenticated::Unauthenticated;
    use std::convert::Infallible;
    use std::sync::Arc;
    use steersman_server::user::User;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// An empty SETTINGS frame, its acknowledgement, and `GET https://a/` on stream 1.
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const SETTINGS_ACK: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
    const STREAM: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x84\x87\x41\x01a";
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// The duration of an answer, and whether it says that its sender is authenticated.
    #[derive(Clone, Copy)]
    struct Server {
        delay: Duration,
        knows_all: bool,
    }

    const QUICK: Server = Server { delay: Duration::ZERO, knows_all: true };

    impl Server {
        /// Serves one end of a stream; the other is the peer's.
        fn serve(self, protocol: Protocol, place: Option<Slot>, stop: CancellationToken) -> (DuplexStream, Tasks) {
            let (near, far) = tokio::io::duplex(1 << 16);
            let service = service_fn(move |_| async move {
                tokio::time::sleep(self.delay).await;
                let mut answer = Response::new("answer".to_owned());
                if self.knows_all {
                    answer.extensions_mut().insert(AuthenticatedUser(Arc::new(User::authenticated("somebody", []))));
                }
                Ok::<_, Infallible>(answer)
            });
            let activity = Activity::new(Instant::now(), Sender::Unauthenticated);
            let streams = Tasks::default();
            let connection = Connection { protocol, activity, unauthenticated: place, streams: streams.clone(), stop };
            rt::Executor::execute(&streams, connection.serve(near, service));
            (far, streams)
        }

        /// The time for which a peer keeps its connection if it sends `words` and then only reads.
        async fn keeps(self, protocol: Protocol, words: &[&[u8]]) -> Duration {
            let began = Instant::now();
            let (mut far, _tasks) = self.serve(protocol, None, CancellationToken::new());
            far.write_all(&words.concat()).await.unwrap();
            let mut read = Vec::new();
            let ended = tokio::time::timeout(Duration::from_secs(3600), far.read_to_end(&mut read)).await;
            ended.expect("the connection is kept for ever").unwrap();
            began.elapsed()
        }
    }

    #[track_caller]
    fn check(lasted: Duration, want: Duration) {
        assert!((want..want + Duration::from_secs(1)).contains(&lasted), "{lasted:?}, not {want:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_nothing_is_not_kept() {
        check(QUICK.keeps(Protocol::Http1, &[b""]).await, FIRST_REQUEST_TIMEOUT);
        check(QUICK.keeps(Protocol::Http2, &[b""]).await, FIRST_REQUEST_TIMEOUT);
        check(QUICK.keeps(Protocol::Http2, &[b"PRI"]).await, FIRST_REQUEST_TIMEOUT);
        check(QUICK.keeps(Protocol::Http2, &[PREFACE, SETTINGS, SETTINGS_ACK]).await, FIRST_REQUEST_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_end_is_cut_off_soon_also_after_a_request() {
        check(QUICK.keeps(Protocol::Http1, &[b"GET / HTTP/1.1\r\n"]).await, HEAD_TIMEOUT);
        let (mut far, tasks) = QUICK.serve(Protocol::Http1, None, CancellationToken::new());
        far.write_all(REQUEST).await.unwrap();
        read_until(&mut far, b"answer").await;
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        let began = Instant::now();
        far.write_all(b"GET /").await.unwrap();
        far.read_to_end(&mut Vec::new()).await.unwrap();
        check(began.elapsed(), HEAD_TIMEOUT);
        tasks.cut().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_be_idle_for_minutes_between_requests() {
        check(QUICK.keeps(Protocol::Http1, &[REQUEST]).await, IDLE_TIMEOUT);
        let (mut far, tasks) = QUICK.serve(Protocol::Http1, None, CancellationToken::new());
        for _ in 0..3 {
            far.write_all(REQUEST).await.unwrap();
            read_until(&mut far, b"answer").await;
            tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        }
        tasks.cut().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_may_wait_for_an_answer() {
        let slow = Server { delay: IDLE_TIMEOUT * 3, ..QUICK };
        check(slow.keeps(Protocol::Http1, &[REQUEST]).await, IDLE_TIMEOUT * 4);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_may_not_go_on_asking() {
        let stern = Server { knows_all: false, ..QUICK };
        check(stern.keeps(Protocol::Http1, &[REQUEST]).await, AUTHENTICATION_TIMEOUT);
        let began = Instant::now();
        let (mut far, _tasks) = stern.serve(Protocol::Http1, None, CancellationToken::new());
        let mut pause = tokio::time::interval(Duration::from_secs(7));
        while far.write_all(REQUEST).await.is_ok() {
            pause.tick().await;
            assert!(began.elapsed() < AUTHENTICATION_TIMEOUT * 2, "it is still asked");
        }
        assert!(began.elapsed() >= AUTHENTICATION_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_peer_that_gives_no_sign_of_life_loses_its_watch() {
        let watch = Server { delay: Duration::from_secs(3600), ..QUICK };
        let lasted = watch.keeps(Protocol::Http2, &[PREFACE, SETTINGS, SETTINGS_ACK, STREAM]).await;
        check(lasted, PING_INTERVAL + PING_TIMEOUT);
    }

    /// Requests on this many streams, each reset at once.
    fn resets(n_streams: u32) -> Vec<u8> {
        let mut words = [PREFACE, SETTINGS, SETTINGS_ACK].concat();
        for stream in (0..n_streams).map(|n| (2 * n + 1).to_be_bytes()) {
            let [headers, block] = [&STREAM[..5], &STREAM[9..]];
            words.extend([headers, &stream, block, b"\0\0\x04\x03\0", &stream, b"\0\0\0\x08"].concat());
        }
        words
    }

    /// The error codes of the GOAWAY frames among these frames.
    fn codes_of_goaway(mut frames: &[u8]) -> Vec<u32> {
        let mut codes = Vec::new();
        while let Some(([a, b, c, kind, _, _, _, _, _], rest)) = frames.split_first_chunk::<9>() {
            let (payload, behind) = rest.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
            // The last stream id comes first.
            if let (7, [_, _, _, _, code @ ..]) = (*kind, payload) {
                codes.extend(code.first_chunk::<4>().map(|code| u32::from_be_bytes(*code)));
            }
            frames = behind;
        }
        codes
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_peer_that_resets_what_it_asks_for_is_told_to_calm_down() {
        const ENHANCE_YOUR_CALM: u32 = 11;
        for (n_streams, is_too_many) in [(10, false), (1_500, true)] {
            let (mut far, _tasks) = QUICK.serve(Protocol::Http2, None, CancellationToken::new());
            far.write_all(&resets(n_streams)).await.unwrap();
            let began = Instant::now();
            let mut read = Vec::new();
            tokio::time::timeout(Duration::from_secs(3600), far.read_to_end(&mut read)).await.unwrap().unwrap();
            let told = codes_of_goaway(&read).contains(&ENHANCE_YOUR_CALM);
            assert_eq!((told, began.elapsed() < PING_INTERVAL), (is_too_many, is_too_many), "{n_streams} streams");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_peer_gives_way_and_a_known_one_does_not() {
        let places = Unauthenticated::new(1);
        let stop = CancellationToken::new();
        let (mut known, _known_tasks) = QUICK.serve(Protocol::Http1, Some(places.enter()), stop.clone());
        known.write_all(REQUEST).await.unwrap();
        read_until(&mut known, b"answer").await;
        let (mut unknown, _unknown_tasks) = QUICK.serve(Protocol::Http1, Some(places.enter()), stop);
        let began = Instant::now();
        let _newer = places.enter();
        unknown.read_to_end(&mut Vec::new()).await.unwrap();
        check(began.elapsed(), Duration::ZERO);
        known.write_all(REQUEST).await.unwrap();
        read_until(&mut known, b"answer").await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_server_ends_what_is_idle_at_once_and_the_rest_when_it_is_answered() {
        let stop = CancellationToken::new();
        let slow = Server { delay: Duration::from_secs(4), ..QUICK };
        let (mut busy, _busy_tasks) = slow.serve(Protocol::Http1, None, stop.clone());
        let (mut idle, _idle_tasks) = QUICK.serve(Protocol::Http1, None, stop.clone());
        busy.write_all(REQUEST).await.unwrap();
        idle.write_all(REQUEST).await.unwrap();
        read_until(&mut idle, b"answer").await;
        let began = Instant::now();
        stop.cancel();
        idle.read_to_end(&mut Vec::new()).await.unwrap();
        check(began.elapsed(), Duration::ZERO);
        let mut answer = String::new();
        busy.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("answer"), "{answer}");
        check(began.elapsed(), slow.delay);
    }

    async fn read_until(stream: &mut DuplexStream, end: &[u8]) {
        let mut read = Vec::new();
        while !read.ends_with(end) {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "the connection ended");
        }
    }
}
