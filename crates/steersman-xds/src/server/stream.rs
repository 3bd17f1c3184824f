//! One stream: a task that carries events to a session, and responses and reports from it.

use crate::report::{ProxyReport, StreamId, Variant};
use crate::server::body::{Outgoing, Progress};
use crate::server::reader::{self, Reader};
use crate::server::status::{Code, Status};
use crate::server::{Counted, Question, Shared};
use crate::session::{Now, Session};
use crate::source::{Source, Subscription};
use crate::subscriber::{Peer, Subscriber, Token};
use crate::view::View;
use bytes::Bytes;
use http_body::Body;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{AcquireError, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Questions that wait for a stream.
const QUESTIONS_MAX: usize = 2;

/// A stream that begins, with everything that its task needs.
pub(crate) struct Stream<S: Source> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) variant: Variant,
    pub(crate) peer: Peer,
    pub(crate) token: Option<Token>,
    pub(crate) sender: mpsc::Sender<Outgoing>,
    pub(crate) progress: Arc<Progress>,
    /// Closes the connection, because the peer takes nothing.
    pub(crate) stalled: CancellationToken,
    /// The connection is closed.
    pub(crate) gone: CancellationToken,
}

/// An event that a stream waits for.
enum Event {
    Asked(Question),
    Gone,
    Read(Result<Option<Bytes>, Status>),
    Room,
    Stopped,
    Time,
    View(Result<(), watch::error::RecvError>),
}

/// Tells the source that a stream has ended, whatever the reason.
struct Ended<S: Source>(Arc<Shared<S>>, StreamId);

/// A stream that is served, and whose it is.
struct Introduced<S: Source> {
    first: Bytes,
    subscriber: Arc<Subscriber>,
    subscription: Subscription,
    id: StreamId,
    ended: Ended<S>,
}

/// The response that the peer has not taken yet.
#[derive(Debug, Default)]
struct Delivery {
    /// When the peer must have taken something, if something was given.
    deadline: Option<Instant>,
    n_asked: u64,
}

/// A stream whose proxy is known.
struct Served<S: Source> {
    id: StreamId,
    stream: Stream<S>,
    subscriber: Arc<Subscriber>,
    _counted: Counted<S>,
    session: Session,
    connected: SystemTime,
    reported: u64,
    delivery: Delivery,
}

impl<S: Source> Drop for Ended<S> {
    fn drop(&mut self) {
        self.0.source.ended(self.1);
    }
}

// === impl Stream ===

impl<S: Source> Stream<S> {
    pub(crate) async fn run<B>(self, body: B)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let sender = self.sender.clone();
        let (gone, stall_timeout) = (self.gone.clone(), self.shared.options.stall_timeout);
        let status = self.serve(body).await;
        if !status.is_ok() {
            tracing::debug!(status = status.message(), "a stream of a proxy has ended");
        }
        // A peer that takes nothing learns nothing.
        let end = sender.send(Outgoing::End(status));
        tokio::select! {
            _ = tokio::time::timeout(stall_timeout, end) => {}
            () = gone.cancelled() => {}
        }
    }

    async fn serve<B>(mut self, body: B) -> Status
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut reader = Reader::new(body, self.shared.options.request_bytes_max);
        let (shared, gone) = (self.shared.clone(), self.gone.clone());
        let introduced = tokio::select! {
            introduced = self.introduce(&mut reader) => introduced,
            () = gone.cancelled() => return Status::new(Code::Ok, ""),
            () = shared.shutdown.cancelled() => return stopped(),
        };
        let Introduced { first, subscriber, subscription, id, ended: _ended } = match introduced {
            Ok(introduced) => introduced,
            Err(status) => return status,
        };
        let Subscription { owner, views } = subscription;
        let (questions, questions_asked) = mpsc::channel(QUESTIONS_MAX);
        let counted = match self.shared.count(owner, id, questions) {
            Ok(counted) => counted,
            Err(too_many) => return too_many.into(),
        };
        let session = Session::new(self.variant);
        let connected = SystemTime::now();
        let delivery = Delivery::default();
        let served =
            Served { id, stream: self, subscriber, _counted: counted, session, connected, reported: 0, delivery };
        served.run(first, reader, views, questions_asked).await
    }

    /// Finds out whose stream it is. Until that is known, few streams at a time may be read, and of their requests little is made.
    async fn introduce<B>(&mut self, reader: &mut Reader<B>) -> Result<Introduced<S>, Status>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (shared, timeout) = (self.shared.clone(), self.shared.options.stall_timeout);
        let address = self.peer.address.map(|address| address.ip());
        let turn = async {
            // The turn of its address comes first: of those that wait for one among all, few are of one address.
            let own = shared.peers.turn(address).await?;
            Ok::<_, AcquireError>((own, shared.unidentified.acquire().await?))
        };
        let Ok(Ok(_turn)) = tokio::time::timeout(timeout, turn).await else {
            return Err(Status::new(Code::Unavailable, "many proxies open a stream at the same time; ask again"));
        };
        let first = match tokio::time::timeout(timeout, reader.next()).await {
            Ok(first) => first?.ok_or_else(|| Status::new(Code::Ok, ""))?,
            Err(_) => return Err(Status::new(Code::DeadlineExceeded, "the proxy has sent no request")),
        };
        let node = reader::decode_node(self.variant, first.clone())?;
        let subscriber = Arc::new(Subscriber { node, peer: self.peer.clone(), token: self.token.take() });
        let id = shared.next_id();
        let subscription = match tokio::time::timeout(timeout, shared.source.subscribe(id, &subscriber)).await {
            Ok(subscription) => subscription?,
            Err(_) => {
                return Err(Status::new(
                    Code::Unavailable,
                    "it takes too long to find out whose stream it is; ask again",
                ));
            }
        };
        // The source knows the stream from here on, also if it is one too many.
        let ended = Ended(shared.clone(), id);
        Ok(Introduced { first, subscriber, subscription, id, ended })
    }
}

// === impl Served ===

impl<S: Source> Served<S> {
    async fn run<B>(
        mut self,
        first: Bytes,
        mut reader: Reader<B>,
        mut views: watch::Receiver<Option<Arc<View>>>,
        mut questions: mpsc::Receiver<Question>,
    ) -> Status
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if let Some(view) = views.borrow_and_update().clone() {
            self.session.wanted(view);
        }
        self.report();
        if let Err(status) = self.take(first) {
            return status;
        }
        loop {
            let has_room = self.write();
            self.report();
            let deadline = self.deadline();
            // Each of these can be dropped and asked again: nothing is lost.
            let event = tokio::select! {
                read = reader.next() => Event::Read(read),
                changed = views.changed() => Event::View(changed),
                Some(question) = questions.recv() => Event::Asked(question),
                _ = self.stream.sender.reserve(), if !has_room => Event::Room,
                () = sleep_until(deadline) => Event::Time,
                () = self.stream.gone.cancelled() => Event::Gone,
                () = self.stream.shared.shutdown.cancelled() => Event::Stopped,
            };
            match event {
                Event::Asked(question) => {
                    // Whoever has asked may be gone.
                    let _ = question.send(self.session.resources());
                }
                Event::Gone => return Status::new(Code::Ok, ""),
                Event::Read(read) => match read {
                    Ok(Some(message)) => {
                        if let Err(status) = self.take(message) {
                            return status;
                        }
                    }
                    Ok(None) => return Status::new(Code::Ok, ""),
                    Err(status) => return status,
                },
                Event::Room => {}
                Event::Stopped => return stopped(),
                Event::Time => {
                    if self.delivery.is_stalled(&self.stream.progress, self.stream.shared.options.stall_timeout) {
                        self.stream.stalled.cancel();
                        return Status::new(Code::DeadlineExceeded, "the proxy takes no responses");
                    }
                }
                Event::View(Ok(())) => {
                    if let Some(view) = views.borrow_and_update().clone() {
                        self.session.wanted(view);
                    }
                }
                Event::View(Err(_)) => return stopped(),
            }
        }
    }

    fn take(&mut self, message: Bytes) -> Result<(), Status> {
        let Some(request) = reader::decode(self.stream.variant, message)? else {
            tracing::debug!(node = self.subscriber.node.id, "a proxy asks for a type that is not served");
            return Ok(());
        };
        Ok(self.session.request(now(), request, self.stream.shared.options.names_max)?)
    }

    /// Writes what there is to write. False if the peer has to take something first.
    fn write(&mut self) -> bool {
        loop {
            let permit = match self.stream.sender.try_reserve() {
                Ok(permit) => permit,
                Err(TrySendError::Full(())) => return false,
                // The body is dropped with the connection, which ends the stream.
                Err(TrySendError::Closed(())) => return true,
            };
            let Some(response) = self.session.next(now()) else { return true };
            self.delivery.begin(&self.stream.progress, self.stream.shared.options.stall_timeout);
            self.stream.progress.given();
            permit.send(Outgoing::Message(response.encode()));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let session = self.session.deadline().map(Instant::from_std);
        session.into_iter().chain(self.delivery.deadline).min()
    }

    fn report(&mut self) {
        if self.reported == self.session.changes() && self.reported > 0 {
            return;
        }
        self.reported = self.session.changes().max(1);
        let report = ProxyReport {
            subscriber: self.subscriber.clone(),
            variant: self.session.variant(),
            connected: self.connected,
            wanted: self.session.view().cloned(),
            settled: self.session.settled().cloned(),
            rejections: self.session.rejections(),
            hurried: self.session.hurried(),
            changed: SystemTime::now(),
        };
        self.stream.shared.source.report(self.id, &report);
    }
}

// === impl Delivery ===

impl Delivery {
    /// A response will be given. The time begins with the first that is not taken: one that was taken long ago leaves none of its time, or a
    /// peer would be cut off that has got another response a moment before.
    fn begin(&mut self, progress: &Progress, timeout: std::time::Duration) {
        if self.deadline.is_none() || progress.is_drained() {
            self.n_asked = progress.n_asked();
            self.deadline = Some(Instant::now() + timeout);
        }
    }

    /// Whether the time is over and the peer has taken nothing in it.
    fn is_stalled(&mut self, progress: &Progress, timeout: std::time::Duration) -> bool {
        if self.deadline.is_none_or(|deadline| deadline > Instant::now()) {
            return false;
        }
        if progress.is_drained() {
            self.deadline = None;
            return false;
        }
        let n_asked = progress.n_asked();
        let is_stalled = n_asked == self.n_asked;
        self.n_asked = n_asked;
        self.deadline = Some(Instant::now() + timeout);
        is_stalled
    }
}

fn stopped() -> Status {
    Status::new(Code::Unavailable, "the control plane stops, or does not know the proxy any more; ask again")
}

fn now() -> Now {
    Now { instant: Instant::now().into_std(), time: SystemTime::now() }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::body::OutgoingBody;
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_response_has_time_of_its_own() {
        let timeout = Duration::from_secs(30);
        let (mut body, sender, progress) = OutgoingBody::new();
        let mut take = || while Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready() {};
        let mut delivery = Delivery::default();
        let give = |delivery: &mut Delivery| {
            delivery.begin(&progress, timeout);
            progress.given();
            sender.try_send(Outgoing::Message(vec![Bytes::from_static(b"a")])).unwrap();
        };
        give(&mut delivery);
        take();
        tokio::time::advance(timeout - Duration::from_millis(1)).await;
        give(&mut delivery);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(!delivery.is_stalled(&progress, timeout), "it was given a moment ago");
        tokio::time::advance(timeout).await;
        assert!(delivery.is_stalled(&progress, timeout), "nothing of it was taken");
        take();
        tokio::time::advance(timeout).await;
        assert!(!delivery.is_stalled(&progress, timeout));
        assert_eq!(delivery.deadline, None);
    }
}
