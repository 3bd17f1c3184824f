//! Keeps the index of policies and bindings up to date with the store, with a task for each of the four resources.

use crate::shared::follower::{self, Followed};
use crate::write::admission::dynamic::policy::definition::Policy;
use crate::write::admission::dynamic::policy::registered::{Part, Registered};
use crate::write::admission::dynamic::policy::{GROUP, Policies};
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{Event, Kind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// One of the resources. When it is dropped, even by a panic, writers that wait for their policy fail instead of
/// waiting forever.
struct Resource {
    policies: Arc<Policies>,
    part: Part,
}

/// Indexes the policies and bindings of the store, and starts the tasks that keep the index up to date until the server
/// stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    policies: &Arc<Policies>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let resource = |part| Box::new(Resource { policies: policies.clone(), part });
    Part::ALL.into_iter().map(|part| follower::start(store, resource(part), stopping)).collect()
}

impl Followed for Resource {
    fn resource(&self) -> GroupResource {
        GroupResource::new(GROUP, self.part.plural())
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        match self.part.is_mutating() {
            true => replace(&self.policies.mutating, self.part, objects, revision),
            false => replace(&self.policies.validating, self.part, objects, revision),
        }
    }

    fn change(&self, events: &[Arc<Event>]) {
        match self.part.is_mutating() {
            true => change(&self.policies.mutating, self.part, events),
            false => change(&self.policies.validating, self.part, events),
        }
    }
}

fn replace<P: Policy>(registered: &Registered<P>, part: Part, objects: &[Arc<Object>], revision: Revision) {
    let changes = objects.iter().map(|object| registered.read(part, object)).collect();
    registered.change(Some(part), changes);
    registered.progress(part).report(revision);
}

fn change<P: Policy>(registered: &Registered<P>, part: Part, events: &[Arc<Event>]) {
    let changes = events.iter().map(|event| match event.kind {
        Kind::Added | Kind::Modified => registered.read(part, &event.object),
        Kind::Deleted => Registered::<P>::deletion(part, &event.object),
    });
    registered.change(None, changes.collect());
    if let Some(last) = events.last() {
        registered.progress(part).report(last.revision);
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.policies.progress(self.part).end();
    }
}
