//! The bodies of answers.
//!
//! A list is written piece by piece from the objects as they are stored, a watch when its client takes it; neither is ever
//! held whole.

use crate::endpoint::WatchStream;
use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes that a piece of a list has at the least, but for the last.
const PIECE_BYTES: usize = 64 * 1024;
/// Answers of at least so many bytes are compressed for those who can read it.
pub(crate) const COMPRESS_BYTES_MIN: usize = 128 * 1024;

/// The body of an answer.
pub struct Body(Inner);

enum Inner {
    Full(Bytes),
    Gzip(Box<Gzip>),
    List(List),
    Watch(Watch),
}

struct List {
    opening: Bytes,
    items: VecDeque<Item>,
    closing: Bytes,
    is_first: bool,
    bytes_left: usize,
}

/// One item of a list: what comes before the bytes of an object, and those.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) opening: &'static [u8],
    pub(crate) bytes: Bytes,
}

/// Compresses what another body gives.
struct Gzip {
    source: List,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

type Next = Pin<Box<dyn Future<Output = (Option<Bytes>, Box<WatchStream>)> + Send>>;

struct Watch {
    next: Option<Next>,
}

impl Body {
    /// No body.
    pub fn empty() -> Body {
        Body::full(Bytes::new())
    }

    /// A body that is there already.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body(Inner::Full(bytes.into()))
    }

    pub(crate) fn list(opening: Bytes, items: VecDeque<Item>, closing: Bytes) -> Body {
        let items_bytes: usize = items.iter().map(|item| item.opening.len() + item.bytes.len()).sum();
        let bytes_left = opening.len() + items_bytes + items.len().saturating_sub(1) + closing.len();
        Body(Inner::List(List { opening, items, closing, is_first: true, bytes_left }))
    }

    pub(crate) fn watch(stream: WatchStream) -> Body {
        Body(Inner::Watch(Watch { next: Some(Watch::step(Box::new(stream))) }))
    }

    /// Compresses the body if it is long enough to be worth it; says whether it did.
    pub(crate) fn compress(&mut self) -> bool {
        let source = match &mut self.0 {
            Inner::Full(bytes) if bytes.len() >= COMPRESS_BYTES_MIN => {
                let bytes = std::mem::take(bytes);
                let bytes_left = bytes.len();
                List { opening: bytes, items: VecDeque::new(), closing: Bytes::new(), is_first: true, bytes_left }
            }
            Inner::List(list) if list.bytes_left >= COMPRESS_BYTES_MIN => std::mem::replace(
                list,
                List {
                    opening: Bytes::new(),
                    items: VecDeque::new(),
                    closing: Bytes::new(),
                    is_first: false,
                    bytes_left: 0,
                },
            ),
            Inner::Full(_) | Inner::List(_) | Inner::Gzip(_) | Inner::Watch(_) => return false,
        };
        let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self.0 = Inner::Gzip(Box::new(Gzip { source, encoder }));
        true
    }

    /// All of a body that is not a watch; a watch has no end and gives nothing.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.0 {
            Inner::Full(bytes) => bytes,
            Inner::List(mut list) => {
                let mut all = BytesMut::with_capacity(list.bytes_left);
                while let Some(piece) = list.next_piece() {
                    all.put_slice(&piece);
                }
                all.freeze()
            }
            Inner::Gzip(_) | Inner::Watch(_) => Bytes::new(),
        }
    }
}

impl List {
    fn next_piece(&mut self) -> Option<Bytes> {
        if self.bytes_left == 0 {
            return None;
        }
        let mut piece = BytesMut::with_capacity(self.bytes_left.min(PIECE_BYTES * 2));
        if self.is_first {
            piece.put_slice(&self.opening);
        }
        while piece.len() < PIECE_BYTES {
            let Some(item) = self.items.pop_front() else { break };
            if !self.is_first {
                piece.put_slice(b",");
            }
            self.is_first = false;
            piece.put_slice(item.opening);
            piece.put_slice(&item.bytes);
        }
        if self.items.is_empty() {
            self.is_first = false;
            piece.put_slice(&self.closing);
        }
        self.bytes_left = self.bytes_left.saturating_sub(piece.len());
        if self.items.is_empty() {
            self.bytes_left = 0;
        }
        Some(piece.freeze())
    }
}

impl Gzip {
    fn next_piece(&mut self) -> Option<Bytes> {
        let mut encoder = self.encoder.take()?;
        while let Some(piece) = self.source.next_piece() {
            // Writing into a vector cannot fail.
            let _ = encoder.write_all(&piece);
            let made = encoder.get_mut();
            if made.len() >= PIECE_BYTES {
                let bytes = std::mem::take(made);
                self.encoder = Some(encoder);
                return Some(bytes.into());
            }
        }
        encoder.finish().ok().map(Bytes::from)
    }
}

impl Watch {
    fn step(mut stream: Box<WatchStream>) -> Next {
        Box::pin(async move {
            let frames = stream.next().await;
            (frames, stream)
        })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut self.0 {
            Inner::Full(bytes) if bytes.is_empty() => None,
            Inner::Full(bytes) => Some(std::mem::take(bytes)),
            Inner::Gzip(gzip) => gzip.next_piece(),
            Inner::List(list) => list.next_piece(),
            Inner::Watch(watch) => {
                let Some(next) = &mut watch.next else { return Poll::Ready(None) };
                let Poll::Ready((frames, stream)) = next.as_mut().poll(cx) else { return Poll::Pending };
                watch.next = frames.is_some().then(|| Watch::step(stream));
                frames
            }
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Gzip(gzip) => gzip.encoder.is_none(),
            Inner::List(list) => list.bytes_left == 0,
            Inner::Watch(watch) => watch.next.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::List(list) => SizeHint::with_exact(list.bytes_left as u64),
            Inner::Gzip(_) | Inner::Watch(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Inner::Full(_) => "Full",
            Inner::Gzip(_) => "Gzip",
            Inner::List(_) => "List",
            Inner::Watch(_) => "Watch",
        };
        f.debug_tuple("Body").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn list(items: usize) -> Body {
        let items = (0..items).map(|_| Item { opening: b"{", bytes: Bytes::from_static(b"\"a\":1}") }).collect();
        Body::list(Bytes::from_static(b"["), items, Bytes::from_static(b"]"))
    }

    #[test]
    fn a_list_is_as_long_as_it_says() {
        for n in [0, 1, 2, 50_000] {
            let body = list(n);
            let exact = http_body::Body::size_hint(&body).exact();
            let bytes = body.into_bytes();
            assert_eq!(exact, Some(bytes.len() as u64));
            let parsed: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(parsed.len(), n);
        }
    }

    #[test]
    fn a_long_list_is_compressed_and_reads_back() {
        let mut body = list(50_000);
        let plain = list(50_000).into_bytes();
        assert!(body.compress() && !list(3).compress());
        let Inner::Gzip(mut gzip) = body.0 else { panic!("not compressed") };
        let mut compressed = Vec::new();
        while let Some(piece) = gzip.next_piece() {
            compressed.extend_from_slice(&piece);
        }
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut read).unwrap();
        assert_eq!(read, plain);
    }
}
