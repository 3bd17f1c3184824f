//! Tasks that end with their owner: the connections of a socket, and their streams.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks that can be cut off. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    cut: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Returns when no task runs.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Drops running tasks, and returns when none runs. Tasks that start later end at once.
    pub(crate) async fn cut(&self) {
        self.cut.cancel();
        self.ended().await;
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let cut = self.cut.clone();
        // In a box: each future around it would contain it twice, before and during its polls.
        let task = Box::pin(task);
        self.tracker.spawn(async move {
            cut.run_until_cancelled(task).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn nothing_is_left_after_the_cut() {
        let (tasks, held) = (Tasks::default(), Arc::new(()));
        let endless = || {
            let held = held.clone();
            async move {
                let _held = held;
                std::future::pending::<()>().await;
            }
        };
        tasks.execute(endless());
        tasks.execute(endless());
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 3);
        tasks.cut().await;
        tasks.execute(endless());
        tasks.cut().await;
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
