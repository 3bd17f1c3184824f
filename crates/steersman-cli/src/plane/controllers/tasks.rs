//! A set of running controllers, by name.

use anyhow::Context as _;
use std::collections::HashMap;
use tokio::task::{Id, JoinError, JoinSet};

/// Running controllers. They are aborted when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        controller: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.names.insert(self.tasks.spawn(controller).id(), name);
    }

    /// Resolves when a controller has ended by itself, with the reason. Never resolves if none runs.
    ///
    /// # Cancel safety
    /// A controller that has ended is returned by the next call.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let (name, outcome) = self.named(ended);
        match outcome {
            Ok(()) => anyhow::anyhow!("the {name} controller has ended by itself"),
            Err(error) => error.context(format!("the {name} controller has failed")),
        }
    }

    /// Waits until all controllers have ended.
    ///
    /// # Cancel safety
    /// Call it again.
    pub(super) async fn join(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (controller, outcome) = self.named(ended);
            if let Err(error) = outcome {
                tracing::error!(controller, error = crate::chain(&*error), "a controller ended with an error");
            }
        }
    }

    fn named(&self, ended: Result<(Id, anyhow::Result<()>), JoinError>) -> (&'static str, anyhow::Result<()>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(error).context("its task ended badly")),
        };
        (self.names.get(&id).copied().unwrap_or("unknown"), outcome)
    }
}
