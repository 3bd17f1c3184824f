//! Gives the stored objects of a definition that has changed the form that it gives objects now.
//!
//! Readers get that form in any case; afterwards they get it without each object being read (see [`crate::crd`]'s
//! condition `StoredObjectsCurrent`). An object that somebody else writes at the same time is left to them: they write the
//! new form. Begun again after a restart, it passes over what has been rewritten already.

use crate::at_rest;
use crate::catalog::Resource;
use crate::conversion;
use crate::crd::{self, Rewriting};
use crate::definitions::{key, storage, update};
use crate::state::State;
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Object, ObjectKey, Value, value};
use steersman_storage::{At, Event, Kind, Page, Scope, WatchError, Watcher, WriteError};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Objects looked at before others have their turn.
const PAGE_OBJECTS: usize = 64;
/// A request that began before the change may write the form before for so long: as long as requests last, and a little.
const OLD_WRITERS: Duration = Duration::from_secs(65);
/// How often the definition says at most how far this is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// How long after a failure it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Rewrites the objects of one generation of a definition.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: Arc<State>,
    pub(super) definition: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) generation: i64,
    pub(super) resource: Arc<Resource>,
    /// One is held for each object while it is rewritten.
    pub(super) permits: Arc<Semaphore>,
}

/// Why not every object is rewritten yet.
enum Interrupted {
    /// The server ends.
    Closed,
    Failed(String),
    /// The watch fell behind: look at everything again.
    Lagged,
}

/// What has been done.
struct Done {
    checked: usize,
    has_rewritten: bool,
    told: Option<Instant>,
}

impl Task {
    /// Runs until all objects are rewritten, nobody needs that any more, or the server stops.
    pub(super) async fn run(self, ended: CancellationToken) {
        // What is interrupted is taken up by whoever comes next.
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
                    self.tell(&Rewriting::Failed(why)).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        // Again for as long as somebody else writes the definition at the same moment.
        while self.tell(&Rewriting::Completed).await {
            tokio::task::yield_now().await;
        }
    }

    async fn rewrite_all(&self, old_writers_until: Instant) -> Result<(), Interrupted> {
        if let Some(obstacle) = self.resource.strategy.obstacle(&self.resource, self.resource.storage_version()) {
            return Err(Interrupted::Failed(obstacle));
        }
        let (store, resource) = (&self.state.store, &self.resource);
        let from = self.state.sync().await.map_err(|_| Interrupted::Closed)?;
        let watcher = store.watch(&resource.storage, Scope::All, from);
        let mut watcher = watcher.map_err(|_| Interrupted::Lagged)?;
        let mut done = Done { checked: 0, has_rewritten: false, told: None };
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
            // A watcher that is dropped amid its wait has handed out nothing.
            tokio::select! {
                () = tokio::time::sleep_until(old_writers_until) => return Ok(()),
                events = watcher.next_batch(PAGE_OBJECTS) => self.rewrite_events(events, &mut done).await?,
            };
        }
    }

    /// Takes in what has been written in the meantime.
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
        // Of these there was an event, and they were counted before or will be.
        done.checked = checked;
        Ok(events.len())
    }

    async fn rewrite_objects(&self, objects: &[Arc<Object>], done: &mut Done) -> Result<(), Interrupted> {
        let rewrites = objects.iter().cloned().map(|object| async move { self.rewrite_one(&object).await });
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
        // A definition whose objects need nothing says so at the end alone.
        if done.has_rewritten && done.told.is_none_or(|at| TELL_INTERVAL <= at.elapsed()) {
            let total = self.state.store.count(&self.resource.storage).max(done.checked);
            self.tell(&Rewriting::InProgress { checked: done.checked, total }).await;
            done.told = Some(Instant::now());
        }
        failure.map_or(Ok(()), Err)
    }

    /// Rewrites an object unless it has the form it should have. Whether it was rewritten.
    async fn rewrite_one(&self, object: &Object) -> Result<bool, Interrupted> {
        // Told of in the log: nobody gets it in any form.
        let Ok(mut before) = conversion::parse(object) else { return Ok(false) };
        value::remove_at(&mut before, &["metadata", "resourceVersion"]);
        let after = self.stored_form(before.clone());
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

    /// The form in which the object would be stored if it were written now.
    fn stored_form(&self, stored: Value) -> Value {
        let (resource, version) = (&self.resource, self.resource.storage_version());
        resource.strategy.store(resource, version, resource.strategy.load(resource, version, stored))
    }

    /// Writes into the definition how far this is. False if there is nothing more to say of this generation.
    async fn tell(&self, rewriting: &Rewriting) -> bool {
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
