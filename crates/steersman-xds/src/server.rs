//! The aggregated discovery service over HTTP/2: streams of gRPC, framed by hand.
//!
//! The caller accepts connections, of TCP, TLS or a Unix socket, and hands each to [`Server::serve`]. A task for each stream reads requests,
//! hands them to its `session`, and writes what the session has to say, one response at a time. hyper takes bodies in pieces that can be shared,
//! and has no buffer for a stream that is at rest, which is why tonic is not used here: it encodes each message into a buffer of its own.
//!
//! # Bounds
//! Streams in all and for each owner, streams without an owner in all and from each address, names and bytes of a request: see [`Options`]. A stream whose peer takes nothing for a while takes its connection with
//! it, as does a peer that answers no pings, and a connection without streams.

mod body;
mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod peers;
mod reader;
mod status;
mod stream;

use crate::report::{ResourceReport, StreamId};
use crate::server::peers::Peers;
use crate::source::Source;
use crate::subscriber::Peer;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::server::connection::ConnectionError;

/// Limits of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The most streams at a time. 20,000.
    pub streams_max: usize,
    /// The most streams of one owner at a time. 4: a proxy that connects again may have an old stream for a while.
    pub streams_per_owner_max: usize,
    /// The most streams at a time whose first request is read and whose owner is looked for. 64. Further ones wait for their turn, and do not count
    /// as streams yet.
    pub unidentified_max: usize,
    /// The most of these from one address, or one network of 64 bits of IPv6. 16.
    pub unidentified_per_address_max: usize,
    /// The most names of a type that one stream may have. 50,000.
    pub names_max: usize,
    /// The most bytes of a request. 4 MiB.
    pub request_bytes_max: usize,
    /// How long a peer may take nothing of what is sent to it, how long it may take to send its first request, and how long its owner is looked for.
    /// 30 s. Whether a peer takes something is looked at once in this time, so one that stops is cut off after a little more than twice the time
    /// at the latest.
    pub stall_timeout: Duration,
}

/// The discovery service.
#[derive(Debug)]
pub struct Server<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) source: Arc<S>,
    pub(crate) options: Options,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// The streams whose owner may be looked for.
    pub(crate) unidentified: Semaphore,
    /// The same for each address.
    pub(crate) peers: Peers,
    next_id: AtomicU64,
    streams: Mutex<Streams>,
}

/// The streams that are open.
#[derive(Debug, Default)]
struct Streams {
    n_open: usize,
    by_owner: HashMap<Arc<str>, usize>,
    questions: HashMap<StreamId, mpsc::Sender<Question>>,
}

/// Asks a stream for what its proxy has.
pub(crate) type Question = oneshot::Sender<Vec<ResourceReport>>;

/// Keeps a stream counted.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    shared: Arc<Shared<S>>,
    owner: Arc<str>,
    id: StreamId,
}

/// Why a stream is one too many.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("the control plane has {0} streams and takes no more")]
    Streams(usize),
    #[error("the proxy {owner} has {max} streams and may open no more")]
    OfOwner { owner: Arc<str>, max: usize },
}

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            streams_max: 20_000,
            streams_per_owner_max: 4,
            unidentified_max: 64,
            unidentified_per_address_max: 16,
            names_max: 50_000,
            request_bytes_max: 4 * 1024 * 1024,
            stall_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    #[must_use]
    pub fn streams_max(mut self, streams_max: usize) -> Options {
        self.streams_max = streams_max;
        self
    }

    #[must_use]
    pub fn streams_per_owner_max(mut self, streams_per_owner_max: usize) -> Options {
        self.streams_per_owner_max = streams_per_owner_max;
        self
    }

    #[must_use]
    pub fn unidentified_max(mut self, unidentified_max: usize) -> Options {
        self.unidentified_max = unidentified_max;
        self
    }

    #[must_use]
    pub fn unidentified_per_address_max(mut self, unidentified_per_address_max: usize) -> Options {
        self.unidentified_per_address_max = unidentified_per_address_max;
        self
    }

    #[must_use]
    pub fn names_max(mut self, names_max: usize) -> Options {
        self.names_max = names_max;
        self
    }

    #[must_use]
    pub fn request_bytes_max(mut self, request_bytes_max: usize) -> Options {
        self.request_bytes_max = request_bytes_max;
        self
    }

    #[must_use]
    pub fn stall_timeout(mut self, stall_timeout: Duration) -> Options {
        self.stall_timeout = stall_timeout;
        self
    }
}

// === impl Server ===

impl<S> Clone for Server<S> {
    fn clone(&self) -> Server<S> {
        Server { shared: self.shared.clone() }
    }
}

impl<S: Source> Server<S> {
    #[must_use]
    pub fn new(source: Arc<S>, options: Options) -> Server<S> {
        let unidentified = Semaphore::new(options.unidentified_max.min(Semaphore::MAX_PERMITS));
        let peers = Peers::new(options.unidentified_per_address_max);
        let shared = Shared {
            unidentified,
            peers,
            source,
            options,
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            next_id: AtomicU64::new(1),
            streams: Mutex::default(),
        };
        Server { shared: Arc::new(shared) }
    }

    /// Serves one connection until it ends, or until [`Server::shutdown`]. HTTP/2 begins at once, without an upgrade.
    ///
    /// # Errors
    /// If the connection breaks or does not speak HTTP/2.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection and ends its streams.
    pub async fn serve<IO>(&self, io: IO, peer: Peer) -> Result<(), ConnectionError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        connection::serve(&self.shared, io, peer).await
    }

    /// Every resource that the proxy of a stream has, should have, or is being sent. `None` if the stream has ended.
    pub async fn resources(&self, stream: StreamId) -> Option<Vec<ResourceReport>> {
        let questions = self.shared.streams().questions.get(&stream).cloned()?;
        let (sender, answer) = oneshot::channel();
        questions.send(sender).await.ok()?;
        answer.await.ok()
    }

    /// Ends all streams with `Unavailable`, so that proxies go elsewhere or ask again, and waits until they have ended.
    pub async fn shutdown(&self) {
        self.shared.shutdown.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

// === impl Shared ===

impl<S> Shared<S> {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a stream.
    pub(crate) fn next_id(&self) -> StreamId {
        StreamId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a stream as one of this owner, and takes questions to it.
    pub(crate) fn count(
        self: &Arc<Shared<S>>,
        owner: Arc<str>,
        id: StreamId,
        questions: mpsc::Sender<Question>,
    ) -> Result<Counted<S>, TooMany> {
        let mut streams = self.streams();
        if streams.n_open >= self.options.streams_max {
            return Err(TooMany::Streams(streams.n_open));
        }
        let max = self.options.streams_per_owner_max;
        let n_streams = streams.by_owner.get(&owner).copied().unwrap_or_default();
        if n_streams >= max {
            return Err(TooMany::OfOwner { owner, max });
        }
        streams.n_open += 1;
        streams.by_owner.insert(owner.clone(), n_streams + 1);
        streams.questions.insert(id, questions);
        Ok(Counted { shared: self.clone(), owner, id })
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        let mut streams = self.shared.streams();
        streams.n_open -= 1;
        streams.questions.remove(&self.id);
        if let Some(n_streams) = streams.by_owner.get_mut(&self.owner) {
            *n_streams -= 1;
            if *n_streams == 0 {
                streams.by_owner.remove(&self.owner);
            }
        }
    }
}
