//! Tasks that start and stop together.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::manager::{ManagerError, Task};

/// Tasks that are asked to stop together. Dropping it aborts them.
pub(crate) struct Group {
    tasks: JoinSet<Result<(), ManagerError>>,
    /// What the tasks have spawned in their turn.
    alive: TaskTracker,
    stop: CancellationToken,
    grace: Grace,
}

/// One period for several groups, which begins when the first of them is stopped.
#[derive(Clone)]
pub(crate) struct Grace {
    period: Duration,
    end: Arc<OnceLock<Instant>>,
}

// === impl Grace ===

impl Grace {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, end: Arc::default() }
    }

    fn end(&self) -> Instant {
        *self.end.get_or_init(|| clock::after(Instant::now(), self.period))
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn new(grace: Grace) -> Self {
        Self { tasks: JoinSet::new(), alive: TaskTracker::new(), stop: CancellationToken::new(), grace }
    }

    /// Cancelled when the group is stopped.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Where tasks track what they spawn and abort when they are dropped: an abort alone waits for nothing.
    pub(crate) fn alive(&self) -> TaskTracker {
        self.alive.clone()
    }

    /// Starts what minds its own grace period.
    pub(crate) fn spawn(&mut self, work: impl Future<Output = Result<(), ManagerError>> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Starts a task that is dropped where it waits when the grace period is over.
    pub(crate) fn start(&mut self, task: Task) {
        let (stop, grace) = (self.stop.clone(), self.grace.clone());
        self.tasks.spawn(async move {
            let Task { name, begin } = task;
            let over = async {
                stop.cancelled().await;
                tokio::time::sleep_until(grace.end()).await;
            };
            let ended = tokio::select! {
                // A task that ends in the last moment has ended.
                biased;
                ended = AssertUnwindSafe(begin(stop.clone())).catch_unwind() => ended,
                () = over => return Err(ManagerError::CutOff { task: name, grace: grace.period }),
            };
            match ended {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(ManagerError::Task { task: name, source }),
                Err(panic) => Err(ManagerError::TaskPanicked { task: name, message: message_of(&*panic) }),
            }
        });
    }

    /// The next failure; pending while there is none.
    ///
    /// # Cancel safety
    /// Cancelled, no failure is lost.
    pub(crate) async fn failed(&mut self) -> ManagerError {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(ended) => {
                    if let Err(error) = result_of(ended) {
                        return error;
                    }
                }
            }
        }
    }

    /// Asks all to stop and waits until they have. The first failure, if any.
    pub(crate) async fn stop(&mut self) -> Result<(), ManagerError> {
        // The period begins now, not when the first task looks.
        self.grace.end();
        self.stop.cancel();
        let mut result = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            result = result.and(result_of(ended));
        }
        result
    }

    /// Drops all work where it waits, without grace. Returns false if some of it, which does not wait anywhere, still runs
    /// at `deadline`.
    pub(crate) async fn kill(&mut self, deadline: Instant) -> bool {
        let ended = async {
            self.tasks.shutdown().await;
            self.alive.close();
            self.alive.wait().await;
        };
        tokio::time::timeout_at(deadline, ended).await.is_ok()
    }
}

fn result_of(ended: Result<Result<(), ManagerError>, JoinError>) -> Result<(), ManagerError> {
    ended.unwrap_or(Err(ManagerError::Panicked))
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Code that does not return to the runtime keeps its thread, so the test needs another one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_kill_waits_for_what_was_spawned_and_cannot_be_dropped() {
        let mut group = Group::new(Grace::new(Duration::ZERO));
        let (release, blocked) = std::sync::mpsc::sync_channel::<()>(1);
        let (begun, has_begun) = oneshot::channel();
        let alive = group.alive();
        group.spawn(async move {
            let mut spawned = JoinSet::new();
            spawned.spawn(alive.track_future(async move {
                begun.send(()).unwrap();
                blocked.recv().unwrap();
            }));
            std::future::pending().await
        });
        has_begun.await.unwrap();
        assert!(!group.kill(Instant::now() + Duration::from_millis(50)).await);
        release.send(()).unwrap();
        assert!(group.kill(Instant::now() + Duration::from_secs(60)).await);
    }
}
