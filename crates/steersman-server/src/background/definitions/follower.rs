//! The task that follows the definitions, with its summary of them.
//!
//! A change is read once: parsed, its status computed, its schemas compiled if the spec has changed. The resource is served
//! before the status says `Established`, so that a client that reads this condition can use the resource.

use crate::background::definitions::processed::{self, ProcessedDefinition, Purpose, Source, Task};
use crate::background::definitions::{deletion, key, parse, rewriting, storage, write};
use crate::shared::conversion::webhook::Webhook;
use crate::shared::follower::in_force::NotInForce;
use crate::shared::status::Failure;
use crate::state::State;
use futures::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::{Change, Resource};
use steersman_kinds::converter::Converter;
use steersman_kinds::crd::{self, NameIndex, Names};
use steersman_machinery::{Object, Revision, Value, value};
use steersman_storage::{At, Event, Kind, Page, Scope, WatchError, Watcher};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The most changes of definitions taken at a time.
const BATCH_MAX: usize = 1024;
/// Statuses written concurrently, so that they share commits of the store.
const WRITES_AT_A_TIME: usize = 64;
/// Objects deleted concurrently, of all definitions that are being deleted together.
const DELETIONS_AT_A_TIME: usize = 64;
/// Objects rewritten concurrently, of all definitions together. Few, since rewriting is not urgent.
const REWRITES_AT_A_TIME: usize = 4;

/// Follows the definitions.
#[derive(Debug)]
pub(super) struct Follower {
    state: Arc<State>,
    known: HashMap<Box<str>, ProcessedDefinition>,
    names: NameIndex,
    /// Definitions that lack a name because another one has it.
    without_names: BTreeSet<Box<str>>,
    /// Definitions whose status could not be written, to be retried.
    failed: BTreeSet<Box<str>>,
    tasks: JoinSet<()>,
    deletions: Arc<Semaphore>,
    rewrites: Arc<Semaphore>,
}

/// The effects of a batch of changes.
#[derive(Debug, Default)]
struct Batch {
    catalog: Vec<Change>,
    /// Definitions whose status has changed, as they are to be written.
    writes: Vec<(Arc<Object>, Value)>,
    /// The definitions that were processed, with the task that each needs for its objects.
    purposes: Vec<(Box<str>, Option<Purpose>)>,
    /// Whether a name was released, which another definition may be waiting for.
    has_released: bool,
    failures: Vec<(Box<str>, Failure)>,
}

impl Follower {
    pub(super) fn new(state: Arc<State>) -> Follower {
        Follower {
            names: NameIndex::of_built_in(&state.catalog()),
            state,
            known: HashMap::new(),
            without_names: BTreeSet::new(),
            failed: BTreeSet::new(),
            tasks: JoinSet::new(),
            deletions: Arc::new(Semaphore::new(DELETIONS_AT_A_TIME)),
            rewrites: Arc::new(Semaphore::new(REWRITES_AT_A_TIME)),
        }
    }

    /// Puts all stored definitions in force and forgets those that are gone. Returns the revision of the list.
    pub(super) async fn read_all(&mut self) -> Result<Revision, Failure> {
        self.state.sync().await?;
        let list = self.state.store.list(&storage(), &Scope::All, At::Latest, Page::ALL);
        let list = list.map_err(|error| Failure::of_read(&error))?;
        let present: BTreeSet<&str> = list.objects.iter().map(|object| &*object.key.name).collect();
        let gone: Vec<Box<str>> = self.known.keys().filter(|name| !present.contains(&***name)).cloned().collect();
        let mut batch = Batch::default();
        gone.iter().for_each(|name| self.forget(name, &mut batch));
        let mut in_order = Vec::with_capacity(list.objects.len());
        for object in &list.objects {
            // `parse` has logged why a definition cannot be read; the others are served nevertheless.
            let Ok(value) = parse(&self.state, object) else { continue };
            // Accepted names are entered first: they are kept, in whatever order the definitions are processed below.
            self.give_names(&object.key.name, Names::accepted(&value), &mut batch);
            let created = value::str_at(&value, &["metadata", "creationTimestamp"]).unwrap_or_default().to_owned();
            in_order.push((created, object));
        }
        // Among definitions without accepted names the oldest gets them.
        in_order.sort_by(|(a, one), (b, other)| (a, &one.key).cmp(&(b, &other.key)));
        in_order.iter().for_each(|(_, object)| self.process(object, &mut batch));
        // The last writer of each definition may be waiting until it is in force.
        let written: Vec<_> = list.objects.iter().map(|object| (&*object.key.name, object.revision)).collect();
        self.carry_out(batch, &written, list.revision).await;
        Ok(list.revision)
    }

    /// Follows the changes after a revision until the server stops or the store is closed.
    pub(super) async fn run(mut self, from: Revision) {
        let mut after = from;
        while !self.state.is_stopping() {
            match self.state.store.watch(&storage(), Scope::All, after) {
                Ok(watcher) => match self.follow(watcher, after).await {
                    Some(revision) => after = revision,
                    None => break,
                },
                // The history is compacted: all definitions are read again.
                Err(_) => match self.read_all().await {
                    Ok(revision) => after = revision,
                    Err(_) if self.state.store.is_closed() => break,
                    Err(failure) => {
                        let message = &failure.status.message;
                        tracing::error!(message, "the definitions cannot be read; trying again");
                        // Both arms are cancel-safe: they have no state.
                        tokio::select! {
                            () = self.state.stopping() => {}
                            () = tokio::time::sleep(RETRY_INTERVAL) => {}
                        }
                    }
                },
            }
        }
        // Dropping the guards ends the tasks.
        self.known.clear();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Follows a watch until it falls behind, and returns the last revision; `None` when the store or the server stops.
    async fn follow(&mut self, mut watcher: Watcher, mut after: Revision) -> Option<Revision> {
        let state = self.state.clone();
        loop {
            let has_failed = !self.failed.is_empty();
            let retry = async {
                match has_failed {
                    true => tokio::time::sleep(RETRY_INTERVAL).await,
                    false => std::future::pending().await,
                }
            };
            // Every arm is cancel-safe: a batch that is not returned is not consumed.
            tokio::select! {
                () = state.stopping() => return None,
                events = watcher.next_batch(BATCH_MAX) => match events {
                    Ok(events) => after = self.apply(&events, after).await,
                    Err(WatchError::Closed) => return None,
                    Err(WatchError::Lagged { .. }) => return Some(after),
                },
                () = retry => self.retry(after).await,
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a task about the objects of a definition failed");
                    }
                }
            }
        }
    }

    /// Puts changes in force; of several changes of one definition only the last one.
    async fn apply(&mut self, events: &[Arc<Event>], after: Revision) -> Revision {
        let revision = events.last().map_or(after, |event| event.revision);
        let mut last: BTreeMap<&str, &Event> = BTreeMap::new();
        for event in events {
            last.insert(&event.object.key.name, event);
        }
        let mut changes: Vec<&Event> = last.into_values().collect();
        changes.sort_by_key(|event| event.revision);
        let mut batch = Batch::default();
        for event in changes {
            match event.kind {
                Kind::Deleted => self.forget(&event.object.key.name, &mut batch),
                Kind::Added | Kind::Modified => self.process(&event.object, &mut batch),
            }
        }
        let written: Vec<_> = events.iter().map(|event| (&*event.object.key.name, event.revision)).collect();
        self.carry_out(batch, &written, revision).await;
        revision
    }

    /// Retries the definitions whose status could not be written.
    async fn retry(&mut self, revision: Revision) {
        let mut batch = Batch::default();
        for name in std::mem::take(&mut self.failed) {
            self.process_again(&name, &mut batch);
        }
        self.carry_out(batch, &[], revision).await;
    }

    /// Processes the stored state of a definition, even if that revision was processed before.
    fn process_again(&mut self, name: &str, batch: &mut Batch) {
        if let Some(object) = self.state.store.get_cached(&storage(), &key(name)) {
            if let Some(known) = self.known.get_mut(name) {
                known.revision = Revision::default();
            }
            self.process(&object, batch);
        }
    }

    /// Processes a change of a definition, and adds its effects to the batch.
    fn process(&mut self, object: &Arc<Object>, batch: &mut Batch) {
        let name = &object.key.name;
        if self.known.get(name).is_some_and(|known| known.revision >= object.revision) {
            return;
        }
        let mut value = match parse(&self.state, object) {
            Ok(value) => value,
            // Retrying does not help: only another write can make it readable.
            Err(failure) => return batch.failures.push((name.clone(), failure)),
        };
        let before = value.get("status").cloned().unwrap_or_default();
        if let Some(status) = crd::reconcile(&value, &self.names, self.state.now()) {
            value["status"] = status;
        }
        let made = self.make(name, &mut value);
        self.give_names(name, Names::accepted(&value), batch);
        match crd::lacks_names(&value["status"]) {
            true => self.without_names.insert(name.clone()),
            false => self.without_names.remove(name),
        };
        let purpose = self.purpose(&value);
        let known = self.known.entry(name.clone()).or_default();
        known.revision = object.revision;
        let before_made = std::mem::replace(&mut known.made, made);
        batch.serve(before_made.as_ref().map(|(_, one)| one), known.made.as_ref().map(|(_, one)| one));
        batch.purposes.push((name.clone(), purpose));
        if value["status"] != before {
            batch.writes.push((object.clone(), value));
        }
    }

    /// The resource of an established definition. If it cannot be served, its status says so instead.
    fn make(&self, name: &str, value: &mut Value) -> Option<(Source, Arc<Resource>)> {
        if !crd::is_served(value) {
            return None;
        }
        let source = Source::of(value);
        let known = self.known.get(name);
        if let Some((_, resource)) = known.and_then(|known| known.made.as_ref()).filter(|(made, _)| *made == source) {
            return Some((source, resource.clone()));
        }
        let compiled = |version: &str| {
            let schema = known.and_then(|known| known.schema(&source, version));
            if schema.is_none() {
                self.state.definitions.count_compiled();
            }
            schema
        };
        let webhook = Webhook::of(value, self.state.conversions.clone());
        let converter = webhook.map(|webhook| Arc::new(webhook) as Arc<dyn Converter>);
        match crd::custom_resources_with(value, self.state.edition(), &compiled, converter) {
            Ok(resource) => Some((source, resource)),
            Err(error) => {
                tracing::error!(name, %error, "a definition cannot be served");
                value["status"] = crd::not_servable(value["status"].take(), &error, self.state.now());
                None
            }
        }
    }

    fn give_names(&mut self, name: &str, names: Names, batch: &mut Batch) {
        let known = self.known.entry(name.into()).or_default();
        if known.names != names {
            batch.has_released |= !known.names.plural.is_empty();
            self.names.remove(name, &known.names);
            self.names.insert(name, &names);
            known.names = names;
        }
    }

    fn forget(&mut self, name: &str, batch: &mut Batch) {
        self.failed.remove(name);
        self.without_names.remove(name);
        self.state.definitions.forgive(name);
        batch.drop_write(name);
        if let Some(known) = self.known.remove(name) {
            self.names.remove(name, &known.names);
            batch.has_released = true;
            batch.serve(known.made.as_ref().map(|(_, resource)| resource), None);
        }
    }

    /// Serves the changed catalog, then writes the statuses. `written` are the writes that the batch is about.
    async fn carry_out(&mut self, mut batch: Batch, written: &[(&str, Revision)], revision: Revision) {
        while std::mem::take(&mut batch.has_released) {
            for name in self.without_names.clone() {
                batch.drop_write(&name);
                self.process_again(&name, &mut batch);
            }
        }
        if !batch.catalog.is_empty() {
            self.state.serve_next(|catalog| catalog.after(&batch.catalog));
        }
        self.write_statuses(&mut batch).await;
        for (name, purpose) in batch.purposes {
            if !self.failed.contains(&name) {
                self.state.definitions.forgive(&name);
            }
            self.start_task(&name, purpose);
        }
        let failures = batch.failures.iter().flat_map(|(definition, failure)| {
            let revisions = written.iter().filter(|(name, _)| **name == **definition).map(|(_, revision)| *revision);
            revisions.map(|revision| NotInForce {
                definition: definition.clone(),
                revision,
                why: failure.status.message.clone(),
            })
        });
        self.state.definitions.report(revision, failures.collect());
    }

    async fn write_statuses(&mut self, batch: &mut Batch) {
        let state = self.state.clone();
        if state.writes.refusal().is_some() {
            batch.writes.clear();
        }
        let writes = std::mem::take(&mut batch.writes).into_iter().map(|(object, value)| {
            let state = state.clone();
            async move { (object.key.name.clone(), write(&state, &object, value).await) }
        });
        let mut writes = futures::stream::iter(writes).buffer_unordered(WRITES_AT_A_TIME);
        while let Some((name, written)) = writes.next().await {
            match written {
                Ok(object) => {
                    // The event of this write has nothing new. `None` means that another writer was faster: its event
                    // follows.
                    if let (Some(object), Some(known)) = (object, self.known.get_mut(&name)) {
                        known.revision = known.revision.max(object.revision);
                    }
                }
                Err(failure) => {
                    let message = &failure.status.message;
                    tracing::error!(name = &*name, message, "a definition is not in force; trying again");
                    self.failed.insert(name.clone());
                    batch.failures.push((name, failure));
                }
            }
        }
    }

    /// The task that the objects of a definition need.
    fn purpose(&self, definition: &Value) -> Option<Purpose> {
        let uid = || value::str_at(definition, &["metadata", "uid"]).unwrap_or_default().into();
        if value::str_at(definition, &["metadata", "deletionTimestamp"]).is_some() {
            let is_built_in = crd::is_of_built_in(definition, &self.names);
            return crd::has_finalizer(definition).then(|| Purpose::Delete { uid: uid(), is_built_in });
        }
        let is_stale = crd::is_served(definition) && !crd::are_current(definition);
        is_stale.then(|| Purpose::Rewrite {
            uid: uid(),
            generation: crd::generation(definition),
            stored_versions: processed::stored_versions(definition),
        })
    }

    /// Starts the task that a definition needs, and ends one with another purpose.
    fn start_task(&mut self, name: &str, purpose: Option<Purpose>) {
        let Some(known) = self.known.get_mut(name) else { return };
        // The tasks delete or rewrite objects.
        let purpose = purpose.filter(|_| self.state.writes.refusal().is_none());
        if known.task.as_ref().map(|task| &task.purpose) == purpose.as_ref() {
            return;
        }
        known.task = None;
        let Some(purpose) = purpose else { return };
        let ended = CancellationToken::new();
        let resource = known.made.as_ref().map(|(_, resource)| resource.clone());
        let (state, definition) = (self.state.clone(), name.into());
        match (&purpose, resource) {
            (Purpose::Delete { uid, is_built_in }, resource) => {
                let objects = match resource {
                    _ if *is_built_in => deletion::Objects::OfBuiltIn,
                    None => deletion::Objects::None,
                    Some(resource) => deletion::Objects::Of(resource),
                };
                let permits = self.deletions.clone();
                let task = deletion::Task { state, definition, uid: uid.clone(), objects, permits };
                self.tasks.spawn(task.run(ended.clone()));
            }
            (Purpose::Rewrite { uid, generation, .. }, Some(resource)) => {
                let (uid, generation, permits) = (uid.clone(), *generation, self.rewrites.clone());
                let task = rewriting::Task { state, definition, uid, generation, resource, permits };
                self.tasks.spawn(task.run(ended.clone()));
            }
            (Purpose::Rewrite { .. }, None) => return,
        }
        known.task = Some(Task { purpose, _guard: ended.drop_guard() });
    }
}

impl Batch {
    /// Replaces a resource in the catalog, if it is another one.
    fn serve(&mut self, before: Option<&Arc<Resource>>, after: Option<&Arc<Resource>>) {
        let is_same = match (before, after) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if let Some(resource) = after.or(before).filter(|_| !is_same) {
            self.catalog.push(Change { name: resource.group_resource(), resource: after.cloned() });
        }
    }

    /// Discards the pending status of a definition.
    fn drop_write(&mut self, name: &str) {
        self.writes.retain(|(object, _)| *object.key.name != *name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use jiff::Timestamp;
    use steersman_storage::{Memory, Options, Store};

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_the_store_also_when_there_is_no_history_to_follow() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let json = bytes::Bytes::from_static(br#"{"metadata":{"name":"x"}}"#);
        let written = store.create(&storage(), &key("x"), json).await.unwrap();
        store.sync().await.unwrap();
        store.compact(written.revision).await.unwrap();
        store.close().await.unwrap();
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let catalog = crate::background::definitions::built_in();
        let state = Arc::new(State::new(
            store,
            authentication,
            authorization,
            crate::write::admission::Plugins::default().asked(),
            catalog,
            Timestamp::now,
        ));
        let run = Follower::new(state).run(Revision::ZERO);
        tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
    }
}
