//! Deletes the objects of a definition that is being deleted, then removes its finalizer.

use crate::background::definitions::{key, storage, update};
use crate::shared::operation::Operation;
use crate::shared::request::options::Delete;
use crate::shared::request::query::Query;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::{Resource, Served, Verb};
use steersman_kinds::crd::{self, Deletion};
use steersman_machinery::{Object, ObjectKey};
use steersman_storage::{At, Kind, Page, Scope};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Objects listed at a time.
const PAGE_OBJECTS: usize = 1000;
/// The most events taken at a time.
const BATCH_MAX: usize = 1024;
/// The least time between two updates of the status with the number of remaining objects.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a failure before the deletion is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Deletes the objects of one definition.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: Arc<State>,
    pub(super) definition: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) objects: Objects,
    /// A permit is held for each deletion in progress.
    pub(super) permits: Arc<Semaphore>,
}

/// The objects to delete.
#[derive(Debug)]
pub(super) enum Objects {
    /// None: the definition was never established.
    None,
    /// The objects of a resource.
    Of(Arc<Resource>),
    /// They belong to a built-in resource and are not deleted.
    OfBuiltIn,
}

/// The reason why a pass ended before all objects were deleted.
enum Interrupted {
    Failed(Failure),
    /// The watch fell behind: all objects must be listed again.
    Lagged,
}

impl Task {
    /// Runs until the finalizer is removed, the task is replaced, or the server stops.
    pub(super) async fn run(self, ended: CancellationToken) {
        // The task may be dropped anywhere: the next one lists the objects again and relies on nothing done here.
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
        // Retried for as long as another writer changes the definition at the same time.
        while self.report(&outcome).await {
            tokio::task::yield_now().await;
        }
    }

    async fn delete_until_none(&self, resource: &Arc<Resource>) {
        loop {
            match self.delete_all(resource).await {
                Ok(()) => return,
                Err(Interrupted::Lagged) => {}
                Err(Interrupted::Failed(failure)) => {
                    self.report(&Deletion::Failed(failure.status.message.clone())).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Deletes the existing objects and those that are still being created, and waits for the finalizers of the rest.
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
        let mut reported = None;
        loop {
            self.state.sync().await.map_err(Interrupted::Failed)?;
            let left = store.count(&resource.storage);
            if left == 0 {
                return Ok(());
            }
            let is_reported_lately = reported.is_some_and(|(_, at): (usize, Instant)| at.elapsed() < REPORT_INTERVAL);
            if !is_reported_lately && reported.is_none_or(|(count, _)| count != left) {
                self.report(&Deletion::Remaining(left)).await;
                reported = Some((left, Instant::now()));
            }
            // Both arms are cancel-safe: a dropped wait has consumed no events.
            let events = tokio::select! {
                events = watcher.next_batch(BATCH_MAX) => events.map_err(|_| Interrupted::Lagged)?,
                () = tokio::time::sleep(REPORT_INTERVAL), if reported.is_some_and(|(count, _)| count != left) => continue,
            };
            let present = events.iter().filter(|event| event.kind != Kind::Deleted);
            let objects: Vec<_> = present.map(|event| event.object.clone()).collect();
            self.delete_objects(resource, &objects).await.map_err(Interrupted::Failed)?;
        }
    }

    /// Deletes the objects that are not being deleted yet, concurrently so that they share commits of the store.
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
        // Deleted in the storage version, which exists even if no version is served any more.
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

    /// Writes the progress into the status of the definition. False if that is gone or has lost the finalizer.
    async fn report(&self, deletion: &Deletion) -> bool {
        let Ok(Some(object)) = self.state.store.get(&storage(), &key(&self.definition)).await else { return false };
        let is_held = object.meta().has_finalizer(crd::FINALIZER);
        if object.meta().uid() != &*self.uid || !is_held {
            return false;
        }
        let now = self.state.now();
        let written = update(&self.state, &object, |definition| crd::set_deletion(definition, deletion, now)).await;
        if let Err(failure) = written {
            let (name, message) = (&*self.definition, &failure.status.message);
            tracing::warn!(name, message, "the progress of a definition's deletion could not be written to its status");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        true
    }
}
