//! A controller from the registration of its handlers to its end: it waits for caches, works, and stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::factory::{InformerFactory, reporting};
use crate::cache::informer::{NotSynced, Registration};
use crate::control::controller::standby::Standby;
use crate::control::controller::worker;
use crate::control::metrics::Metrics;
use crate::shared::clock;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

/// How long workers may take to finish their keys when the controller stops.
pub const GRACE: Duration = Duration::from_secs(30);

/// How long a reconcile that was cut off may take to return to the runtime, where it ends. After that it is left alone.
pub(crate) const CUT_OFF_WAIT: Duration = Duration::from_secs(1);

/// Why a controller ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Its caches were not filled in time.
    #[error("controller {name:?} cannot start")]
    NotSynced {
        /// The name of the controller.
        name: String,
        /// The caches that are missing.
        #[source]
        source: NotSynced,
    },
    /// Workers did not finish within the grace period and were cut off.
    #[error("controller {name:?} stopped with {active} reconciles cut off after {grace:?}")]
    CutOff {
        /// The name of the controller.
        name: String,
        /// The number of workers.
        active: u64,
        /// The grace period.
        grace: Duration,
    },
    /// Reconciles were cut off and still run, because their code blocks or computes and never awaits.
    #[error(
        "controller {name:?} stopped, and the reconciles of {} still run after {grace:?}: they do not return to the runtime",
        names(keys)
    )]
    StillRunning {
        /// The name of the controller.
        name: String,
        /// The keys of the reconciles.
        keys: Vec<ObjectKey>,
        /// The grace period.
        grace: Duration,
    },
}

/// A registered handler of any type, or another source of keys.
pub(crate) trait Attached: Send + Sync {
    /// Called when the workers are about to start.
    fn start(&mut self) {}
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// The part that is not synced, and why; `None` once all is.
    fn unsynced(&self) -> Option<String>;
    /// Stops adding keys, without waiting.
    fn detach(&mut self);
    fn remove(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A controller with registered handlers: caches fill, nothing is processed yet.
pub(crate) struct Prepared {
    /// Dropped when the caches are synced.
    pub(crate) until_synced: Option<mpsc::Sender<Infallible>>,
    /// The factories of all informers that the reconciler may read. The first is that of the cluster whose objects are
    /// reconciled.
    pub(super) factories: Vec<InformerFactory>,
    pub(super) name: String,
    pub(super) workers: usize,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) grace: Duration,
    /// Ends once the caches are synced and, with several replicas, this one leads.
    pub(crate) standby: Arc<Standby>,
    pub(super) attached: Vec<Box<dyn Attached>>,
    pub(super) worker: Arc<worker::Worker>,
}

// === impl Prepared ===

impl Prepared {
    /// Adds the factory of the manager's own cluster, `home`, whose caches the reconciler may read although its objects
    /// are in another cluster.
    pub(crate) fn read_too(&mut self, home: &InformerFactory) {
        if !self.factories[0].is_same(home) {
            self.factories.push(home.clone());
        }
    }

    /// Whether the objects are in another cluster than the manager's own.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.factories.len() > 1
    }

    /// Registers the controller's queue and counters with `metrics`.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        metrics.observe_queue(&self.worker.queue);
        metrics.observe_controller(&self.name, self.workers, &self.worker.stats);
    }

    /// Waits for the caches and processes keys until `stop`. If the future is dropped, it aborts its workers; `alive`
    /// is empty once the last of them has ended.
    pub(crate) async fn work(mut self, stop: CancellationToken, alive: &TaskTracker) -> Result<(), ControllerError> {
        let synced = tokio::select! {
            // Cancel safe: nothing has begun that a stop could interrupt.
            () = stop.cancelled() => Ok(()),
            synced = self.ready() => synced,
        };
        self.until_synced = None;
        let mut result = synced;
        let mut deadline = self.deadline();
        if result.is_ok() && !stop.is_cancelled() {
            tracing::info!(controller = self.name, workers = self.workers, "caches are synced, starting workers");
            for attached in &mut self.attached {
                attached.start();
            }
            let mut workers = JoinSet::new();
            for _ in 0..self.workers {
                workers.spawn(alive.track_future(Arc::clone(&self.worker).run()));
            }
            stop.cancelled().await;
            deadline = self.deadline();
            self.worker.queue.shutdown_now();
            result = self.finish(workers).await;
        }
        self.worker.queue.shutdown_now();
        let removed = async {
            while let Some(attached) = self.attached.pop() {
                attached.remove().await;
            }
        };
        let deadline = deadline.max(Instant::now() + CUT_OFF_WAIT);
        if tokio::time::timeout_at(deadline, removed).await.is_err() {
            tracing::warn!(controller = self.name, "the grace period is over, and a predicate or a map still runs");
        }
        result
    }

    /// When work that still runs is left alone, if the stop was now.
    fn deadline(&self) -> Instant {
        clock::after(clock::after(Instant::now(), self.grace), CUT_OFF_WAIT)
    }

    /// Waits for the caches, and moves the collected keys into the queue.
    async fn ready(&self) -> Result<(), ControllerError> {
        self.synced().await?;
        self.standby.end().await;
        Ok(())
    }

    /// Waits until every cache of the factories is filled, because the reconciler may read any of them, and until the
    /// handlers have received the initial state. Logs from time to time what is missing.
    async fn synced(&self) -> Result<(), ControllerError> {
        let all = async {
            for factory in &self.factories {
                factory.filled().await;
            }
            for attached in &self.attached {
                attached.synced().await;
            }
        };
        let all = reporting(&self.name, || self.unsynced(), all);
        let Some(waited) = self.sync_timeout else {
            all.await;
            return Ok(());
        };
        tokio::time::timeout(waited, all).await.map_err(|_| ControllerError::NotSynced {
            name: self.name.clone(),
            source: NotSynced { what: self.unsynced(), waited },
        })
    }

    fn unsynced(&self) -> Vec<String> {
        let mut what: Vec<String> = self.factories.iter().flat_map(InformerFactory::unfilled).collect();
        what.extend(self.attached.iter().filter_map(|attached| attached.unsynced()));
        what.sort();
        what.dedup();
        what
    }

    /// Lets workers finish; cuts them off when the grace period is over. Does not wait for workers that cannot be cut
    /// off.
    async fn finish(&self, mut workers: JoinSet<()>) -> Result<(), ControllerError> {
        let (name, grace) = (self.name.clone(), self.grace);
        let all = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_ok() {
            return Ok(());
        }
        let active = self.worker.stats.active_workers();
        workers.abort_all();
        let all = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(CUT_OFF_WAIT, all).await.is_ok() {
            return Err(ControllerError::CutOff { name, active, grace });
        }
        Err(ControllerError::StillRunning { name, keys: self.worker.queue.processing(), grace })
    }
}

/// Informers may outlive a controller that is dropped before or while it works; its handlers must not stay in them.
impl Drop for Prepared {
    fn drop(&mut self) {
        self.standby.stop();
        self.worker.queue.shutdown_now();
        for attached in &mut self.attached {
            attached.detach();
        }
    }
}

impl<K: CachedResource> Attached for Registration<K> {
    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.synced())
    }

    fn unsynced(&self) -> Option<String> {
        Self::unsynced(self)
    }

    fn detach(&mut self) {
        Self::detach(self);
    }

    fn remove(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(Self::remove(*self))
    }
}

/// The first few of `keys`, for a message.
fn names(keys: &[ObjectKey]) -> String {
    const SHOWN_MAX: usize = 8;
    let mut names: Vec<&str> = keys.iter().take(SHOWN_MAX).map(ObjectKey::as_str).collect();
    if keys.len() > SHOWN_MAX {
        names.push("others");
    }
    names.join(", ")
}
