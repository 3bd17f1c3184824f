//! The activity of a connection, and the deadlines that follow from it.
//!
//! A state machine without a clock: the code that serves the connection reports reads, writes, requests and answers,
//! and reads the deadline. hyper has one timer for both the time between requests and the head of a request, and none
//! for peers that never authenticate or do not read, so these deadlines are computed here.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::Instant;

/// The time limit from the handshake to the first request.
pub(crate) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit from the first byte of a request's head to its last, over HTTP/1. A head is one packet, or a few: a
/// slower peer sends byte by byte.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit between two requests. Longer than the 90 seconds for which Go's and hyper's clients keep a
/// connection, so that the client closes it: a server that closes first meets requests that are on their way.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
/// The time limit from the handshake to the first authenticated request. A peer with a certificate is authenticated by
/// the handshake; one with a token sends it with the first request.
pub(crate) const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest that a peer may read nothing of an answer that waits for it. The body of that answer cannot end it:
/// hyper asks it for more only when there is room. A list gives up on a slow client after half of this time, so this
/// closes only connections whose peers have stopped reading. The kernel waits longer (`socket`), and does not know the
/// streams of HTTP/2.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes that a unit of the task's budget stands for when they are read. A task has 128 units a turn.
const BYTES_PER_UNIT: usize = 2 << 10;
/// The most units for one read.
const UNITS_MAX: usize = 16;

/// The activity of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    opened: Instant,
    phase: Phase,
    is_authenticated: bool,
    /// Whether an unauthenticated request was answered.
    is_refused: bool,
    /// The bodies that have given a frame and have not been polled for the next. A body that was polled and has no
    /// frame yet, as a watch without events, is not counted.
    n_bodies_waiting: usize,
    /// Whether the stream accepted less than it was given. Known for HTTP/1 only.
    is_stream_full: bool,
    /// The last time at which the peer read something, or something began to wait for it.
    taken_at: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// No request has arrived yet.
    New,
    /// A request has begun to arrive.
    Head { since: Instant },
    /// This many requests are being answered.
    Busy { requests: usize },
    /// All requests have been answered.
    Idle { since: Instant },
}

/// The reason why a connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Overdue {
    /// No request was authenticated in time.
    Authentication,
    /// No request arrived for a while.
    Idle,
    /// The head of a request did not arrive in time.
    Request,
    /// The peer read nothing of an answer for a while.
    Write,
}

/// The sender of a request, or the peer that opened a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sender {
    Authenticated,
    Unauthenticated,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Written {
    /// The stream has no room.
    Nothing,
    Something,
}

/// One request that is being answered, until this is dropped.
#[derive(Debug)]
pub(crate) struct Request {
    activity: Activity,
}

/// The body of an answer; the request is over when it is dropped.
#[derive(Debug)]
pub(crate) struct Answering<B> {
    body: B,
    request: Request,
    /// Whether it counts among the bodies that wait for the peer.
    is_waiting: bool,
}

/// Reports the reads and writes of a stream. Only for HTTP/1: over HTTP/2 reads are not only requests.
#[derive(Debug)]
pub(crate) struct Observed<I> {
    stream: I,
    activity: Activity,
}

// === impl Activity ===

impl Activity {
    /// The activity of a connection that has just been opened.
    pub(crate) fn new(now: Instant, sender: Sender) -> Activity {
        let state = State {
            opened: now,
            phase: Phase::New,
            is_authenticated: sender == Sender::Authenticated,
            is_refused: false,
            n_bodies_waiting: 0,
            is_stream_full: false,
            taken_at: now,
        };
        Activity { state: Arc::new(Mutex::new(state)) }
    }

    /// Whether a request, or the connection itself, was authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.state().is_authenticated
    }

    /// Whether a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state().phase, Phase::Busy { .. })
    }

    /// A request has arrived.
    pub(crate) fn begin_request(&self) -> Request {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Busy { requests } => Phase::Busy { requests: requests + 1 },
            Phase::New | Phase::Head { .. } | Phase::Idle { .. } => Phase::Busy { requests: 1 },
        };
        Request { activity: self.clone() }
    }

    /// A request of this sender was answered.
    pub(crate) fn answered(&self, sender: Sender) {
        let mut state = self.state();
        match sender {
            Sender::Authenticated => state.is_authenticated = true,
            Sender::Unauthenticated => state.is_refused = true,
        }
    }

    /// The time at which the connection is closed if nothing happens before, with the reason.
    pub(crate) fn deadline(&self) -> Option<(Instant, Overdue)> {
        let state = self.state();
        let (in_phase, is_waited_for) = match state.phase {
            Phase::New => (Some((state.opened + FIRST_REQUEST_TIMEOUT, Overdue::Request)), true),
            Phase::Head { since } => (Some((since + HEAD_TIMEOUT, Overdue::Request)), true),
            // A peer whose first request takes long may still be authenticated by it; one that was refused once may not
            // go on trying.
            Phase::Busy { .. } => (None, state.is_refused),
            Phase::Idle { since } => (Some((since + IDLE_TIMEOUT, Overdue::Idle)), true),
        };
        let is_unknown = !state.is_authenticated && is_waited_for;
        let authentication = is_unknown.then_some((state.opened + AUTHENTICATION_TIMEOUT, Overdue::Authentication));
        let is_unread = state.n_bodies_waiting > 0 || state.is_stream_full;
        let unread = is_unread.then_some((state.taken_at + WRITE_TIMEOUT, Overdue::Write));
        in_phase.into_iter().chain(authentication).chain(unread).min_by_key(|(at, _)| *at)
    }

    fn read(&self, now: Instant) {
        let mut state = self.state();
        if let Phase::New | Phase::Idle { .. } = state.phase {
            state.phase = Phase::Head { since: now };
        }
    }

    /// A body has given a frame, and waits to be polled for the next.
    fn body_waits(&self, now: Instant) {
        let mut state = self.state();
        state.n_bodies_waiting += 1;
        state.taken_at = now;
    }

    /// A body that waited is polled again, or dropped.
    fn body_goes_on(&self, now: Instant) {
        let mut state = self.state();
        state.n_bodies_waiting -= 1;
        state.taken_at = now;
    }

    /// Something was written to the stream.
    fn wrote(&self, now: Instant, written: Written) {
        let mut state = self.state();
        match written {
            Written::Nothing if state.is_stream_full => {}
            Written::Nothing => (state.is_stream_full, state.taken_at) = (true, now),
            Written::Something => (state.is_stream_full, state.taken_at) = (false, now),
        }
    }

    fn end_request(&self, now: Instant) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Busy { requests } if requests > 1 => Phase::Busy { requests: requests - 1 },
            _ => Phase::Idle { since: now },
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, and the state is consistent at all times.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.activity.end_request(Instant::now());
    }
}

// === impl Answering ===

impl<B> Answering<B> {
    pub(crate) fn new(body: B, request: Request) -> Answering<B> {
        Answering { body, request, is_waiting: false }
    }

    fn go_on(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.request.activity.body_goes_on(Instant::now());
        }
    }
}

impl<B> Drop for Answering<B> {
    fn drop(&mut self) {
        self.go_on();
    }
}

impl<B: Body + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.go_on();
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(_))) = frame {
            self.is_waiting = true;
            self.request.activity.body_waits(Instant::now());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Charges the task's budget for the bytes of a read. A peer that fills the buffer with tiny frames then yields after some
/// hundred kilobytes, not after megabytes.
fn yield_sooner(cx: &mut Context<'_>, n_read: usize) {
    for _ in 0..(n_read / BYTES_PER_UNIT).min(UNITS_MAX) {
        let Poll::Ready(unit) = coop::poll_proceed(cx) else { break };
        unit.made_progress();
    }
}

// === impl Observed ===

impl<I> Observed<I> {
    pub(crate) fn new(stream: I, activity: Activity) -> Observed<I> {
        Observed { stream, activity }
    }

    fn written(&self, written: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        match written {
            Poll::Pending => self.activity.wrote(Instant::now(), Written::Nothing),
            Poll::Ready(Ok(_)) => self.activity.wrote(Instant::now(), Written::Something),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Observed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), std::io::Error>> {
        let filled = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let n_read = buf.filled().len() - filled;
        if n_read > 0 {
            self.activity.read(Instant::now());
            yield_sooner(cx, n_read);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Observed<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_peer_that_always_has_more_gives_others_a_turn_after_some_hundred_kilobytes() {
        let activity = Activity::new(Instant::now(), Sender::Authenticated);
        let mut stream = Observed::new(tokio::io::repeat(0), activity);
        let mut bytes = vec![0; 16 << 10];
        // A task of its own has a whole budget.
        let in_one_turn = tokio::spawn(async move {
            let mut n_read = 0;
            std::future::poll_fn(|cx| {
                loop {
                    let mut buf = ReadBuf::new(&mut bytes);
                    match Pin::new(&mut stream).poll_read(cx, &mut buf) {
                        Poll::Ready(read) => read.unwrap(),
                        Poll::Pending => return Poll::Ready(n_read),
                    }
                    n_read += buf.filled().len();
                }
            })
            .await
        });
        let n_read = in_one_turn.await.unwrap();
        assert!((100_000..400_000).contains(&n_read), "{n_read}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_deadline() {
        let opened = Instant::now();
        let activity = Activity::new(opened, Sender::Authenticated);
        assert_eq!(activity.deadline(), Some((opened + FIRST_REQUEST_TIMEOUT, Overdue::Request)));
        activity.read(opened + SECOND);
        activity.read(opened + SECOND * 2);
        assert_eq!(activity.deadline(), Some((opened + SECOND + HEAD_TIMEOUT, Overdue::Request)));
        let (first, second) = (activity.begin_request(), activity.begin_request());
        assert_eq!(activity.deadline(), None);
        drop(first);
        activity.read(opened + SECOND * 3);
        assert_eq!(activity.deadline(), None, "a request is still being answered");
        tokio::time::advance(SECOND * 100).await;
        drop(second);
        assert_eq!(activity.deadline(), Some((opened + SECOND * 100 + IDLE_TIMEOUT, Overdue::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_peer_does_not_take_has_a_deadline_that_moves_with_what_it_takes() {
        let opened = Instant::now();
        let activity = Activity::new(opened, Sender::Authenticated);
        let overdue = |seconds: u32| Some((opened + SECOND * seconds + WRITE_TIMEOUT, Overdue::Write));
        let _request = activity.begin_request();
        activity.body_waits(opened + SECOND);
        assert_eq!(activity.deadline(), overdue(1));
        activity.wrote(opened + SECOND * 2, Written::Nothing);
        activity.wrote(opened + SECOND * 3, Written::Nothing);
        assert_eq!(activity.deadline(), overdue(2), "it still has taken nothing");
        activity.wrote(opened + SECOND * 4, Written::Something);
        assert_eq!(activity.deadline(), overdue(4), "the body is still not asked for more");
        activity.body_goes_on(opened + SECOND * 5);
        assert_eq!(activity.deadline(), None, "the body has nothing yet");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_peer_has_its_time_however_often_it_asks() {
        let opened = Instant::now();
        let activity = Activity::new(opened, Sender::Unauthenticated);
        let overdue = Some((opened + AUTHENTICATION_TIMEOUT, Overdue::Authentication));
        let first = activity.begin_request();
        assert_eq!(activity.deadline(), None, "it may be known once it is answered");
        activity.answered(Sender::Unauthenticated);
        assert_eq!(activity.deadline(), overdue);
        drop(first);
        assert_eq!(activity.deadline(), overdue);
        let second = activity.begin_request();
        assert_eq!(activity.deadline(), overdue);
        activity.answered(Sender::Authenticated);
        assert_eq!((activity.deadline(), activity.is_authenticated()), (None, true));
        drop(second);
        activity.answered(Sender::Unauthenticated);
        assert_eq!(activity.deadline().unwrap().1, Overdue::Idle);
    }
}
