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

use crate::clock;
use crate::controller::standby::Standby;
use crate::controller::worker;
use crate::factory::{InformerFactory, reporting};
use crate::informer::{NotSynced, Registration};
use crate::key::ObjectKey;
use crate::metrics::Metrics;
use crate::selection::CachedResource;

/// How long workers may take to finish what they are at when the controller stops.
pub const GRACE: Duration = Duration::from_secs(30);

/// How long what was cut off may take to get back to the runtime, where it ends. What has not by then is left alone.
pub(crate) const CUT_OFF_WAIT: Duration = Duration::from_secs(1);

/// Why a controller ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Its caches were not filled in time.
    #[error("controller {name:?} cannot start")]
    NotSynced {
        /// The controller.
        name: String,
        /// What is missing.
        #[source]
        source: NotSynced,
    },
    /// Workers did not finish within the grace period and were cut off.
    #[error("controller {name:?} stopped with {active} reconciles cut off after {grace:?}")]
    CutOff {
        /// The controller.
        name: String,
        /// How many.
        active: u64,
        /// The time they had.
        grace: Duration,
    },
    /// Reconciles were cut off and go on all the same, because their code blocks or computes and never waits.
    #[error(
        "controller {name:?} stopped, and the reconciles of {} still run after {grace:?}: they do not return to the runtime",
        names(keys)
    )]
    StillRunning {
        /// The controller.
        name: String,
        /// What they are at.
        keys: Vec<ObjectKey>,
        /// The time they had.
        grace: Duration,
    },
}

/// A registered handler of any type, or another source of keys.
pub(crate) trait Attached: Send + Sync {
    /// The workers are about to start.
    fn start(&mut self) {}
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// What is not synced, and why; `None` once it is.
    fn unsynced(&self) -> Option<String>;
    /// Adds no more keys, without a wait.
    fn detach(&mut self);
    fn remove(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A controller whose handlers are registered: caches fill, nothing is processed yet.
pub(crate) struct Prepared {
    /// Dropped when the caches are synced.
    pub(crate) until_synced: Option<mpsc::Sender<Infallible>>,
    /// Whatever the reconciler reads comes from these, however it got it. The first is of the cluster whose objects it is of.
    pub(super) factories: Vec<InformerFactory>,
    pub(super) name: String,
    pub(super) workers: usize,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) grace: Duration,
    /// Over once the caches are synced, and, of several replicas, this one leads.
    pub(crate) standby: Arc<Standby>,
    pub(super) attached: Vec<Box<dyn Attached>>,
    pub(super) worker: Arc<worker::Worker>,
}

// === impl Prepared ===

impl Prepared {
    /// The reconciler may also read the caches of the manager's own cluster, `home`, of whose objects it is not.
    pub(crate) fn read_too(&mut self, home: &InformerFactory) {
        if !self.factories[0].is_same(home) {
            self.factories.push(home.clone());
        }
    }

    /// Whether the objects are those of another cluster than the manager's own.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.factories.len() > 1
    }

    /// Measures what the controller does.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        metrics.observe_queue(&self.worker.queue);
        metrics.observe_controller(&self.name, self.workers, &self.worker.stats);
    }

    /// Waits for the caches and processes keys until `stop`. Dropped, it aborts its workers; `alive` is empty once the
    /// last of them has ended.
    pub(crate) async fn work(mut self, stop: CancellationToken, alive: &TaskTracker) -> Result<(), ControllerError> {
        let synced = tokio::select! {
            // Nothing has begun that a stop could interrupt.
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

    /// When what still runs is left alone, if the stop was now.
    fn deadline(&self) -> Instant {
        clock::after(clock::after(Instant::now(), self.grace), CUT_OFF_WAIT)
    }

    /// Waits for the caches, and moves what is to be done from them into the queue.
    async fn ready(&self) -> Result<(), ControllerError> {
        self.synced().await?;
        self.standby.end().await;
        Ok(())
    }

    /// Waits until every cache of the factory is filled, because the reconciler may read any of them, and until the
    /// handlers have heard of what is there. Says from time to time what is missing.
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

    /// Lets workers finish; cuts them off when the grace period is over. Waits no longer for those that cannot be cut off.
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

/// Informers may outlive a controller that is dropped before or while it works; its handlers are not to stay in them.
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
