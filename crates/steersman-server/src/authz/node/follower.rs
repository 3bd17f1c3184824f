//! Keeps the graph of nodes up with the store: a task for each resource that it is made from.

use crate::authz::node::Nodes;
use crate::authz::node::graph::{Graph, Kind};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, Object, Revision, Value};
use steersman_storage::{At, Kind as EventKind, Page, ReadError, Scope, Store, WatchError, Watcher};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The most changes that come into the graph under one lock.
const BATCH_MAX: usize = 256;
/// How long after a failure the resource is read again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// What the graph is made from.
const FOLLOWED: [(Kind, &str, &str); 4] = [
    (Kind::Attachment, "storage.k8s.io", "volumeattachments"),
    (Kind::Pod, "", "pods"),
    (Kind::Slice, "resource.k8s.io", "resourceslices"),
    (Kind::Volume, "", "persistentvolumes"),
];

struct Follower {
    nodes: Arc<Nodes>,
    kind: Kind,
    resource: GroupResource,
    store: Store,
    stopping: CancellationToken,
}

/// Makes the graph of what is in the store, and starts the tasks that keep it up until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    nodes: &Arc<Nodes>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let mut tasks = Vec::new();
    for (kind, group, resource) in FOLLOWED {
        let (nodes, store, stopping) = (nodes.clone(), store.clone(), stopping.clone());
        let follower = Follower { nodes, kind, resource: GroupResource::new(group, resource), store, stopping };
        let revision = follower.read_all()?;
        tasks.push(tokio::spawn(follower.run(revision)));
    }
    Ok(tasks)
}

impl Follower {
    /// Puts what there is into the graph, and nothing else. Returns the revision of the list.
    fn read_all(&self) -> Result<Revision, ReadError> {
        let list = self.store.list(&self.resource, &Scope::All, At::Latest, Page::ALL)?;
        let objects: Vec<_> = list.objects.iter().map(|object| (object, self.parse(object))).collect();
        let mut graph = self.nodes.graph.write();
        graph.clear(self.kind);
        for (object, parsed) in objects {
            self.put(&mut graph, object, parsed);
        }
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

    /// Puts changes into the graph as they come, until the watch or the server ends.
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
            let changes = events.iter().map(|event| match event.kind {
                EventKind::Added | EventKind::Modified => (&event.object, self.parse(&event.object)),
                EventKind::Deleted => (&event.object, None),
            });
            let changes: Vec<_> = changes.collect();
            let mut graph = self.nodes.graph.write();
            for (object, parsed) in changes {
                self.put(&mut graph, object, parsed);
            }
        }
    }

    fn parse(&self, object: &Object) -> Option<Value> {
        let parsed = serde_json::from_slice(object.json());
        let unreadable = |error: &serde_json::Error| {
            tracing::error!(resource = %self.resource, key = %object.key, %error, "it cannot be read, and belongs to no node");
        };
        parsed.inspect_err(unreadable).ok()
    }

    /// Puts an object into the graph, or takes it out if it is no more.
    fn put(&self, graph: &mut Graph, object: &Object, parsed: Option<Value>) {
        let name: &str = &object.key.name;
        match (self.kind, parsed) {
            (Kind::Pod, Some(pod)) => graph.set_pod(object.key.clone(), &pod),
            (Kind::Pod, None) => graph.remove_pod(&object.key),
            (Kind::Volume, Some(volume)) => graph.set_volume(name, &volume),
            (Kind::Volume, None) => graph.remove_volume(name),
            (kind, Some(other)) => graph.set_direct(kind, name, &other),
            (kind, None) => graph.remove_direct(kind, name),
        }
    }
}
