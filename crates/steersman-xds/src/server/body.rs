//! The response side of a stream: pieces of memory that are handed to HTTP/2 one after another.

use crate::server::status::{Code, Status};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    n_received: u64,
    has_ended: bool,
}

/// How far HTTP/2 has got. It asks for more when the peer has taken enough of what it has.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    n_asked: AtomicU64,
    n_given: AtomicU64,
    /// The number of messages of which nothing is left here.
    n_drained: AtomicU64,
}

// === impl Progress ===

impl Progress {
    /// Grows whenever the peer has taken something.
    pub(crate) fn n_asked(&self) -> u64 {
        self.n_asked.load(Ordering::Acquire)
    }

    /// Whether everything was taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.n_drained.load(Ordering::Acquire) == self.n_given.load(Ordering::Acquire)
    }

    /// A message will be given to the body. It is counted first: a body that is asked in between has not taken it.
    pub(crate) fn given(&self) {
        self.n_given.fetch_add(1, Ordering::AcqRel);
    }
}

// === impl OutgoingBody ===

impl OutgoingBody {
    /// A body, with room for one message beside the one that is being written.
    pub(crate) fn new() -> (OutgoingBody, mpsc::Sender<Outgoing>, Arc<Progress>) {
        let (sender, receiver) = mpsc::channel(1);
        let progress = Arc::new(Progress::default());
        let body = OutgoingBody {
            receiver,
            pieces: Vec::new().into_iter(),
            progress: progress.clone(),
            n_received: 0,
            has_ended: false,
        };
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
                Poll::Ready(Some(Outgoing::Message(pieces))) => {
                    self.n_received += 1;
                    self.pieces = pieces.into_iter();
                }
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
                    self.progress.n_drained.store(self.n_received, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_message_is_not_taken_before_it_was_given() {
        let (mut body, sender, progress) = OutgoingBody::new();
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |body: &mut OutgoingBody| Pin::new(body).poll_frame(&mut cx).is_ready();
        assert!(!poll(&mut body) && progress.is_drained());
        progress.given();
        // The connection asks between the two steps of the stream.
        assert!(!poll(&mut body) && !progress.is_drained());
        sender.try_send(Outgoing::Message(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")])).unwrap();
        assert!(!progress.is_drained(), "nobody has asked");
        for _ in 0..2 {
            assert!(poll(&mut body) && !progress.is_drained());
        }
        assert!(!poll(&mut body) && progress.is_drained());
    }
}
