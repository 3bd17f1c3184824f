//! The bodies of answers: either complete bytes, or chunks that are made as the client reads them.
//!
//! A body made in chunks is never held in memory as a whole. If a later chunk cannot be made the body ends with an
//! error, so that no client takes a part for the whole.

use crate::shared::request::memory::Reservation;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Frame, SizeHint};
use std::fmt;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The least number of bytes in a chunk, except in the last one.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// The longest that a chunk waits until its user has read other answers, and the time between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(50);
/// The time for which a client may keep the server waiting before the permit of its request is given back. Longer than a network takes between
/// two chunks, and so short that clients who do not read keep out nobody.
pub(crate) const PERMIT_PATIENCE: Duration = Duration::from_millis(100);
/// The bytes that are compressed before other tasks get a turn: two milliseconds.
const COMPRESS_AT_ONCE: usize = 4 * CHUNK_BYTES;
/// Answers of at least this many bytes are compressed if the client accepts gzip.
pub(crate) const COMPRESS_BYTES_MIN: usize = 128 * 1024;

/// The body of an answer.
pub struct Body {
    inner: Inner,
    memory: Memory,
    /// The wait for memory in which the next chunk can be made.
    waiting: Option<Box<Waiting>>,
}

struct Waiting {
    /// When the body ends instead.
    deadline: Instant,
    /// When there may be memory.
    next: Pin<Box<Sleep>>,
}

/// The memory that is reserved for bytes until they have been handed to the network.
enum Memory {
    /// None: the bytes are few, or in memory anyway.
    None,
    /// For each chunk of a stream, before it is made; for the first one from the beginning.
    EachChunk(Reservation),
    /// For all bytes of a whole body.
    Whole(Arc<Reservation>),
}

/// A chunk with its reservation: the transport may hold it for as long as its client does not read.
struct Reserved<R> {
    bytes: Bytes,
    _reservation: R,
}

impl<R> AsRef<[u8]> for Reserved<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Memory {
    /// Whether there is room for a chunk that is to be made, of which this many bytes are expected.
    fn has_room_for(&mut self, expected: usize) -> bool {
        match self {
            Memory::None | Memory::Whole(_) => true,
            Memory::EachChunk(next) => next.grow_to(expected).is_ok(),
        }
    }

    /// A chunk that holds its reservation.
    fn hand_over(&mut self, bytes: Bytes) -> Bytes {
        match self {
            Memory::None => bytes,
            Memory::EachChunk(next) => {
                let after = next.another();
                let mut reservation = std::mem::replace(next, after);
                reservation.become_exactly(bytes.len());
                if reservation.is_empty() {
                    return bytes;
                }
                Bytes::from_owner(Reserved { bytes, _reservation: reservation })
            }
            Memory::Whole(reservation) => Bytes::from_owner(Reserved { bytes, _reservation: reservation.clone() }),
        }
    }
}

enum Inner {
    Full(Bytes),
    Gzip(Box<Gzip>),
    Observed(Box<Observed>),
    /// `None` after its end.
    Stream(Option<Box<dyn Chunks>>),
}

/// The reason why a body is incomplete.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// A later part cannot be read or converted.
    #[error("the rest of the answer cannot be made: {0}")]
    Broken(String),
    /// The client read too slowly for too long.
    #[error("the client reads too slowly")]
    TooSlow,
}

/// Makes a body chunk by chunk.
pub(crate) trait Chunks: Send {
    /// The next chunk, never empty; `None` at the end and after an error.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>>;

    /// Takes over the permit of the request in flight. It is dropped at the end, or as soon as the client keeps the
    /// server waiting. An endless body, such as a watch, drops it when its beginning is sent.
    fn hold(&mut self, permit: Box<dyn Send>) {
        drop(permit);
    }

    /// The expected size of a chunk that will be made as soon as it is polled for; `None` if it may be long before there is one.
    fn next_bytes(&self) -> Option<usize> {
        None
    }

    /// The bytes that are already made, where memory is reserved for each chunk.
    fn first_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether compression is worthwhile: the body is long and has an end.
    fn is_compressible(&self) -> bool {
        false
    }
}

/// Observes the bytes that are sent of a body. Dropped with the body, after its end or when it is abandoned.
pub(crate) trait Observer: Send {
    fn chunk(&mut self, bytes: &Bytes);
}

/// A body with its observer.
struct Observed {
    source: Inner,
    observer: Box<dyn Observer>,
}

/// Compresses the bytes of another body.
struct Gzip {
    source: Inner,
    /// The bytes of the source that are to be compressed next.
    rest: Bytes,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Body {
    /// An empty body.
    pub fn empty() -> Body {
        Body::full(Bytes::new())
    }

    /// A body of complete bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body::of(Inner::Full(bytes.into()))
    }

    fn of(inner: Inner) -> Body {
        Body { inner, memory: Memory::None, waiting: None }
    }

    pub(crate) fn chunks(chunks: impl Chunks + 'static) -> Body {
        Body::of(Inner::Stream(Some(Box::new(chunks))))
    }

    /// All bytes, if the body is complete and has no observer or compression yet.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Full(bytes) => Some(bytes),
            Inner::Gzip(_) | Inner::Observed(_) | Inner::Stream(_) => None,
        }
    }

    /// Adds an observer of the bytes that are sent from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        let source = std::mem::replace(&mut self.inner, Inner::Full(Bytes::new()));
        self.inner = Inner::Observed(Box::new(Observed { source, observer }));
    }

    /// Compresses the body if it is long enough; returns whether it did.
    pub(crate) fn compress(&mut self) -> bool {
        let is_worth_it = self.inner.is_worth_compressing();
        if is_worth_it {
            let source = std::mem::replace(&mut self.inner, Inner::Full(Bytes::new()));
            let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
            self.inner = Inner::Gzip(Box::new(Gzip { source, rest: Bytes::new(), encoder }));
        }
        is_worth_it
    }

    /// The bytes that are in memory before the client reads; `None` for a watch whose bytes are shared with others.
    pub(crate) fn first_bytes(&self) -> Option<usize> {
        match &self.inner {
            Inner::Full(bytes) => Some(bytes.len()),
            Inner::Stream(chunks) => chunks.as_ref().and_then(|chunks| chunks.first_bytes()),
            Inner::Gzip(_) | Inner::Observed(_) => None,
        }
    }

    /// Keeps the reservation of the first bytes until these have been handed to the network, and reserves memory for those that follow.
    pub(crate) fn reserve(&mut self, reservation: Reservation) {
        self.memory = match &self.inner {
            Inner::Full(_) if reservation.is_empty() => Memory::None,
            Inner::Full(_) => Memory::Whole(Arc::new(reservation)),
            Inner::Gzip(_) | Inner::Observed(_) | Inner::Stream(_) => Memory::EachChunk(reservation),
        };
    }

    /// Passes the permit of a request in flight to the code that makes the rest of the answer.
    pub(crate) fn hold(&mut self, permit: impl Send + 'static) {
        let mut inner = &mut self.inner;
        loop {
            inner = match inner {
                Inner::Gzip(gzip) => &mut gzip.source,
                Inner::Observed(observed) => &mut observed.source,
                Inner::Full(_) | Inner::Stream(_) => break,
            };
        }
        if let Inner::Stream(Some(chunks)) = inner {
            chunks.hold(Box::new(permit));
        }
    }
}

impl Inner {
    fn is_worth_compressing(&self) -> bool {
        match self {
            Inner::Full(bytes) => COMPRESS_BYTES_MIN <= bytes.len(),
            Inner::Gzip(_) => false,
            Inner::Observed(observed) => observed.source.is_worth_compressing(),
            Inner::Stream(chunks) => chunks.as_ref().is_some_and(|chunks| chunks.is_compressible()),
        }
    }

    fn is_at_end(&self) -> bool {
        match self {
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Gzip(gzip) => gzip.encoder.is_none(),
            Inner::Observed(observed) => observed.source.is_at_end(),
            Inner::Stream(chunks) => chunks.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Observed(observed) => observed.source.size_hint(),
            Inner::Gzip(_) | Inner::Stream(_) => SizeHint::default(),
        }
    }

    fn next_bytes(&self) -> Option<usize> {
        match self {
            Inner::Full(_) => None,
            Inner::Gzip(gzip) => gzip.source.next_bytes(),
            Inner::Observed(observed) => observed.source.next_bytes(),
            Inner::Stream(chunks) => chunks.as_ref().and_then(|chunks| chunks.next_bytes()),
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        match self {
            Inner::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Full(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Inner::Gzip(gzip) => gzip.poll_chunk(cx),
            Inner::Observed(observed) => {
                let chunk = ready!(observed.source.poll_chunk(cx));
                if let Some(Ok(bytes)) = &chunk {
                    observed.observer.chunk(bytes);
                }
                Poll::Ready(chunk)
            }
            Inner::Stream(stream) => {
                let Some(chunks) = stream else { return Poll::Ready(None) };
                let chunk = ready!(chunks.poll_chunk(cx));
                if !matches!(chunk, Some(Ok(_))) {
                    *stream = None;
                }
                Poll::Ready(chunk)
            }
        }
    }
}

impl Gzip {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let mut n_compressed = 0;
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            if COMPRESS_AT_ONCE <= n_compressed {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.rest.is_empty() {
                let part = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
                n_compressed += part.len();
                // Writes to a vector cannot fail.
                let _ = encoder.write_all(&part);
                if CHUNK_BYTES <= encoder.get_ref().len() {
                    return Poll::Ready(Some(Ok(std::mem::take(encoder.get_mut()).into())));
                }
                continue;
            }
            match ready!(self.source.poll_chunk(cx)) {
                Some(Ok(chunk)) => self.rest = chunk,
                Some(Err(error)) => {
                    self.encoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    let rest = self.encoder.take().and_then(|encoder| encoder.finish().ok());
                    return Poll::Ready(rest.map(|rest| Ok(rest.into())));
                }
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            if let Some(waiting) = &mut this.waiting {
                ready!(waiting.next.as_mut().poll(cx));
            }
            if this.inner.next_bytes().is_none_or(|expected| this.memory.has_room_for(expected)) {
                this.waiting = None;
                let chunk = ready!(this.inner.poll_chunk(cx));
                return Poll::Ready(chunk.map(|chunk| chunk.map(|bytes| Frame::data(this.memory.hand_over(bytes)))));
            }
            let now = Instant::now();
            let deadline = this.waiting.as_ref().map_or(now + WAIT_MAX, |waiting| waiting.deadline);
            if deadline <= now {
                return Poll::Ready(Some(Err(Error::TooSlow)));
            }
            this.waiting = Some(Box::new(Waiting { deadline, next: Box::pin(tokio::time::sleep(RETRY)) }));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.inner {
            Inner::Full(_) => "Full",
            Inner::Gzip(_) => "Gzip",
            Inner::Observed(_) => "Observed",
            Inner::Stream(_) => "Stream",
        };
        f.debug_tuple("Body").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::collections::VecDeque;
    use std::io::Read as _;

    struct Given(VecDeque<Result<Bytes, Error>>);

    impl Chunks for Given {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
            Poll::Ready(self.0.pop_front())
        }

        fn is_compressible(&self) -> bool {
            true
        }
    }

    fn stream(chunks: impl IntoIterator<Item = Result<Bytes, Error>>) -> Body {
        Body::chunks(Given(chunks.into_iter().collect()))
    }

    async fn unzipped(mut body: Body) -> Vec<u8> {
        assert!(body.compress());
        let bytes = body.collect().await.unwrap().to_bytes();
        let mut whole = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut whole).unwrap();
        whole
    }

    #[tokio::test]
    async fn what_is_compressed_is_the_whole_body() {
        let chunks: Vec<Bytes> = (0..50_000).map(|index| Bytes::from(index.to_string())).collect();
        let want: Vec<u8> = chunks.iter().flatten().copied().collect();
        assert_eq!(unzipped(stream(chunks.into_iter().map(Ok))).await, want);
        assert_eq!(unzipped(stream([])).await, b"");
        assert_eq!(unzipped(Body::full(vec![b'x'; COMPRESS_BYTES_MIN])).await, vec![b'x'; COMPRESS_BYTES_MIN]);
        assert!(!Body::full("short").compress());
    }

    #[tokio::test]
    async fn a_body_that_breaks_ends_with_its_error() {
        let broken = || Err(Error::Broken("x".to_owned()));
        for is_compressed in [false, true] {
            let mut body = stream([Ok(Bytes::from_static(b"a")), broken(), Ok(Bytes::from_static(b"b"))]);
            if is_compressed {
                body.compress();
            }
            let mut last = None;
            while let Some(frame) = body.frame().await {
                last = Some(frame.map(|frame| frame.into_data().unwrap()));
            }
            assert_eq!(last, Some(broken()));
        }
    }
}
