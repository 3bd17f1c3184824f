//! Deletes the objects of a definition that is being deleted, then lets go of the definition.

use crate::catalog::{Resource, Served, Verb};
use crate::crd::{self, Deletion};
use crate::definitions::{key, storage, update};
use crate::operation::Operation;
use crate::options::Delete;
use crate::query::Query;
use crate::registry::{self, Change};
use crate::state::State;
use crate::status::Failure;
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Object, ObjectKey};
use steersman_storage::{At, Kind, Page, Scope};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Objects looked at in one go.
const PAGE_OBJECTS: usize = 1000;
/// Events taken together.
const BATCH_MAX: usize = 1024;
/// How often the definition says at most how many objects are left.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Deletes the objects of one definition.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: Arc<State>,
    pub(super) definition: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) objects: Objects,
    /// One is held for each object while it is deleted.
    pub(super) permits: Arc<Semaphore>,
}

/// The objects that are to go.
#[derive(Debug)]
pub(super) enum Objects {
    /// There never were any.
    None,
    /// Those of a resource.
    Of(Arc<Resource>),
    /// They belong to a built-in resource and stay.
    OfBuiltIn,
}

/// Why some objects are not deleted yet.
enum Interrupted {
    Failed(Failure),
    /// The watch fell behind: look at everything again.
    Lagged,
}

impl Task {
    /// Runs until the definition is let go, nobody needs that any more, or the server stops.
    pub(super) async fn run(self, ended: CancellationToken) {
        // What is interrupted is done again by whoever comes next: nothing here counts on what came before.
        tokio::select! {
            () = ended.cancelled() => {}
            () = self.state.stopping() => {}
            () = self.delete() => {}
        }
    }

    async fn delete(&self) {
        let outcome = match &self.objects {
            Objects::None => Deletion::NeverEstablished,
            Objects::OfBuiltIn => Deletion::OverlappingBuiltIn,
            Objects::Of(resource) => {
                self.delete_until_none(resource).await;
                Deletion::Completed
            }
        };
        // Again for as long as somebody else writes the definition at the same moment.
        while self.tell(&outcome).await {
            tokio::task::yield_now().await;
        }
    }

    async fn delete_until_none(&self, resource: &Arc<Resource>) {
        loop {
            match self.delete_all(resource).await {
                Ok(()) => return,
                Err(Interrupted::Lagged) => {}
                Err(Interrupted::Failed(failure)) => {
                    self.tell(&Deletion::Failed(failure.status.message.clone())).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Deletes what is there and what still comes, and waits until finalizers have let go of the rest.
    async fn delete_all(&self, resource: &Arc<Resource>) -> Result<(), Interrupted> {
        let store = &self.state.store;
        // The resource takes no new objects, but a creation that began before may still be under way. If it commits before
        // this point, the list below has it; if later, the watch does.
        let from = self.state.sync().await.map_err(Interrupted::Failed)?;
        let watcher = store.watch(&resource.storage, Scope::All, from);
        let mut watcher = watcher.map_err(|_| Interrupted::Lagged)?;
        let mut start_after: Option<ObjectKey> = None;
        loop {
            let page = Page { limit: Some(PAGE_OBJECTS), start_after: start_after.as_ref() };
            let list = store.list(&resource.storage, &Scope::All, At::Latest, page);
            let list = list.map_err(|error| Interrupted::Failed(Failure::of_read(&error)))?;
            start_after = list.objects.last().map(|object| object.key.clone());
            self.delete_objects(resource, &list.objects).await.map_err(Interrupted::Failed)?;
            if !list.more {
                break;
            }
        }
        let mut told = None;
        loop {
            self.state.sync().await.map_err(Interrupted::Failed)?;
            let left = store.count(&resource.storage);
            if left == 0 {
                return Ok(());
            }
            let is_told_lately = told.is_some_and(|(_, at): (usize, Instant)| at.elapsed() < TELL_INTERVAL);
            if !is_told_lately && told.is_none_or(|(count, _)| count != left) {
                self.tell(&Deletion::Remaining(left)).await;
                told = Some((left, Instant::now()));
            }
            // A watcher that is dropped amid its wait has handed out nothing.
            let events = tokio::select! {
                events = watcher.next_batch(BATCH_MAX) => events.map_err(|_| Interrupted::Lagged)?,
                () = tokio::time::sleep(TELL_INTERVAL), if told.is_some_and(|(count, _)| count != left) => continue,
            };
            let present = events.iter().filter(|event| event.kind != Kind::Deleted);
            let objects: Vec<_> = present.map(|event| event.object.clone()).collect();
            self.delete_objects(resource, &objects).await.map_err(Interrupted::Failed)?;
        }
    }

    /// Deletes those that are not on their way out yet, many at once so that they share commits of the store.
    async fn delete_objects(&self, resource: &Arc<Resource>, objects: &[Arc<Object>]) -> Result<(), Failure> {
        let objects = objects.iter().filter(|object| !object.meta().is_deleting()).cloned().collect::<Vec<_>>();
        let deletions = objects.into_iter().map(|object| async move { self.delete_one(resource, &object.key).await });
        let mut deletions = futures::stream::iter(deletions).buffer_unordered(self.permits.available_permits().max(1));
        while let Some(deleted) = deletions.next().await {
            deleted?;
        }
        Ok(())
    }

    async fn delete_one(&self, resource: &Arc<Resource>, object: &ObjectKey) -> Result<(), Failure> {
        let Ok(_permit) = self.permits.acquire().await else { return Ok(()) };
        // In the version they are stored in: it is there even where no version is served any more.
        let served = Served::in_storage(resource.clone());
        let system = Operation::of_system(&served, Verb::Delete, self.state.now());
        let mut operation = system.on(Verb::Delete, object);
        let options = Delete::parse(&Query::default(), None)?;
        match registry::write(&self.state, &mut operation, &Change::Delete(&options)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.code() == 404 => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Writes into the definition how far this is. False if it needs nothing more: it is gone, or was let go.
    async fn tell(&self, deletion: &Deletion) -> bool {
        let Ok(Some(object)) = self.state.store.get(&storage(), &key(&self.definition)).await else { return false };
        let is_held = object.meta().has_finalizer(crd::FINALIZER);
        if object.meta().uid() != &*self.uid || !is_held {
            return false;
        }
        let now = self.state.now();
        let written = update(&self.state, &object, |definition| crd::set_deletion(definition, deletion, now)).await;
        if let Err(failure) = written {
            let (name, message) = (&*self.definition, &failure.status.message);
            tracing::warn!(name, message, "how far the deletion of a definition is could not be written");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        true
    }
}
