//! Keeps priority and fairness in step with the FlowSchemas and PriorityLevelConfigurations in the store.
//!
//! One task reads all of them again when one has changed: there are few, and changes are rare. It also divides the seats anew
//! every ten seconds. What it cannot read it leaves out and logs; the mandatory levels and schemas are in force in any case.
//! It writes nothing: making these objects and their status is not its business.

use crate::flowcontrol::{FlowControl, spec};
use crate::state::State;
use crate::status::Failure;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{At, Page, Scope, WatchError, Watcher};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

/// How often the seats are divided anew.
const DIVISION_INTERVAL: Duration = Duration::from_secs(10);
/// How long after a failure it is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The most changes taken at a time.
const BATCH_MAX: usize = 1024;

/// Puts the objects in the store in force and keeps doing so until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn start(state: &Arc<State>, control: Arc<FlowControl>) -> Result<JoinHandle<()>, Failure> {
    let follower = Follower { state: state.clone(), control };
    let revision = follower.read_all().await?;
    Ok(tokio::spawn(follower.run(revision)))
}

struct Follower {
    state: Arc<State>,
    control: Arc<FlowControl>,
}

impl Follower {
    async fn run(self, from: Revision) {
        let mut after = from;
        let mut division = tokio::time::interval_at(Instant::now() + DIVISION_INTERVAL, DIVISION_INTERVAL);
        division.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.state.is_stopping() {
            let watchers = [SCHEMAS, LEVELS].map(|name| self.state.store.watch(&storage(name), Scope::All, after));
            if let [Ok(schemas), Ok(levels)] = watchers {
                self.follow([schemas, levels], &mut division).await;
            }
            if self.state.is_stopping() {
                return;
            }
            match self.read_all().await {
                Ok(revision) => after = revision,
                Err(failure) => {
                    tracing::error!(message = failure.status.message, "flow schemas cannot be read; trying again");
                    // Both arms are cancel-safe: they have no state.
                    tokio::select! {
                        () = self.state.stopping() => return,
                        () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    }
                }
            }
        }
    }

    /// Waits for changes, and returns when one has come, or when the server stops.
    async fn follow(&self, watchers: [Watcher; 2], division: &mut tokio::time::Interval) {
        let [mut schemas, mut levels] = watchers;
        loop {
            // All arms are cancel-safe: a batch that is not returned is not consumed, and an interval keeps its time.
            tokio::select! {
                () = self.state.stopping() => return,
                changed = schemas.next_batch(BATCH_MAX) => return self.note(changed).await,
                changed = levels.next_batch(BATCH_MAX) => return self.note(changed).await,
                _ = division.tick() => self.control.divide(),
            }
        }
    }

    async fn note<T>(&self, changed: Result<T, WatchError>) {
        if let Err(WatchError::Closed) = changed {
            // The store is closed before the server stops only if it is given up.
            self.state.stopping().await;
        }
    }

    /// Puts everything in the store in force. Returns the revision that was read.
    async fn read_all(&self) -> Result<Revision, Failure> {
        let revision = self.state.sync().await?;
        let list = |name: &str| {
            let list = self.state.store.list(&storage(name), &Scope::All, At::Latest, Page::ALL);
            list.map_err(|error| Failure::of_read(&error))
        };
        let (schemas, levels) = (list(SCHEMAS)?, list(LEVELS)?);
        self.control.apply(read(&levels.objects, spec::Level::read), read(&schemas.objects, spec::Schema::read));
        Ok(revision.min(schemas.revision).min(levels.revision))
    }
}

fn storage(name: &str) -> GroupResource {
    GroupResource::new(GROUP, name)
}

fn read<T>(objects: &[Arc<Object>], read: impl Fn(&Object) -> Result<T, String>) -> Vec<T> {
    let one = |object: &Arc<Object>| {
        let found = read(object);
        found.inspect_err(|why| tracing::warn!(name = %object.key.name, %why, "left out of priority and fairness")).ok()
    };
    objects.iter().filter_map(one).collect()
}
