//! Updates the graph of nodes from the store, with a task for each resource that it contains.

use crate::access::authz::node::Nodes;
use crate::access::authz::node::graph::{Graph, Kind};
use crate::shared::follower::{self, Followed};
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, Revision, Value};
use steersman_storage::{Event, Kind as EventKind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The resources in the graph.
const FOLLOWED: [(Kind, &str, &str); 4] = [
    (Kind::Attachment, "storage.k8s.io", "volumeattachments"),
    (Kind::Pod, "", "pods"),
    (Kind::Slice, "resource.k8s.io", "resourceslices"),
    (Kind::Volume, "", "persistentvolumes"),
];

/// The part of the graph for one resource.
struct Part {
    nodes: Arc<Nodes>,
    kind: Kind,
    resource: GroupResource,
}

/// Builds the graph from the store, and starts the tasks that update it until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    nodes: &Arc<Nodes>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let parts = FOLLOWED.into_iter().map(|(kind, group, resource)| {
        let (nodes, resource) = (nodes.clone(), GroupResource::new(group, resource));
        follower::start(store, Box::new(Part { nodes, kind, resource }), stopping)
    });
    parts.collect()
}

impl Followed for Part {
    fn resource(&self) -> GroupResource {
        self.resource.clone()
    }

    fn replace(&self, objects: &[Arc<Object>], _: Revision) {
        let objects: Vec<_> = objects.iter().map(|object| (object, self.parse(object))).collect();
        let mut graph = self.nodes.graph.write();
        graph.clear(self.kind);
        for (object, parsed) in objects {
            self.put(&mut graph, object, parsed);
        }
        drop(graph);
        self.nodes.changed.send_replace(());
    }

    fn change(&self, events: &[Arc<Event>]) {
        let changes = events.iter().map(|event| match event.kind {
            EventKind::Added | EventKind::Modified => (&event.object, self.parse(&event.object)),
            EventKind::Deleted => (&event.object, None),
        });
        let changes: Vec<_> = changes.collect();
        let mut graph = self.nodes.graph.write();
        for (object, parsed) in changes {
            self.put(&mut graph, object, parsed);
        }
        drop(graph);
        // The node and the volumes of a Pod do not change, so only its end takes a permission away.
        if self.kind != Kind::Pod || events.iter().any(|event| event.kind == EventKind::Deleted) {
            self.nodes.changed.send_replace(());
        }
    }
}

impl Part {
    fn parse(&self, object: &Object) -> Option<Value> {
        let parsed = serde_json::from_slice(object.json());
        let unreadable = |error: &serde_json::Error| {
            tracing::error!(resource = %self.resource, key = %object.key, %error, "it cannot be read, and belongs to no node");
        };
        parsed.inspect_err(unreadable).ok()
    }

    /// Adds or replaces an object in the graph, or removes it if it is deleted.
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
