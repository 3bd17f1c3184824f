//! Follows the four resources in the store, each in a task of its own.

use crate::authz::rbac::Rbac;
use crate::authz::rbac::index::Entry;
use crate::authz::rbac::resource::Resource;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::{At, Kind, Page, ReadError, Scope, Store, WatchError, Watcher};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The most changes put in force under one lock.
const BATCH_MAX: usize = 256;
/// How long after a failure the resource is read again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Follows one resource. When it is dropped, even by a panic, writers that wait for their role fail instead of waiting for ever.
struct Follower {
    rbac: Arc<Rbac>,
    resource: Resource,
    store: Store,
    stopping: CancellationToken,
}

/// Puts the roles and bindings of the store in force, and starts the tasks that keep doing so until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    rbac: &Arc<Rbac>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let mut tasks = Vec::new();
    for resource in Resource::ALL {
        let (rbac, store, stopping) = (rbac.clone(), store.clone(), stopping.clone());
        let follower = Follower { rbac, resource, store, stopping };
        let revision = follower.read_all()?;
        tasks.push(tokio::spawn(follower.run(revision)));
    }
    Ok(tasks)
}

impl Follower {
    /// Puts in force what there is, and nothing else. Returns the revision of the list.
    fn read_all(&self) -> Result<Revision, ReadError> {
        let list = self.store.list(&self.resource.storage(), &Scope::All, At::Latest, Page::ALL)?;
        let entries = list.objects.iter().filter_map(|object| Some((&object.key, Entry::read(self.resource, object)?)));
        let entries: Vec<_> = entries.collect();
        {
            let mut index = self.rbac.index.write();
            index.clear(self.resource);
            entries.into_iter().for_each(|(key, entry)| index.insert(self.resource, key, entry));
        }
        self.report(list.revision);
        Ok(list.revision)
    }

    async fn run(self, mut after: Revision) {
        while !self.stopping.is_cancelled() {
            let watcher = self.store.watch(&self.resource.storage(), Scope::All, after);
            let read = match watcher {
                Ok(watcher) => match self.follow(watcher).await {
                    WatchError::Closed => return,
                    WatchError::Lagged { .. } => self.read_all(),
                },
                Err(_) => self.read_all(),
            };
            match read {
                Ok(revision) => after = revision,
                Err(error) => {
                    tracing::error!(resource = self.resource.plural(), %error, "it cannot be read; trying again");
                    // Both arms are cancel-safe: they have no state.
                    tokio::select! {
                        () = self.stopping.cancelled() => {}
                        () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    }
                }
            }
        }
    }

    /// Puts changes in force as they come, until the watch or the server ends.
    async fn follow(&self, mut watcher: Watcher) -> WatchError {
        loop {
            // Both arms are cancel-safe: a batch that is not returned is not consumed.
            let events = tokio::select! {
                () = self.stopping.cancelled() => return WatchError::Closed,
                events = watcher.next_batch(BATCH_MAX) => events,
            };
            let events = match events {
                Ok(events) => events,
                Err(error) => return error,
            };
            let entries = events.iter().map(|event| match event.kind {
                Kind::Added | Kind::Modified => (&event.object.key, Entry::read(self.resource, &event.object)),
                Kind::Deleted => (&event.object.key, None),
            });
            let entries: Vec<_> = entries.collect();
            {
                let mut index = self.rbac.index.write();
                for (key, entry) in entries {
                    match entry {
                        Some(entry) => index.insert(self.resource, key, entry),
                        None => index.remove(self.resource, key),
                    }
                }
            }
            if let Some(last) = events.last() {
                self.report(last.revision);
            }
        }
    }

    fn report(&self, revision: Revision) {
        self.rbac.progress(self.resource).send_modify(|progress| progress.revision = progress.revision.max(revision));
        if self.resource == Resource::ClusterRoles {
            self.rbac.cluster_roles_changed.notify_one();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.rbac.progress(self.resource).send_modify(|progress| progress.has_ended = true);
    }
}
