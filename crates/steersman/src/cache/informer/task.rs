//! The tasks of an informer: one that moves deltas into the cache and the changes of the cache to the handlers, and one
//! for each handler.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::cached::Decoder;
use crate::cache::handler::{Event, EventHandler};
use crate::cache::indexer::Indexer;
use crate::cache::informer::mailbox::Mailbox;
use crate::cache::informer::{AnyInformer, Report};
use crate::cache::outcome::{Arrival, Outcome};
use crate::list_watch::delta::{BATCH_MAX, DELTAS_MAX, Delta, DeltaFifo, Entry, delta_fifo};
use crate::list_watch::reflector::{Monitor, Reflector, ReflectorOptions};
use crate::list_watch::transform::Transform;
use crate::shared::clock;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Target};
use crate::writing::owners::OwnerType;

/// How often the log says that the cache waits for a handler.
const BEHIND_LOG_PERIOD: Duration = Duration::from_secs(10);

pub(crate) struct Shared<K> {
    pub(super) client: Client,
    pub(super) target: Target,
    pub(super) owner_type: OwnerType,
    pub(super) options: ReflectorOptions,
    pub(super) transform: Option<Arc<Transform<K>>>,
    pub(super) resync: Option<Duration>,
    pub(super) indexer: Indexer<K>,
    pub(super) monitor: Arc<Monitor>,
    /// True once the first list is in the cache.
    pub(super) filled: watch::Sender<bool>,
    pub(super) handlers: Mutex<Handlers<K>>,
    /// Notified when the time of the next resync may have changed.
    pub(super) resync_changed: Notify,
}

pub(super) struct Handlers<K> {
    pub(super) present: Vec<Registered<K>>,
    pub(super) next_number: u64,
    /// Number of the newest batch of events.
    pub(super) batch: u64,
    /// Handlers that were added before the start, each with its mailbox.
    pub(super) waiting: Vec<Unserved<K>>,
    pub(super) phase: Phase,
}

pub(super) type Unserved<K> = (Box<dyn EventHandler<K>>, Arc<Mailbox<K>>);

/// The consumer of a mailbox.
pub(super) enum Consumer<K> {
    /// A task that calls a handler.
    Handler(Box<dyn EventHandler<K>>),
    /// A stream, whose reader polls it.
    Stream,
}

/// The objects whose changes go into a mailbox.
#[derive(Clone, Debug)]
pub(super) enum Interest {
    All,
    One(ObjectKey),
}

pub(super) struct Registered<K> {
    pub(super) number: u64,
    pub(super) mailbox: Arc<Mailbox<K>>,
    pub(super) interest: Interest,
    pub(super) resync: Option<Resync>,
}

#[derive(Clone, Copy)]
pub(super) struct Resync {
    pub(super) period: Duration,
    pub(super) due: Instant,
}

pub(super) enum Phase {
    Created,
    Running(TaskTracker),
    Stopped,
}

// === impl Shared ===

impl<K: CachedResource> Shared<K> {
    pub(super) fn add(
        &self,
        consumer: Consumer<K>,
        mailbox: Arc<Mailbox<K>>,
        interest: Interest,
        resync: Option<Resync>,
    ) -> u64 {
        let number = {
            let mut handlers = self.handlers.lock();
            let (entries, undecodable) = match &interest {
                Interest::All => (self.indexer.entries(), self.indexer.undecodable()),
                Interest::One(key) => self.indexer.entry(key),
            };
            let present = entries.into_iter().map(|entry| Outcome::Added(entry, Arrival::Initial));
            let undecodable = undecodable.into_iter().map(Outcome::Undecodable);
            let synced = self.filled.borrow().then_some(Outcome::Filled);
            mailbox.push(handlers.next_batch(), present.chain(undecodable).chain(synced));
            let number = handlers.next_number;
            handlers.next_number += 1;
            let served = Arc::clone(&mailbox);
            // A spawn outside a runtime panics, so it comes first: otherwise a mailbox that nobody empties would stay
            // registered.
            match (&handlers.phase, consumer) {
                (Phase::Created, Consumer::Handler(handler)) => handlers.waiting.push((handler, served)),
                (Phase::Running(tasks), Consumer::Handler(handler)) => {
                    drop(tasks.spawn(serve(handler, served, self.decoder()).boxed()));
                }
                (Phase::Stopped, Consumer::Handler(handler)) => {
                    served.close();
                    drop(tokio::spawn(serve(handler, served, self.decoder()).boxed()));
                }
                (Phase::Created | Phase::Running(_), Consumer::Stream) => {}
                (Phase::Stopped, Consumer::Stream) => served.close(),
            }
            handlers.present.push(Registered { number, mailbox, interest, resync });
            self.indexer.decoder().set_handlers(handlers.present.len());
            number
        };
        self.resync_changed.notify_one();
        number
    }

    pub(super) fn decoder(&self) -> Arc<Decoder<K>> {
        Arc::clone(self.indexer.decoder())
    }

    /// Applies deltas and runs resyncs until the reflector has ended, which is soon after `stop`.
    async fn process(self: Arc<Self>, mut deltas: DeltaFifo<K>, stop: CancellationToken) {
        let (mut batch, mut outcomes) = (Vec::new(), Vec::new());
        loop {
            // After the stop only the deltas already in the queue come. These are bounded, and the reader of a stream
            // may be waiting for this to end.
            stop.run_until_cancelled(self.room()).await;
            let next_resync = self.next_resync();
            let resync_due = async {
                match next_resync {
                    None => std::future::pending().await,
                    Some(due) => tokio::time::sleep_until(due).await,
                }
            };
            tokio::select! {
                // All three are cancel safe: a pop takes nothing until it is ready, and `Notify` keeps its permit.
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

    /// Applies one batch to the cache, and puts the changes into the mailbox of every handler.
    pub(super) fn distribute(&self, batch: &mut Vec<Delta<K>>, outcomes: &mut Vec<Outcome<K>>) {
        let mut handlers = self.handlers.lock();
        self.indexer.apply(batch, outcomes);
        for outcome in &*outcomes {
            if let Outcome::Undecodable(error) = outcome {
                tracing::warn!(watch = %self.target, error = %crate::shared::chain::Chain(error), "skipping an object");
            }
        }
        let number = handlers.next_batch();
        for registered in &handlers.present {
            let wanted = outcomes.iter().filter(|outcome| registered.interest.includes(outcome));
            registered.mailbox.push(number, wanted.cloned());
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

    /// Delivers the cache again to the handlers whose resync is due.
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

    pub(super) fn describe_unsynced(&self, number: u64, mailbox: &Mailbox<K>) -> String {
        if *self.filled.borrow() {
            return format!("handler {number} of {} ({} events to go)", self.target, mailbox.n_waiting());
        }
        self.describe_unfilled()
    }

    pub(crate) fn describe_unfilled(&self) -> String {
        let why = match (self.monitor.last_error(), self.monitor.is_stopped(), self.monitor.staleness()) {
            (_, true, _) => "stopped".to_owned(),
            (Some(error), ..) => error,
            (None, _, None) => "not started".to_owned(),
            (None, _, Some(_)) => "the list is not complete".to_owned(),
        };
        format!("{} ({why})", self.target)
    }
}

impl Interest {
    fn includes<K>(&self, outcome: &Outcome<K>) -> bool {
        match self {
            Self::All => true,
            Self::One(key) => matches!(outcome, Outcome::Filled) || outcome.key() == Some(key),
        }
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
                tasks.spawn(serve(handler, mailbox, self.decoder()).boxed());
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
        let reflector = reflector.transformed(self.transform.clone());
        tasks.spawn(reflector.run(sender, stop.clone()).boxed());
        tasks.spawn(self.process(deltas, stop.clone()).boxed());
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
        Report {
            group,
            version,
            resource,
            queued,
            resource_version: self.indexer.resource_version().parse().ok(),
            since_heard: self.monitor.since_heard(),
            relists: self.monitor.relists(),
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Waits until the value is true; for ever if its sender was dropped.
pub(super) async fn until(mut receiver: watch::Receiver<bool>) {
    if receiver.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The task of one handler.
///
/// It is spawned in a box, as the other tasks of an informer: otherwise the runtime's code for a task would be compiled for the futures of
/// each kind.
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
            // A handler may be left in an inconsistent state by its own panic; it must handle that itself.
            let told = catch_unwind(AssertUnwindSafe(|| handler.on_event(&event)));
            if told.is_err() {
                tracing::error!("an event handler panicked; the event is skipped");
            }
        }
        // A handler that always has events must not keep its thread.
        tokio::task::yield_now().await;
    }
    drop(handler);
    mailbox.mark_ended();
}
