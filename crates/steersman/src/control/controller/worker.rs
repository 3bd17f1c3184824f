//! One worker of a controller: takes keys, calls the reconciler, and handles its results.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use crate::control::controller::stats::ControllerStats;
use crate::control::controller::{GiveUp, Reconcile};
use crate::control::fence::{Fence, Pass};
use crate::control::queue::{Item, WorkQueue};
use crate::control::reconcile::{Action, ReconcileError, is_absence};
use crate::shared::chain::Chain;
use crate::shared::key::ObjectKey;

/// The state that all workers of a controller share.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// All of them must let a key pass. Empty: all keys are ours.
    pub(crate) fences: Vec<Arc<dyn Fence>>,
    pub(crate) reconcile: Arc<Reconcile>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) give_up: Option<GiveUp>,
    /// `plural.group` of the objects of the keys.
    pub(crate) resource: String,
    /// Whether the cache of the controller has an object.
    pub(crate) is_cached: Box<dyn Fn(&ObjectKey) -> bool + Send + Sync>,
    pub(crate) stats: Arc<ControllerStats>,
    /// Number of the next reconcile, for its span.
    pub(crate) next_id: AtomicU64,
}

/// A reconcile that ended without a result of its own.
#[derive(Debug, thiserror::Error)]
enum Aborted {
    #[error("the reconciler panicked: {message}")]
    Panicked { message: String },
    #[error("the reconcile took longer than {timeout:?}")]
    TimedOut { timeout: Duration },
}

impl ReconcileError for Aborted {}

/// Counts a running reconcile, also when it is cut off.
struct Active<'a> {
    stats: &'a ControllerStats,
}

impl Worker {
    /// Processes keys until the queue is shut down.
    pub(crate) async fn run(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let key = item.key().clone();
            let span = tracing::info_span!(
                "reconcile",
                controller = self.name,
                %key,
                id,
                priority = ?item.priority(),
                n_failures = item.n_requeues(),
                // Recorded at the end.
                result = field::Empty,
                took_seconds = field::Empty,
            );
            // Panics of the reconciler are caught closer by; this catches those of its errors and of reports.
            let processed = AssertUnwindSafe(self.process(item).instrument(span)).catch_unwind().await;
            if processed.is_err() {
                tracing::error!(controller = self.name, %key, "handling the result of a reconcile panicked, will retry");
                self.queue.add_rate_limited(key);
            }
        }
    }

    async fn process(&self, item: Item<ObjectKey>) {
        // Held until the end, so that the key moves no sooner. A key that does not pass is dropped: its owner gets the
        // event too.
        let passes: Option<Vec<Box<dyn Pass>>> = self.fences.iter().map(|fence| fence.begin(item.key())).collect();
        let Some(passes) = passes else { return item.forget() };
        let _active = Active::enter(&self.stats);
        let started = Instant::now();
        let result = {
            // The reconcile is dropped at an await point, before the passes are.
            tokio::select! {
                biased;
                why = revoked(&passes) => {
                    tell(started.elapsed(), "revoked");
                    tracing::warn!(took = ?started.elapsed(), "cut off: {why}");
                    return item.forget();
                }
                result = self.reconcile(item.key().clone()) => result,
            }
        };
        let result = match result {
            // The cache is checked too: another cache of the same type may be behind, and brings no event for this key.
            Err(error) if is_absence(&*error, &self.resource, item.key()) && !(self.is_cached)(item.key()) => {
                tracing::debug!("the object was deleted");
                Ok(Action::AwaitChange)
            }
            result => result,
        };
        let took = started.elapsed();
        self.stats.times.0.lock().observe(took.as_secs_f64());
        tell(took, result_of(&result));
        tracing::debug!(?took, "reconciled");
        match result.map(Action::requeue) {
            Ok(None) => {
                count(&self.stats.n_succeeded);
                item.forget();
            }
            Ok(Some(requeue)) => {
                count(&self.stats.n_requeued);
                if requeue.is_timed() {
                    count(&self.stats.n_requeued_after);
                }
                item.requeue(requeue);
            }
            Err(error) => self.failed(item, &*error),
        }
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Action, Box<dyn ReconcileError>> {
        // The call itself may panic as well as the future it returns. State that the reconciler shares is behind locks
        // and atomics of its own choice.
        let guarded = AssertUnwindSafe(async { (self.reconcile)(key).await }).catch_unwind();
        let finished = match self.timeout {
            None => Ok(guarded.await),
            Some(timeout) => tokio::time::timeout(timeout, guarded).await.map_err(|_| timeout),
        };
        match finished {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                count(&self.stats.n_panicked);
                let message = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned());
                Err(Box::new(Aborted::Panicked { message: message.unwrap_or_else(|| "no message".to_owned()) }))
            }
            Err(timeout) => {
                count(&self.stats.n_timed_out);
                Err(Box::new(Aborted::TimedOut { timeout }))
            }
        }
    }

    fn failed(&self, item: Item<ObjectKey>, error: &dyn ReconcileError) {
        count(&self.stats.n_failed);
        let text = Chain(&Erased(error)).to_string();
        if error.is_terminal() {
            count(&self.stats.n_terminal);
            tracing::error!(error = text, "reconcile failed for good, waiting for a change");
            return item.forget();
        }
        if let Some(give_up) = &self.give_up
            && item.n_requeues() >= give_up.n_failures_max
        {
            count(&self.stats.n_given_up);
            tracing::error!(error = text, n_failures = item.n_requeues() + 1, "giving up, waiting for a change");
            (give_up.report)(item.key(), error);
            return item.forget();
        }
        match error.retry_after() {
            Some(delay) => {
                let wait = item.fail_for(delay);
                tracing::warn!(error = text, ?wait, "reconcile failed, will retry");
            }
            None => {
                let wait = item.fail();
                tracing::warn!(error = text, ?wait, "reconcile failed, will retry");
            }
        }
    }
}

/// Completes when one of `passes` is revoked.
async fn revoked(passes: &[Box<dyn Pass>]) -> &'static str {
    if passes.is_empty() {
        return std::future::pending().await;
    }
    select_all(passes.iter().map(|pass| pass.revoked())).await.0
}

/// Records the result in the span of the reconcile.
fn tell(took: Duration, result: &'static str) {
    let span = Span::current();
    span.record("took_seconds", took.as_secs_f64());
    span.record("result", result);
}

/// A result as the metrics name it.
fn result_of(result: &Result<Action, Box<dyn ReconcileError>>) -> &'static str {
    match result.as_ref().map(|action| action.requeue()) {
        Ok(None) => "success",
        Ok(Some(requeue)) if requeue.is_timed() => "requeue_after",
        Ok(Some(_)) => "requeue",
        Err(_) => "error",
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<'a> Active<'a> {
    fn enter(stats: &'a ControllerStats) -> Self {
        count(&stats.active_workers);
        Self { stats }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.stats.active_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A `dyn ReconcileError` as a sized error.
struct Erased<'a>(&'a dyn ReconcileError);

impl std::error::Error for Erased<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Debug for Erased<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for Erased<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}
