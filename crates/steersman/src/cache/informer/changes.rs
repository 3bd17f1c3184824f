//! The changes of an informer as a stream: a handler that its reader calls, by polling.
//!
//! A stream has a mailbox like every handler, but no task. kube-runtime's adapters of a watch are methods of
//! [`Changes`] here: the watch and the cache are shared, and each stream only reads.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::cache::cached::{Cached, Decoder};
use crate::cache::handler::{Change, Event, EventKind};
use crate::cache::informer::mailbox::Mailbox;
use crate::cache::informer::task::{Consumer, Interest};
use crate::cache::informer::{HandlerOptions, Informer, Registration};
use crate::cache::outcome::Outcome;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

/// The changes of an informer's cache as a stream; see [`Informer::changes`].
///
/// It begins with the objects in the cache, as [`Arrival::Initial`](crate::cache::Arrival::Initial), and then has every
/// later change, without a gap and without a repetition. It ends when the informer has stopped.
///
/// Read it to the end or drop it: unread events wait, and once too many do ([`HandlerOptions::events_max`]), the cache
/// waits for the reader. Nothing waits for a stream to be synced, nor for it to be read when the informer stops.
///
/// ```
/// # use futures::StreamExt;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::cache::Informer;
/// # use steersman::predicates::labels_changed;
/// # async fn follow(configs: Informer<ConfigMap>) {
/// let mut relabeled = configs.changes().when(labels_changed()).applied();
/// while let Some(config) = relabeled.next().await {
///     println!("{:?}", config.metadata.labels);
/// }
/// # }
/// ```
#[must_use = "the cache waits for a stream that nobody reads"]
pub struct Changes<K> {
    events: BoxStream<'static, OwnedEvent<K>>,
}

/// An [`Event`] that owns its data.
pub struct OwnedEvent<K> {
    outcome: Outcome<K>,
    decoder: Arc<Decoder<K>>,
}

/// Empties a mailbox, and removes it when it is dropped.
pub(super) struct Reader<K: CachedResource> {
    registration: Registration<K>,
    batch: VecDeque<Outcome<K>>,
    decoder: Arc<Decoder<K>>,
}

// === impl Informer ===

impl<K: CachedResource> Informer<K> {
    /// Every change of the cache as a stream, before or after the start, with the informer's own watch.
    pub fn changes(&self) -> Changes<K> {
        self.changes_with(HandlerOptions::default())
    }

    /// As [`Informer::changes`], with resyncs or another bound of waiting events.
    pub fn changes_with(&self, options: HandlerOptions) -> Changes<K> {
        let reader = Reader::new(self, Interest::All, &options);
        let events = futures::stream::unfold(reader, |mut reader| async move {
            loop {
                let outcome = reader.next().await?;
                if !matches!(outcome, Outcome::Filled) {
                    let decoder = Arc::clone(reader.decoder());
                    return Some((OwnedEvent { outcome, decoder }, reader));
                }
            }
        });
        Changes { events: events.fuse().boxed() }
    }
}

// === impl Changes ===

impl<K: CachedResource> Changes<K> {
    /// Only the changes that pass; see [`crate::control::predicates`].
    pub fn when<F>(self, predicate: F) -> Self
    where
        F: Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
    {
        let events = self.events.filter(move |event| std::future::ready(event.as_event().with_change(&predicate)));
        Self { events: events.boxed() }
    }

    /// The new state of every object that appeared or changed. Deletions and undecodable objects are left out.
    pub fn applied(self) -> impl Stream<Item = Arc<K>> + Send + Unpin + use<K> {
        self.events.filter_map(|event| {
            let is_applied = matches!(event.kind(), EventKind::Added(_) | EventKind::Resync | EventKind::Updated);
            std::future::ready(if is_applied { event.object() } else { None })
        })
    }

    /// As [`Changes::applied`], and for a deleted object its last known state.
    pub fn touched(self) -> impl Stream<Item = Arc<K>> + Send + Unpin + use<K> {
        self.events.filter_map(|event| std::future::ready(event.object()))
    }

    /// The keys alone. Decodes nothing.
    ///
    /// For a controller, pass the informer itself ([`Controller::watches`](crate::Controller::watches)): while another
    /// replica has the lease, a controller reads no stream, and a stream of changes that is not read holds up the
    /// cache.
    pub fn keys(self) -> impl Stream<Item = ObjectKey> + Send + Unpin + use<K> {
        self.events.filter_map(|event| std::future::ready(event.key().cloned()))
    }
}

impl<K> Stream for Changes<K> {
    type Item = OwnedEvent<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.poll_next_unpin(cx)
    }
}

impl<K> fmt::Debug for Changes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

// === impl OwnedEvent ===

impl<K> OwnedEvent<K> {
    /// The event in the form that handlers get.
    pub fn as_event(&self) -> Event<'_, K> {
        Event::new(&self.outcome, &self.decoder)
    }

    /// The key of the object; `None` for an undecodable one without a name.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.outcome.key()
    }

    /// The type of the event.
    pub fn kind(&self) -> EventKind {
        self.as_event().kind()
    }
}

impl<K: CachedResource> OwnedEvent<K> {
    /// The newest known state, decoded; for a deleted object, the final or the last known one. `None` if no state can
    /// be decoded.
    pub fn object(&self) -> Option<Arc<K>> {
        self.decode(self.as_event().object()?)
    }

    /// The previous state of an object that changed, decoded.
    pub fn old(&self) -> Option<Arc<K>> {
        self.decode(self.as_event().old()?)
    }

    fn decode(&self, state: &Cached<K>) -> Option<Arc<K>> {
        self.as_event().decode_state(state)
    }
}

impl<K: fmt::Debug> fmt::Debug for OwnedEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedEvent").field(&self.outcome).finish()
    }
}

// === impl Reader ===

impl<K: CachedResource> Reader<K> {
    pub(super) fn new(informer: &Informer<K>, interest: Interest, options: &HandlerOptions) -> Self {
        let mailbox = Arc::new(Mailbox::new(options.events_max));
        // A wait for the informer to be synced must not include a stream that is read only afterwards.
        mailbox.mark_synced();
        let registration = informer.add_consumer(Consumer::Stream, mailbox, interest, options.resync);
        Self { decoder: registration.shared.decoder(), registration, batch: VecDeque::new() }
    }

    /// The next outcome; `None` once the informer has stopped and everything was read.
    ///
    /// # Cancel safety
    /// A cancelled call has taken nothing.
    pub(super) async fn next(&mut self) -> Option<Outcome<K>> {
        if self.batch.is_empty() {
            let mut batch = Vec::new();
            if !self.registration.mailbox.pop(&mut batch).await {
                return None;
            }
            self.batch = batch.into();
        }
        self.batch.pop_front()
    }

    pub(super) fn decoder(&self) -> &Arc<Decoder<K>> {
        &self.decoder
    }
}

impl<K: CachedResource> Drop for Reader<K> {
    fn drop(&mut self) {
        self.registration.detach();
    }
}
