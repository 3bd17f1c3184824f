//! Keeps the index of roles and bindings up to date with the store, with a task for each of the four resources.

use crate::access::authz::rbac::Rbac;
use crate::access::authz::rbac::index::Entry;
use crate::access::authz::rbac::resource::Resource;
use crate::shared::follower::{self, Followed};
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{Event, Kind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// One of the resources. When it is dropped, even by a panic, writers that wait for their role fail instead of waiting
/// forever.
struct Part {
    rbac: Arc<Rbac>,
    resource: Resource,
}

/// Indexes the roles and bindings of the store, and starts the tasks that keep the index up to date until the server
/// stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    rbac: &Arc<Rbac>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let part = |resource| Box::new(Part { rbac: rbac.clone(), resource });
    Resource::ALL.into_iter().map(|resource| follower::start(store, part(resource), stopping)).collect()
}

impl Followed for Part {
    fn resource(&self) -> GroupResource {
        self.resource.storage()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        let entries = objects.iter().filter_map(|object| Some((&object.key, self.read(object)?)));
        let entries: Vec<_> = entries.collect();
        {
            let mut index = self.rbac.index.write();
            index.clear(self.resource);
            entries.into_iter().for_each(|(key, entry)| index.insert(self.resource, key, entry));
        }
        self.report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        let entries = events.iter().map(|event| match event.kind {
            Kind::Added | Kind::Modified => (&event.object.key, self.read(&event.object)),
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

impl Part {
    /// The entry of an object; none while it waits for initializers.
    fn read(&self, object: &Arc<Object>) -> Option<Entry> {
        if object.meta().is_uninitialized() { None } else { Entry::read(self.resource, object) }
    }

    fn report(&self, revision: Revision) {
        // Before the writer is answered.
        self.rbac.changed.send_replace(());
        self.rbac.progress(self.resource).report(revision);
        if self.resource == Resource::ClusterRoles {
            self.rbac.cluster_roles_changed.notify_one();
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.rbac.progress(self.resource).end();
    }
}
