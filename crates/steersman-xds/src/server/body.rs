//! The response side of a stream: pieces of memory that are handed to HTTP/2 one after another.

use crate::server::status::{Code, Status};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::vec;
use tokio::sync::mpsc;

/// A part of a response, from a stream's task.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Message(Vec<Bytes>),
    End(Status),
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct OutgoingBody {
    receiver: mpsc::Receiver<Outgoing>,
    pieces: vec::IntoIter<Bytes>,
    progress: Arc<Progress>,
    has_ended: bool,
}

/// How far HTTP/2 has got. It asks for more when the peer has taken enough of what it has.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    n_asked: AtomicU64,
    is_drained: AtomicBool,
}

// === impl Progress ===

impl Progress {
    /// Grows whenever the peer has taken something.
    pub(crate) fn n_asked(&self) -> u64 {
        self.n_asked.load(Ordering::Acquire)
    }

    /// Whether everything was taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Something was given to the body.
    pub(crate) fn given(&self) {
        self.is_drained.store(false, Ordering::Release);
    }
}

// === impl OutgoingBody ===

impl OutgoingBody {
    /// A body, with room for one message beside the one that is being written.
    pub(crate) fn new() -> (OutgoingBody, mpsc::Sender<Outgoing>, Arc<Progress>) {
        let (sender, receiver) = mpsc::channel(1);
        let progress = Arc::new(Progress::default());
        let body =
            OutgoingBody { receiver, pieces: Vec::new().into_iter(), progress: progress.clone(), has_ended: false };
        (body, sender, progress)
    }

    /// A body that says only how the stream has ended.
    pub(crate) fn ended(status: Status) -> OutgoingBody {
        let (body, sender, _) = OutgoingBody::new();
        // There is room for one.
        let _ = sender.try_send(Outgoing::End(status));
        body
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.progress.n_asked.fetch_add(1, Ordering::AcqRel);
        loop {
            if let Some(piece) = self.pieces.next() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match self.receiver.poll_recv(cx) {
                Poll::Ready(Some(Outgoing::Message(pieces))) => self.pieces = pieces.into_iter(),
                Poll::Ready(Some(Outgoing::End(status))) => {
                    self.has_ended = true;
                    return Poll::Ready(Some(Ok(Frame::trailers(status.to_headers()))));
                }
                // The task has ended without a word, which is when the process ends.
                Poll::Ready(None) => {
                    self.has_ended = true;
                    let status = Status::new(Code::Unavailable, "the control plane stops");
                    return Poll::Ready(Some(Ok(Frame::trailers(status.to_headers()))));
                }
                Poll::Pending => {
                    self.progress.is_drained.store(true, Ordering::Release);
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
