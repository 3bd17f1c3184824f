//! One watch, one cache, any number of handlers.
//!
//! The informer's task takes deltas, applies them to the cache in batches, and puts the changes into the mailbox of
//! every handler; each handler has a task of its own that empties its mailbox. So a slow handler falls behind alone, up
//! to the bound of its mailbox; then the task waits for it, see [`mailbox`]. Requests for the same selection share one
//! informer ([`crate::cache::factory`]).
//!
//!
//! This file has the types that users hold; [`task`] is the task, [`registration`] is a handler that was added,
//! [`changes`] and [`object_states`] are streams, which are handlers that their reader calls.
//!
//! Lock order: handlers, then cache, then mailbox. The first is held while the other two change, so that a handler that
//! is added late sees every object exactly once.

mod changes;
mod mailbox;
mod object_states;
mod registration;
mod task;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::cached::CacheMode;
use crate::cache::handler::EventHandler;
use crate::cache::index::Index;
use crate::cache::indexer::Indexer;
use crate::cache::informer::mailbox::Mailbox;
use crate::cache::informer::task::{Consumer, Handlers, Interest, Phase, Resync};
use crate::cache::lister::Lister;
use crate::list_watch::reflector::{Monitor, ReflectorOptions};
use crate::list_watch::transform::Transform;
use crate::shared::clock;
use crate::shared::selection::{CachedResource, Selection, Target};
use crate::writing::owners::OwnerType;

pub use crate::cache::informer::changes::{Changes, OwnedEvent};
pub use crate::cache::informer::mailbox::MAILBOX_MAX;
pub use crate::cache::informer::object_states::ObjectStates;
pub use crate::cache::informer::registration::Registration;
pub(crate) use crate::cache::informer::task::Shared;

/// The shortest resync period; shorter ones are raised to it.
const RESYNC_MIN: Duration = Duration::from_secs(1);

/// A cache of one selection of one type, kept up to date by one watch (or one for each of several namespaces), and the
/// handlers that get its changes.
///
/// Clones share one informer. Reads keep working while the server is away, from the last known state.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

/// Options of one handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// Deliver the whole cache again at this interval, as updates whose old and new are the same object. Local: the
    /// server is not asked. At least one second; `None` never.
    pub resync: Option<Duration>,
    /// The most events that may wait for the handler, besides one for each object that exists. Beyond that the cache
    /// waits until the handler has caught up by half, and every user of the informer waits with it; the log names the
    /// handler. While this many wait, states that no reader can have seen, because the same batch replaced them, are
    /// left out. No other state is: a reconciler may have acted on any state that the cache showed.
    pub events_max: usize,
}

/// Caches or handlers that were not filled in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not synced after {waited:?}: {}", what.join("; "))]
pub struct NotSynced {
    /// One line for each: its name, and why it is not synced if that is known.
    pub what: Vec<String>,
    /// How long the caller waited.
    pub waited: Duration,
}

/// The parts from which a factory makes an informer.
pub(crate) struct Made<K> {
    pub(crate) options: ReflectorOptions,
    pub(crate) transform: Option<Arc<Transform<K>>>,
    /// The resync period for handlers that set none.
    pub(crate) resync: Option<Duration>,
}

/// An informer of any type, for its factory.
pub(crate) trait AnyInformer: Any + Send + Sync {
    /// Starts the watch and the handlers. Does nothing if they already run.
    fn start(self: Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken);
    /// The reasons why this informer is not synced; empty when it is.
    fn unsynced(&self) -> Vec<String>;
    /// Ends when the informer and its present handlers are synced.
    fn synced(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()>;
    /// Why the cache is not filled; `None` when it is.
    fn unfilled(&self) -> Option<String>;
    /// Ends when the cache is filled.
    fn filled(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()>;
    /// The values of its metrics.
    fn report(&self) -> Report;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The state of an informer at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// The number of events that wait for handlers.
    pub(crate) queued: usize,
    pub(crate) resource_version: Option<u64>,
    /// How long ago the last byte came from the server; `None` before the start.
    pub(crate) since_heard: Option<Duration>,
    /// The number of lists after the first, by the cause of the relist.
    pub(crate) relists: BTreeMap<&'static str, u64>,
}

// === impl HandlerOptions ===

impl Default for HandlerOptions {
    fn default() -> Self {
        Self { resync: None, events_max: MAILBOX_MAX }
    }
}

impl HandlerOptions {
    /// Sets [`HandlerOptions::resync`].
    pub fn resync(mut self, resync: impl Into<Option<Duration>>) -> Self {
        self.resync = resync.into();
        self
    }

    /// Sets [`HandlerOptions::events_max`].
    pub fn events_max(mut self, events_max: usize) -> Self {
        self.events_max = events_max;
        self
    }
}

// === impl Informer ===

impl<K: CachedResource> Informer<K> {
    pub(crate) fn new(client: Client, dynamic: &K::DynamicType, target: Target, made: Made<K>) -> Self {
        let Made { options, transform, resync } = made;
        let shared = Shared {
            client,
            owner_type: OwnerType::of::<K>(dynamic),
            indexer: Indexer::keeping(&target.resource, options.cache.holding::<K>().keep())
                .scoped(&target.selection.scope),
            monitor: Arc::new(Monitor::new(&target)),
            target,
            options,
            transform,
            resync,
            filled: watch::Sender::new(false),
            handlers: Mutex::new(Handlers {
                present: Vec::new(),
                next_number: 0,
                batch: 0,
                waiting: Vec::new(),
                phase: Phase::Created,
            }),
            resync_changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn from_shared(shared: Arc<Shared<K>>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> Arc<Shared<K>> {
        Arc::clone(&self.shared)
    }

    /// Adds a handler with the factory's resync period; see [`Informer::add_handler_with`].
    pub fn add_handler<H: EventHandler<K>>(&self, handler: H) -> Registration<K> {
        let options = HandlerOptions { resync: self.shared.resync, ..HandlerOptions::default() };
        self.add_handler_with(handler, options)
    }

    /// Adds a handler, before or after the start.
    ///
    /// It gets every object in the cache, as [`Arrival::Initial`](crate::cache::Arrival::Initial), and then every later
    /// change, without a gap and without a repetition. A handler that is added after the informer has stopped gets the
    /// objects in the cache and nothing more.
    ///
    /// # Panics
    /// When the informer runs, or has stopped, and this is called outside a tokio runtime.
    pub fn add_handler_with<H: EventHandler<K>>(&self, handler: H, options: HandlerOptions) -> Registration<K> {
        let mailbox = Arc::new(Mailbox::new(options.events_max));
        self.add_consumer(Consumer::Handler(Box::new(handler)), mailbox, Interest::All, options.resync)
    }

    fn add_consumer(
        &self,
        consumer: Consumer<K>,
        mailbox: Arc<Mailbox<K>>,
        interest: Interest,
        resync: Option<Duration>,
    ) -> Registration<K> {
        let resync = resync.map(|period| {
            let period = period.max(RESYNC_MIN);
            Resync { period, due: clock::after(Instant::now(), period) }
        });
        let number = self.shared.add(consumer, Arc::clone(&mailbox), interest, resync);
        Registration { shared: Arc::clone(&self.shared), mailbox, number }
    }

    /// Adds an index, before or after the start; see [`Indexer::add_index`].
    pub fn add_index<V, I>(&self, function: impl Fn(&K) -> I + Send + Sync + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        self.shared.indexer.add_index(function)
    }

    /// As [`Informer::add_index`], by a function of the metadata alone; see [`Indexer::add_metadata_index`].
    pub fn add_metadata_index<V, I>(&self, function: impl Fn(&ObjectMeta) -> I + Send + Sync + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        self.shared.indexer.add_metadata_index(function)
    }

    /// How the objects are held. The first request for this informer decides.
    pub fn cache_mode(&self) -> CacheMode {
        self.shared.options.cache
    }

    /// Reads from the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.shared.indexer.clone())
    }

    /// The cache itself.
    pub fn indexer(&self) -> Indexer<K> {
        self.shared.indexer.clone()
    }

    /// Whether the cache holds a complete state of the server.
    pub fn has_synced(&self) -> bool {
        *self.shared.filled.borrow()
    }

    /// Waits until the cache holds a complete state and every handler added so far has received it.
    ///
    /// # Errors
    /// [`NotSynced`] when `deadline` has passed; it says what is missing and the last answer of the server.
    ///
    /// # Cancel safety
    /// Only waits.
    pub async fn wait_synced(&self, deadline: Duration) -> Result<(), NotSynced> {
        tokio::time::timeout(deadline, self.synced())
            .await
            .map_err(|_| NotSynced { what: self.shared.unsynced(), waited: deadline })
    }

    /// As [`Informer::wait_synced`], for ever.
    pub async fn synced(&self) {
        Arc::clone(&self.shared).synced().await;
    }

    /// How long the watch has been down: the age beyond which the cache may be out of date. `None`: the watch is up.
    pub fn staleness(&self) -> Option<Duration> {
        self.shared.monitor.staleness()
    }

    /// Why the watch is down, in the words of the server where it answered.
    pub fn last_error(&self) -> Option<String> {
        self.shared.monitor.last_error()
    }

    /// The selection of objects that is watched.
    pub fn selection(&self) -> &Selection {
        &self.shared.target.selection
    }

    /// `plural.group` of the type.
    pub fn resource(&self) -> &str {
        &self.shared.target.resource
    }
}

impl<K> Informer<K> {
    /// The type as owner references name it.
    pub(crate) fn owner_type(&self) -> &OwnerType {
        &self.shared.owner_type
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("target", &self.shared.target)
            .field("indexer", &self.shared.indexer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod simulation;
