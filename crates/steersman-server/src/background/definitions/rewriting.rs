//! Rewrites the stored objects of a changed definition in the form that the definition now gives them.
//!
//! Readers get that form in any case; once all objects are rewritten, reads need no conversion any more (see the
//! condition `StoredObjectsCurrent` in [`crate::crd`]). An object that another client writes at the same time is
//! skipped, since that write stores the new form. After a restart, objects that were rewritten before are skipped.

use crate::background::definitions::{key, storage, update};
use crate::shared::conversion;
use crate::state::State;
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::Resource;
use steersman_kinds::crd::{self, Rewriting};
use steersman_machinery::{Object, ObjectKey, Value, value};
use steersman_storage::{At, Event, Kind, Page, Scope, WatchError, Watcher, WriteError};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Objects checked before other tasks get a turn.
const PAGE_OBJECTS: usize = 64;
/// The time for which requests that began before the change may still write the old form: a little more than the
/// longest request.
const OLD_WRITERS: Duration = Duration::from_secs(65);
/// The least time between two updates of the progress in the status.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after a failure before the rewriting is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Rewrites the objects of one generation of a definition.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: Arc<State>,
    pub(super) definition: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) generation: i64,
    pub(super) resource: Arc<Resource>,
    /// A permit is held for each object that is being rewritten.
    pub(super) permits: Arc<Semaphore>,
}

/// The reason why a pass ended before all objects were rewritten.
enum Interrupted {
    /// The store is closed.
    Closed,
    Failed(String),
    /// The watch fell behind: all objects must be listed again.
    Lagged,
}

/// An object in its stored form, and in the form in which it would be stored now.
struct Forms {
    before: Value,
    after: Value,
}

/// The progress of a pass.
struct Done {
    checked: usize,
    has_rewritten: bool,
    reported: Option<Instant>,
}

impl Task {
    /// Runs until all objects are rewritten, the task is replaced, or the server stops.
    pub(super) async fn run(self, ended: CancellationToken) {
        // The task may be dropped anywhere: the next one checks all objects again.
        tokio::select! {
            () = ended.cancelled() => {}
            () = self.state.stopping() => {}
            () = self.rewrite() => {}
        }
    }

    async fn rewrite(&self) {
        let old_writers_until = Instant::now() + OLD_WRITERS;
        loop {
            match self.rewrite_all(old_writers_until).await {
                Ok(()) => break,
                Err(Interrupted::Closed) => return,
                Err(Interrupted::Lagged) => tokio::task::yield_now().await,
                Err(Interrupted::Failed(why)) => {
                    self.report(&Rewriting::Failed(why)).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        // Retried for as long as another writer changes the definition at the same time.
        while self.report(&Rewriting::Completed).await {
            tokio::task::yield_now().await;
        }
    }

    async fn rewrite_all(&self, old_writers_until: Instant) -> Result<(), Interrupted> {
        let (store, resource) = (&self.state.store, &self.resource);
        let from = self.state.sync().await.map_err(|_| Interrupted::Closed)?;
        let watcher = store.watch(&resource.storage, Scope::All, from);
        let mut watcher = watcher.map_err(|_| Interrupted::Lagged)?;
        let mut done = Done { checked: 0, has_rewritten: false, reported: None };
        let mut start_after: Option<ObjectKey> = None;
        loop {
            let page = Page { limit: Some(PAGE_OBJECTS), start_after: start_after.as_ref() };
            let list = store.list(&resource.storage, &Scope::All, At::Latest, page);
            let list = list.map_err(|error| Interrupted::Failed(error.to_string()))?;
            start_after = list.objects.last().map(|object| object.key.clone());
            self.rewrite_objects(&list.objects, &mut done).await?;
            self.follow(&mut watcher, &mut done).await?;
            if !list.more {
                break;
            }
            tokio::task::yield_now().await;
        }
        loop {
            // Both arms are cancel-safe: a dropped wait has consumed no events.
            tokio::select! {
                () = tokio::time::sleep_until(old_writers_until) => return Ok(()),
                events = watcher.next_batch(PAGE_OBJECTS) => self.rewrite_events(events, &mut done).await?,
            };
        }
    }

    /// Rewrites the objects that were written during the pass.
    async fn follow(&self, watcher: &mut Watcher, done: &mut Done) -> Result<(), Interrupted> {
        while 0 < self.rewrite_events(watcher.try_next_batch(PAGE_OBJECTS), done).await? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn rewrite_events(
        &self,
        events: Result<Vec<Arc<Event>>, WatchError>,
        done: &mut Done,
    ) -> Result<usize, Interrupted> {
        let events = events.map_err(|error| match error {
            WatchError::Closed => Interrupted::Closed,
            WatchError::Lagged { .. } => Interrupted::Lagged,
        })?;
        let present = events.iter().filter(|event| event.kind != Kind::Deleted);
        let objects: Vec<_> = present.map(|event| event.object.clone()).collect();
        let checked = done.checked;
        self.rewrite_objects(&objects, done).await?;
        // Objects that come from events are in the list too, so they are not counted twice.
        done.checked = checked;
        Ok(events.len())
    }

    async fn rewrite_objects(&self, objects: &[Arc<Object>], done: &mut Done) -> Result<(), Interrupted> {
        let converted = self.converted(objects).await?;
        let rewrites = objects.iter().cloned().zip(converted).map(|(object, forms)| async move {
            let forms = match forms {
                Some(forms) => Some(forms),
                None => self.forms(std::slice::from_ref(&object)).await?.pop().flatten(),
            };
            // An object that cannot be read stays as it is. No reader gets it either.
            let Some(forms) = forms else { return Ok(false) };
            self.rewrite_one(&object, forms).await
        });
        let at_a_time = self.permits.available_permits().max(1);
        let mut rewrites = futures::stream::iter(rewrites).buffer_unordered(at_a_time);
        let mut failure = None;
        while let Some(rewritten) = rewrites.next().await {
            match rewritten {
                Ok(is_rewritten) => done.has_rewritten |= is_rewritten,
                Err(interrupted) => failure = failure.or(Some(interrupted)),
            }
        }
        done.checked += objects.len();
        // Progress is not reported if no object needs to be rewritten.
        if done.has_rewritten && done.reported.is_none_or(|at| REPORT_INTERVAL <= at.elapsed()) {
            let total = self.state.store.count(&self.resource.storage).max(done.checked);
            self.report(&Rewriting::InProgress { checked: done.checked, total }).await;
            done.reported = Some(Instant::now());
        }
        failure.map_or(Ok(()), Err)
    }

    /// The forms of objects if a webhook converts them, in one call for all. Otherwise `None` for each, because they
    /// need not all be in memory.
    async fn converted(&self, objects: &[Arc<Object>]) -> Result<Vec<Option<Forms>>, Interrupted> {
        match self.resource.strategy.converter() {
            Some(_) => self.forms(objects).await,
            None => Ok(objects.iter().map(|_| None).collect()),
        }
    }

    /// The forms of each object; `None` for one that cannot be read, which `parse` logs.
    async fn forms(&self, objects: &[Arc<Object>]) -> Result<Vec<Option<Forms>>, Interrupted> {
        let readable: Vec<Option<Value>> = objects
            .iter()
            .map(|object| {
                let mut before = conversion::parse(object).ok()?;
                value::remove_at(&mut before, &["metadata", "resourceVersion"]);
                Some(before)
            })
            .collect();
        let after = conversion::to_stored_again(&self.resource, readable.iter().flatten().cloned().collect()).await;
        let after = after.map_err(|failure| Interrupted::Failed(failure.status.message.clone()))?;
        let mut after = after.into_iter();
        let forms = |before: Option<Value>| Some(Forms { before: before?, after: after.next()? });
        Ok(readable.into_iter().map(forms).collect())
    }

    /// Rewrites an object unless it has the right form already. Returns whether it was rewritten.
    async fn rewrite_one(&self, object: &Object, Forms { before, after }: Forms) -> Result<bool, Interrupted> {
        if after == before && at_rest::is_header_current(&self.resource, object, &after) {
            return Ok(false);
        }
        let Ok(_permit) = self.permits.acquire().await else { return Err(Interrupted::Closed) };
        let failed = |why: String| Interrupted::Failed(format!("{} could not be rewritten: {why}", object.key));
        let draft = at_rest::draft(&self.resource, after).map_err(|error| failed(error.to_string()))?;
        let storage = &self.resource.storage;
        match self.state.store.update_with(storage, &object.key, object.revision, draft, &[]).await {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict { .. }) => Ok(false),
            Err(WriteError::Closed) => Err(Interrupted::Closed),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Writes the progress into the status of the definition. False if it is complete, or now of another generation.
    async fn report(&self, rewriting: &Rewriting) -> bool {
        let Ok(Some(object)) = self.state.store.get(&storage(), &key(&self.definition)).await else { return false };
        if object.meta().uid() != &*self.uid || object.meta().is_deleting() {
            return false;
        }
        let mut is_open = true;
        let now = self.state.now();
        let written = update(&self.state, &object, |definition| {
            is_open = crd::generation(definition) == self.generation && !crd::are_current(definition);
            if is_open {
                crd::set_rewriting(definition, rewriting, now);
            }
        });
        if let Err(failure) = written.await {
            let (name, message) = (&*self.definition, &failure.status.message);
            tracing::warn!(name, message, "how far the rewriting of objects is could not be written");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        is_open
    }
}
