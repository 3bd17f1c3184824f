//! One watch, one cache, any number of handlers.
//!
//! The informer's task takes deltas, applies them to the cache in batches, and puts what changed into the mailbox of
//! every handler; each handler has a task of its own that empties its mailbox. So a slow handler falls behind alone, up to
//! the bound of its mailbox; then the task waits for it, see [`mailbox`]. Whoever asks for the same objects shares the
//! informer ([`crate::factory`]).
//!
//! Lock order: handlers, then cache, then mailbox. Holding the first while the other two change is what makes a late
//! handler see every object exactly once.

mod mailbox;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cached::{CacheMode, Decoder};
use crate::clock;
use crate::delta::{BATCH_MAX, DELTAS_MAX, Delta, DeltaFifo, Entry, delta_fifo};
use crate::handler::{Event, EventHandler};
use crate::indexer::{IndexError, Indexer};
use crate::informer::mailbox::Mailbox;
use crate::lister::Lister;
use crate::outcome::{Arrival, Outcome};
use crate::reflector::{Monitor, Reflector, ReflectorOptions};
use crate::selection::{CachedResource, Target};

pub use crate::informer::mailbox::MAILBOX_MAX;

/// How often the log says that the cache waits for a handler.
const BEHIND_LOG_PERIOD: Duration = Duration::from_secs(10);

/// The shortest resync period; shorter ones are raised to it.
const RESYNC_MIN: Duration = Duration::from_secs(1);

/// A cache of one selection of one type, kept up to date by one watch, and the handlers that hear of its changes.
///
/// Clones are the same informer. Reads keep working while the server is away, from the last known state.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

/// How one handler is served.
#[derive(Clone, Debug)]
pub struct HandlerOptions {
    /// Deliver the whole cache again every so often, as updates whose old and new are the same object. Local: the
    /// server is not asked. At least one second; `None` never.
    pub resync: Option<Duration>,
    /// So many events may wait for the handler, besides one for each object that exists. Then the cache waits until the
    /// handler has caught up by half, and with it everybody who uses the informer; the log names the handler. While as
    /// much waits, states that nobody can have read, because the cache got the next one with them, are left out. Nothing
    /// else is: a reconciler may have acted on any state that the cache showed.
    pub events_max: usize,
}

/// A handler that has been added. Dropping this keeps the handler.
pub struct Registration<K> {
    shared: Arc<Shared<K>>,
    mailbox: Arc<Mailbox<K>>,
    number: u64,
}

/// Whether a handler has a task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Served {
    No,
    Yes,
}

/// Caches or handlers that were not filled in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not synced after {waited:?}: {}", what.join("; "))]
pub struct NotSynced {
    /// One line each: what is not synced, and why if that is known.
    pub what: Vec<String>,
    /// How long was waited.
    pub waited: Duration,
}

/// An informer of any type, as its factory sees it.
pub(crate) trait AnyInformer: Any + Send + Sync {
    /// Starts the watch and the handlers. Does nothing if they run.
    fn start(self: Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken);
    /// What keeps this informer from being synced; empty when it is.
    fn unsynced(&self) -> Vec<String>;
    /// Ends when the informer and its present handlers are synced.
    fn synced(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()>;
    /// Why the cache is not filled; `None` when it is.
    fn unfilled(&self) -> Option<String>;
    /// Ends when the cache is filled.
    fn filled(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()>;
    /// What its metrics say.
    fn report(&self) -> Report;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// An informer at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Events that wait for handlers.
    pub(crate) queued: usize,
    pub(crate) resource_version: Option<u64>,
}

pub(crate) struct Shared<K> {
    client: Client,
    target: Target,
    options: ReflectorOptions,
    resync: Option<Duration>,
    indexer: Indexer<K>,
    monitor: Arc<Monitor>,
    /// True once the first list is in the cache.
    filled: watch::Sender<bool>,
    handlers: Mutex<Handlers<K>>,
    /// Rung when the time of the next resync may have changed.
    resync_changed: Notify,
}

struct Handlers<K> {
    present: Vec<Registered<K>>,
    next_number: u64,
    /// Number of the newest batch of events.
    batch: u64,
    /// Bodies of the tasks of handlers that were added before the start.
    waiting: Vec<Unserved<K>>,
    phase: Phase,
}

type Unserved<K> = (Box<dyn EventHandler<K>>, Arc<Mailbox<K>>);

struct Registered<K> {
    number: u64,
    mailbox: Arc<Mailbox<K>>,
    resync: Option<Resync>,
}

#[derive(Clone, Copy)]
struct Resync {
    period: Duration,
    due: Instant,
}

enum Phase {
    Created,
    Running(TaskTracker),
    Stopped,
}

// === impl Informer ===

impl<K: CachedResource> Informer<K> {
    pub(crate) fn new(client: Client, target: Target, options: ReflectorOptions, resync: Option<Duration>) -> Self {
        let shared = Shared {
            client,
            indexer: Indexer::with(&target.resource, options.cache.decoded_max()),
            target,
            options,
            resync,
            monitor: Arc::new(Monitor::default()),
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
    /// It hears of every object that the cache has, as [`Arrival::Initial`], and then of everything that happens,
    /// without a gap and without a repetition. Once the informer has stopped, it hears of what the cache has and of
    /// nothing more.
    ///
    /// # Panics
    /// When the informer runs and this is called outside a tokio runtime.
    pub fn add_handler_with<H: EventHandler<K>>(&self, handler: H, options: HandlerOptions) -> Registration<K> {
        let mailbox = Arc::new(Mailbox::new(options.events_max));
        let resync = options.resync.map(|period| {
            let period = period.max(RESYNC_MIN);
            Resync { period, due: clock::after(Instant::now(), period) }
        });
        let number = self.shared.add(Box::new(handler), Arc::clone(&mailbox), resync);
        Registration { shared: Arc::clone(&self.shared), mailbox, number }
    }

    /// Adds a named index, before or after the start; see [`Indexer::add_index`].
    ///
    /// # Errors
    /// [`IndexError::Exists`].
    pub fn add_index<F>(&self, name: &str, function: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.shared.indexer.add_index(name, function)
    }

    /// As [`Informer::add_index`], by a function of the metadata alone; see [`Indexer::add_metadata_index`].
    ///
    /// # Errors
    /// [`IndexError::Exists`].
    pub fn add_metadata_index<F>(&self, name: &str, function: F) -> Result<(), IndexError>
    where
        F: Fn(&ObjectMeta) -> Vec<String> + Send + Sync + 'static,
    {
        self.shared.indexer.add_metadata_index(name, function)
    }

    /// How the objects are held, which whoever asked for this informer first has chosen.
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

    /// Waits until the cache holds a complete state and every handler added so far has been told of it.
    ///
    /// # Errors
    /// [`NotSynced`] when `deadline` has passed; it says what is missing and what the server answered last.
    ///
    /// # Cancel safety
    /// Waits only.
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

    /// `plural.group` of the type.
    pub fn resource(&self) -> &str {
        &self.shared.target.resource
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

impl Default for HandlerOptions {
    fn default() -> Self {
        Self { resync: None, events_max: MAILBOX_MAX }
    }
}

// === impl Registration ===

impl<K: CachedResource> Registration<K> {
    /// Whether the handler has been told of everything that was there when it was added (or when the first list came).
    pub fn has_synced(&self) -> bool {
        *self.mailbox.synced().borrow()
    }

    /// Waits until [`Registration::has_synced`].
    ///
    /// # Errors
    /// [`NotSynced`] when `deadline` has passed.
    pub async fn wait_synced(&self, deadline: Duration) -> Result<(), NotSynced> {
        tokio::time::timeout(deadline, self.synced()).await.map_err(|_| NotSynced {
            what: vec![self.shared.describe_unsynced(self.number, &self.mailbox)],
            waited: deadline,
        })
    }

    /// As [`Registration::wait_synced`], for ever.
    pub async fn synced(&self) {
        until(self.mailbox.synced()).await;
    }

    /// What is missing until [`Registration::has_synced`]; `None` then.
    pub(crate) fn unsynced(&self) -> Option<String> {
        (!self.has_synced()).then(|| self.shared.describe_unsynced(self.number, &self.mailbox))
    }

    /// How many events wait for the handler.
    pub fn pending(&self) -> usize {
        self.mailbox.n_waiting()
    }

    /// Removes the handler and waits until it has returned from its last call. What still waits is dropped.
    pub async fn remove(self) {
        if self.detach() == Served::Yes {
            until(self.mailbox.ended()).await;
        }
    }

    /// Removes the handler, whose last call may go on. Says whether it has a task that will end.
    pub(crate) fn detach(&self) -> Served {
        let was_waiting = {
            let mut handlers = self.shared.handlers.lock();
            handlers.present.retain(|registered| registered.number != self.number);
            let before = handlers.waiting.len();
            handlers.waiting.retain(|(_, mailbox)| !Arc::ptr_eq(mailbox, &self.mailbox));
            handlers.waiting.len() < before
        };
        self.mailbox.discard();
        if was_waiting { Served::No } else { Served::Yes }
    }
}

impl<K> fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("pending", &self.mailbox.n_waiting()).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl<K: CachedResource> Shared<K> {
    fn add(&self, handler: Box<dyn EventHandler<K>>, mailbox: Arc<Mailbox<K>>, resync: Option<Resync>) -> u64 {
        let number = {
            let mut handlers = self.handlers.lock();
            let present = self.indexer.entries().into_iter().map(|entry| Outcome::Added(entry, Arrival::Initial));
            let undecodable = self.indexer.undecodable().into_iter().map(Outcome::Undecodable);
            let synced = self.filled.borrow().then_some(Outcome::Filled);
            mailbox.push(handlers.next_batch(), present.chain(undecodable).chain(synced));
            let number = handlers.next_number;
            handlers.next_number += 1;
            handlers.present.push(Registered { number, mailbox: Arc::clone(&mailbox), resync });
            match &handlers.phase {
                Phase::Created => handlers.waiting.push((handler, mailbox)),
                Phase::Running(tasks) => drop(tasks.spawn(serve(handler, mailbox, self.decoder()))),
                Phase::Stopped => {
                    mailbox.close();
                    drop(tokio::spawn(serve(handler, mailbox, self.decoder())));
                }
            }
            number
        };
        self.resync_changed.notify_one();
        number
    }

    fn decoder(&self) -> Arc<Decoder<K>> {
        Arc::clone(self.indexer.decoder())
    }

    /// Applies deltas and runs resyncs until the reflector is gone.
    async fn process(self: Arc<Self>, mut deltas: DeltaFifo<K>) {
        let (mut batch, mut outcomes) = (Vec::new(), Vec::new());
        loop {
            self.room().await;
            let next_resync = self.next_resync();
            let resync_due = async {
                match next_resync {
                    None => std::future::pending().await,
                    Some(due) => tokio::time::sleep_until(due).await,
                }
            };
            tokio::select! {
                // All three are cancel-safe: a pop takes nothing until it is ready, a bell keeps its permit.
                n_popped = deltas.pop(&mut batch, BATCH_MAX) => {
                    if n_popped == 0 {
                        break;
                    }
                    self.distribute(&mut batch, &mut outcomes);
                }
                () = resync_due => self.resync(Instant::now()),
                () = self.resync_changed.notified() => {}
            }
        }
        let mut handlers = self.handlers.lock();
        handlers.phase = Phase::Stopped;
        for registered in &handlers.present {
            registered.mailbox.close();
        }
    }

    /// One batch into the cache, and what it changed to every handler.
    fn distribute(&self, batch: &mut Vec<Delta<K>>, outcomes: &mut Vec<Outcome<K>>) {
        let mut handlers = self.handlers.lock();
        self.indexer.apply(batch, outcomes);
        for outcome in &*outcomes {
            if let Outcome::Undecodable(error) = outcome {
                tracing::warn!(watch = %self.target, error = %crate::chain::Chain(error), "skipping an object");
            }
        }
        let number = handlers.next_batch();
        for registered in &handlers.present {
            registered.mailbox.push(number, outcomes.iter().cloned());
        }
        if outcomes.drain(..).any(|outcome| matches!(outcome, Outcome::Filled)) {
            self.filled.send_replace(true);
        }
    }

    /// Waits until no handler is too far behind.
    async fn room(&self) {
        loop {
            let full = self
                .handlers
                .lock()
                .present
                .iter()
                .find(|registered| registered.mailbox.is_full())
                .map(|Registered { number, mailbox, .. }| (*number, Arc::clone(mailbox)));
            let Some((number, mailbox)) = full else { return };
            while tokio::time::timeout(BEHIND_LOG_PERIOD, mailbox.room()).await.is_err() {
                tracing::warn!(
                    watch = %self.target,
                    handler = number,
                    n_waiting = mailbox.n_waiting(),
                    "a handler is too far behind: the cache waits for it"
                );
            }
        }
    }

    fn next_resync(&self) -> Option<Instant> {
        let handlers = self.handlers.lock();
        handlers.present.iter().filter_map(|registered| Some(registered.resync?.due)).min()
    }

    /// Delivers the cache again to the handlers whose time has come.
    fn resync(&self, now: Instant) {
        let mut handlers = self.handlers.lock();
        let mut due = Vec::new();
        for registered in &mut handlers.present {
            if let Some(resync) = &mut registered.resync
                && resync.due <= now
            {
                resync.due = clock::after(now, resync.period);
                due.push(Arc::clone(&registered.mailbox));
            }
        }
        if due.is_empty() || !*self.filled.borrow() {
            return;
        }
        let (entries, number) = (self.indexer.entries(), handlers.next_batch());
        for mailbox in &due {
            let events = entries.iter().map(|Entry { key, object }| Outcome::Updated {
                key: key.clone(),
                old: object.clone(),
                new: object.clone(),
            });
            mailbox.push(number, events);
        }
    }

    fn describe_unsynced(&self, number: u64, mailbox: &Mailbox<K>) -> String {
        if *self.filled.borrow() {
            return format!("handler {number} of {} ({} events to go)", self.target, mailbox.n_waiting());
        }
        self.describe_unfilled()
    }

    fn describe_unfilled(&self) -> String {
        let why = match (self.monitor.last_error(), self.monitor.is_stopped(), self.monitor.staleness()) {
            (_, true, _) => "stopped".to_owned(),
            (Some(error), ..) => error,
            (None, _, None) => "not started".to_owned(),
            (None, _, Some(_)) => "the list is not complete".to_owned(),
        };
        format!("{} ({why})", self.target)
    }
}

impl<K> Handlers<K> {
    fn next_batch(&mut self) -> u64 {
        self.batch += 1;
        self.batch
    }
}

impl<K: CachedResource> AnyInformer for Shared<K> {
    fn start(self: Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        {
            let mut handlers = self.handlers.lock();
            if !matches!(handlers.phase, Phase::Created) {
                return;
            }
            handlers.phase = Phase::Running(tasks.clone());
            for (handler, mailbox) in std::mem::take(&mut handlers.waiting) {
                tasks.spawn(serve(handler, mailbox, self.decoder()));
            }
        }
        self.monitor.started();
        let (sender, deltas) = delta_fifo(DELTAS_MAX);
        let reflector = Reflector::with_target(
            self.client.clone(),
            self.target.clone(),
            self.options.clone(),
            self.indexer.clone(),
            Arc::clone(&self.monitor),
        );
        tasks.spawn(reflector.run(sender, stop.clone()));
        tasks.spawn(self.process(deltas));
    }

    fn unsynced(&self) -> Vec<String> {
        let present: Vec<_> = {
            let handlers = self.handlers.lock();
            let present = handlers.present.iter();
            present.map(|registered| (registered.number, Arc::clone(&registered.mailbox))).collect()
        };
        if !*self.filled.borrow() {
            return vec![self.describe_unfilled()];
        }
        let behind = present.into_iter().filter(|(_, mailbox)| !*mailbox.synced().borrow());
        behind.map(|(number, mailbox)| self.describe_unsynced(number, &mailbox)).collect()
    }

    fn synced(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            until(self.filled.subscribe()).await;
            let present: Vec<_> = {
                let handlers = self.handlers.lock();
                handlers.present.iter().map(|registered| registered.mailbox.synced()).collect()
            };
            for synced in present {
                until(synced).await;
            }
        })
    }

    fn unfilled(&self) -> Option<String> {
        (!*self.filled.borrow()).then(|| self.describe_unfilled())
    }

    fn filled(self: Arc<Self>) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move { until(self.filled.subscribe()).await })
    }

    fn report(&self) -> Report {
        let [group, version, resource] = self.target.group_version_resource();
        let queued = self.handlers.lock().present.iter().map(|registered| registered.mailbox.n_waiting()).sum();
        Report { group, version, resource, queued, resource_version: self.indexer.resource_version().parse().ok() }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Waits until the value is true; for ever if its sender is gone.
pub(crate) async fn until(mut receiver: watch::Receiver<bool>) {
    if receiver.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The task of one handler.
async fn serve<K: CachedResource>(
    mut handler: Box<dyn EventHandler<K>>,
    mailbox: Arc<Mailbox<K>>,
    decoder: Arc<Decoder<K>>,
) {
    let mut batch = Vec::new();
    while mailbox.pop(&mut batch).await {
        for outcome in batch.drain(..) {
            if matches!(outcome, Outcome::Filled) {
                mailbox.mark_synced();
                continue;
            }
            let event = Event::new(&outcome, &decoder);
            // The handler may be left in an odd state by its own panic; that is the handler's to mind.
            let told = catch_unwind(AssertUnwindSafe(|| handler.on_event(&event)));
            if told.is_err() {
                tracing::error!("an event handler panicked; the event is skipped");
            }
        }
        // A handler that never runs dry must not keep its thread.
        tokio::task::yield_now().await;
    }
    drop(handler);
    mailbox.mark_ended();
}

#[cfg(test)]
mod simulation;
