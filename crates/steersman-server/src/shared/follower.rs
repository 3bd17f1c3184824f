//! Keeps the compiled form of a resource up to date with the store: a task reads the whole resource, follows its
//! changes, and reads it again when it has fallen behind or the store could not be read.
//!
//! A [`Followed`] compiles the objects: roles and bindings (`authz/rbac`), the objects that belong to each node
//! (`authz/node`), policies (`admission/policy`), webhooks (`admission/webhooks`), default classes (`admission/classes`), initializers
//! (`initializers/configured`). A writer who needs such an object in force waits for the [`Progress`].

pub(crate) mod compiled;
pub(crate) mod in_force;

use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{At, Event, Page, ReadError, Scope, Store, WatchError, Watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The most changes that are passed on at a time.
const BATCH_MAX: usize = 256;
/// The pause after a failure before the resource is read again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The compiled form of a resource. It is dropped when its task ends, even by a panic.
pub(crate) trait Followed: Send + Sync + 'static {
    /// The resource that it is compiled from.
    fn resource(&self) -> GroupResource;

    /// Takes all objects at a revision, and forgets all others.
    fn replace(&self, objects: &[Arc<Object>], revision: Revision);

    /// Takes changes, at least one, in the order in which they were made.
    fn change(&self, events: &[Arc<Event>]);
}

/// The revision up to which a resource has been followed, for writers who wait until their change is in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<watch::Sender<Reached>>);

/// The state of a [`Progress`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// Everything up to this revision is in force.
    revision: Revision,
    /// The task has ended, so nothing more comes into force.
    has_ended: bool,
}

struct Follower {
    followed: Box<dyn Followed>,
    resource: GroupResource,
    store: Store,
    stopping: CancellationToken,
}

/// Reads the resource, and starts the task that follows it until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    followed: Box<dyn Followed>,
    stopping: &CancellationToken,
) -> Result<JoinHandle<()>, ReadError> {
    let (resource, store, stopping) = (followed.resource(), store.clone(), stopping.clone());
    let follower = Follower { followed, resource, store, stopping };
    let revision = follower.read_all()?;
    Ok(tokio::spawn(follower.run(revision)))
}

impl Progress {
    /// Records that everything up to a revision is in force.
    pub(crate) fn report(&self, revision: Revision) {
        self.0.send_modify(|reached| reached.revision = reached.revision.max(revision));
    }

    /// Records that nothing more will come into force.
    pub(crate) fn end(&self) {
        self.0.send_modify(|reached| reached.has_ended = true);
    }

    /// A receiver that is notified of every change that comes into force.
    pub(crate) fn changes(&self) -> watch::Receiver<Reached> {
        self.0.subscribe()
    }

    /// Whether everything up to a revision is in force.
    pub(crate) fn has_reached(&self, revision: Revision) -> bool {
        revision <= self.0.borrow().revision
    }

    /// Waits until everything up to a revision is in force. False if it never will be.
    pub(crate) async fn wait_for(&self, revision: Revision) -> bool {
        let mut reached = self.0.subscribe();
        let reached = reached.wait_for(|reached| reached.revision >= revision || reached.has_ended).await;
        reached.is_ok_and(|reached| reached.revision >= revision)
    }
}

impl Follower {
    /// Passes on all current objects. Returns the revision of the list.
    fn read_all(&self) -> Result<Revision, ReadError> {
        let list = self.store.list(&self.resource, &Scope::All, At::Latest, Page::ALL)?;
        self.followed.replace(&list.objects, list.revision);
        Ok(list.revision)
    }

    async fn run(self, mut after: Revision) {
        while !self.stopping.is_cancelled() {
            let read = match self.store.watch(&self.resource, Scope::All, after) {
                Ok(watcher) => match self.follow(watcher).await {
                    WatchError::Closed => return,
                    WatchError::Lagged { .. } => self.read_all(),
                },
                Err(_) => self.read_all(),
            };
            match read {
                Ok(revision) => after = revision,
                Err(error) => {
                    tracing::error!(resource = %self.resource, %error, "it cannot be read; trying again");
                    // Both arms are cancel-safe: they have no state.
                    tokio::select! {
                        () = self.stopping.cancelled() => {}
                        () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    }
                }
            }
        }
    }

    /// Passes on changes as they come, until the watch or the server ends.
    async fn follow(&self, mut watcher: Watcher) -> WatchError {
        loop {
            // Both arms are cancel-safe: a batch that is not returned is not consumed.
            let events = tokio::select! {
                () = self.stopping.cancelled() => return WatchError::Closed,
                events = watcher.next_batch(BATCH_MAX) => events,
            };
            match events {
                Ok(events) => self.followed.change(&events),
                Err(error) => return error,
            }
        }
    }
}
