//! Tasks that start and stop together.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::control::controller::CUT_OFF_WAIT;
use crate::control::manager::{ManagerError, Task};
use crate::shared::clock;

/// Tasks that are stopped together. Dropping the group aborts them.
pub(crate) struct Group {
    tasks: JoinSet<Result<(), ManagerError>>,
    /// The names of the tasks that have not ended.
    names: HashMap<Id, String>,
    /// Work that has its own grace period, and ends soon after it in any case.
    controllers: JoinSet<Result<(), ManagerError>>,
    /// The tasks, and the tasks that the controllers have spawned.
    alive: TaskTracker,
    stop: CancellationToken,
    grace: Grace,
}

/// One grace period for several groups, which begins when the first of them is stopped.
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

    /// When a task that does not stop is left alone: after the grace period, and a moment to return to the runtime.
    pub(crate) fn deadline(&self) -> Instant {
        clock::after(self.end(), CUT_OFF_WAIT)
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn new(grace: Grace) -> Self {
        Self {
            tasks: JoinSet::new(),
            names: HashMap::new(),
            controllers: JoinSet::new(),
            alive: TaskTracker::new(),
            stop: CancellationToken::new(),
            grace,
        }
    }

    /// Cancelled when the group is stopped.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The tracker for nested tasks, which are aborted when their owner is dropped: the abort alone does not wait for
    /// them.
    pub(crate) fn alive(&self) -> TaskTracker {
        self.alive.clone()
    }

    /// Whether a task still runs. After a stop: whether a task could not be stopped.
    pub(crate) fn is_busy(&self) -> bool {
        !self.alive.is_empty()
    }

    /// Starts work that has its own grace period.
    pub(crate) fn spawn(&mut self, work: impl Future<Output = Result<(), ManagerError>> + Send + 'static) {
        self.controllers.spawn(work);
    }

    /// Starts a task that is dropped at an await point when the grace period is over.
    pub(crate) fn start(&mut self, task: Task) {
        let (stop, grace) = (self.stop.clone(), self.grace.clone());
        let name = task.name.clone();
        let handle = self.tasks.spawn(self.alive.track_future(async move {
            let Task { name, begin } = task;
            let over = async {
                stop.cancelled().await;
                tokio::time::sleep_until(grace.end()).await;
            };
            let ended = tokio::select! {
                // A task that ends at the last moment counts as ended.
                biased;
                ended = AssertUnwindSafe(begin(stop.clone())).catch_unwind() => ended,
                () = over => return Err(ManagerError::CutOff { task: name, grace: grace.period }),
            };
            match ended {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(ManagerError::Task { task: name, source }),
                Err(panic) => Err(ManagerError::TaskPanicked { task: name, message: message_of(&*panic) }),
            }
        }));
        self.names.insert(handle.id(), name);
    }

    /// The next failure; pending while there is none.
    ///
    /// # Cancel safety
    /// If the future is dropped, no failure is lost.
    pub(crate) async fn failed(&mut self) -> ManagerError {
        loop {
            // Both arms take a task that has ended, or nothing.
            let result = tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Some(ended) = self.controllers.join_next() => result_of(ended),
                else => std::future::pending().await,
            };
            if let Err(error) = result {
                return error;
            }
        }
    }

    /// Stops all tasks and waits until they have ended, or cannot be stopped. Returns the first failure, if any.
    pub(crate) async fn stop(&mut self) -> Result<(), ManagerError> {
        // The period begins now, not when the first task checks for the stop.
        let deadline = self.grace.deadline();
        self.stop.cancel();
        let mut result = Ok(());
        while let Some(ended) = self.controllers.join_next().await {
            result = result.and(result_of(ended));
        }
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await {
            result = result.and(self.ended(ended));
        }
        if self.names.is_empty() {
            return result;
        }
        let mut tasks: Vec<String> = self.names.values().cloned().collect();
        tasks.sort();
        result.and(Err(ManagerError::StillRunning { tasks, grace: self.grace.period }))
    }

    fn ended(&mut self, ended: Result<(Id, Result<(), ManagerError>), JoinError>) -> Result<(), ManagerError> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        self.names.remove(&id);
        result_of(ended.map(|(_, result)| result))
    }

    /// Drops all work at its await points, without a grace period. Returns false if some of it, which does not await,
    /// still runs at `deadline`.
    pub(crate) async fn kill(&mut self, deadline: Instant) -> bool {
        let ended = async {
            self.controllers.abort_all();
            self.tasks.shutdown().await;
            self.controllers.shutdown().await;
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
