//! Keeps what is served in step with the CustomResourceDefinitions in the store.
//!
//! One task follows the definitions: it gives them their status, swaps in a new catalog when they change, and deletes the
//! objects of a definition that is on its way out. The writer of a definition is answered only when it is in force, so that
//! the next request can use it.

use crate::at_rest;
use crate::catalog::{Catalog, Resource, Served, Verb};
use crate::conversion;
use crate::crd::{self, Deletion, Names};
use crate::operation::Operation;
use crate::options::Delete;
use crate::query::Query;
use crate::registry::{self, Change, Outcome};
use crate::state::State;
use crate::status::Failure;
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value, value};
use steersman_storage::{At, Page, Scope, WatchError, WriteError};
use tokio::task::JoinHandle;

/// How often it is looked whether objects that finalizers held are gone.
const REMAINING_INTERVAL: Duration = Duration::from_millis(250);
/// Objects of a definition on its way out that are deleted in one go, and how many of them at a time.
const DELETIONS_MAX: usize = 1000;
const DELETIONS_AT_A_TIME: usize = 64;
/// Changes of definitions taken together.
const BATCH_MAX: usize = 1024;

/// The task's own memory.
struct Follower {
    state: Arc<State>,
    /// The resource of each definition, and what of the definition it was made of.
    made: HashMap<Box<str>, (String, Option<Arc<Resource>>)>,
}

/// A definition as the store has it.
struct Definition {
    object: Arc<Object>,
    value: Value,
}

/// What is served without any definition.
pub(crate) fn built_in() -> Catalog {
    Catalog::new(built_in_resources())
}

/// Puts the definitions in the store in force and keeps doing so until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn start(state: &Arc<State>) -> Result<JoinHandle<()>, Failure> {
    let mut follower = Follower { state: state.clone(), made: HashMap::new() };
    let revision = follower.pass().await?;
    Ok(tokio::spawn(follower.run(revision)))
}

fn built_in_resources() -> Vec<Arc<Resource>> {
    let mut resources = crate::builtin::resources();
    // Where discovery lists the group.
    let behind = ["scheduling.k8s.io", "coordination.k8s.io"];
    let at = resources.iter().position(|resource| behind.contains(&&*resource.group)).unwrap_or(resources.len());
    resources.insert(at, crd::resource());
    resources
}

fn storage() -> GroupResource {
    GroupResource::new(crd::GROUP, crd::PLURAL)
}

impl Follower {
    async fn run(mut self, from: Revision) {
        let mut after = from;
        // The server may have been stopped amid a deletion, which tells of itself no more.
        let mut is_waiting = self.delete_instances().await;
        loop {
            let watcher = self.state.store.watch(&storage(), Scope::All, after);
            let Ok(mut watcher) = watcher else {
                // The history is gone: what is there now is all that counts.
                match self.pass().await {
                    Ok(revision) => after = revision,
                    Err(failure) => self.failed(&failure).await,
                }
                if self.state.is_stopping() {
                    return;
                }
                continue;
            };
            loop {
                let state = self.state.clone();
                let retry = async {
                    match is_waiting {
                        true => tokio::time::sleep(REMAINING_INTERVAL).await,
                        false => std::future::pending().await,
                    }
                };
                // Every arm is cancel-safe: a batch that is not returned stays behind the cursor.
                tokio::select! {
                    () = state.stopping() => return,
                    batch = watcher.next_batch(BATCH_MAX) => match batch {
                        Ok(_) => {}
                        Err(WatchError::Closed) => return,
                        Err(WatchError::Lagged { .. }) => break,
                    },
                    () = retry => {}
                }
                let passed = self.pass().await;
                is_waiting = self.delete_instances().await || passed.is_err();
                match passed {
                    Ok(revision) => after = revision,
                    Err(failure) => self.failed(&failure).await,
                }
            }
        }
    }

    /// Tells of a failure and waits a moment: it is tried again.
    async fn failed(&self, failure: &Failure) {
        tracing::error!(message = failure.status.message, "the definitions could not be put in force; trying again");
        tokio::time::sleep(REMAINING_INTERVAL).await;
    }

    /// Puts what is there in force; returns as of when.
    async fn pass(&mut self) -> Result<Revision, Failure> {
        loop {
            let revision = self.state.sync().await?;
            let mut definitions = self.read()?;
            if self.reconcile(&mut definitions).await? {
                continue;
            }
            self.serve(&definitions);
            self.state.definitions.report(revision);
            return Ok(revision);
        }
    }

    fn read(&self) -> Result<Vec<Definition>, Failure> {
        let list = self.state.store.list(&storage(), &Scope::All, At::Latest, Page::ALL);
        let list = list.map_err(|error| Failure::of_read(&error))?;
        let mut definitions = Vec::with_capacity(list.objects.len());
        for object in list.objects {
            // One that cannot be read was told of in the log; the others are served all the same.
            if let Ok(value) = conversion::parse(&object) {
                definitions.push(Definition { value, object });
            }
        }
        // Who came first keeps the name.
        definitions.sort_by_cached_key(|definition| {
            let created = value::str_at(&definition.value, &["metadata", "creationTimestamp"]).unwrap_or("").to_owned();
            (created, definition.object.key.clone())
        });
        Ok(definitions)
    }

    /// Gives every definition the status it ought to have. True if something was written: look again.
    async fn reconcile(&self, definitions: &mut [Definition]) -> Result<bool, Failure> {
        let mut has_written = false;
        for at in 0..definitions.len() {
            let others = definitions.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<Names> = others.map(|(_, other)| Names::accepted(&other.value)).collect();
            let definition = &mut definitions[at];
            if let Some(status) = crd::reconcile(&definition.value, &others, self.state.now()) {
                definition.value["status"] = status;
                has_written = true;
                self.write(&definition.object, definition.value.clone()).await?;
            }
        }
        Ok(has_written)
    }

    /// Writes a definition in place of what was read; somebody else's newer one stays.
    async fn write(&self, current: &Object, value: Value) -> Result<(), Failure> {
        let store = &self.state.store;
        let is_done = registry::is_done_waiting(&value);
        let written = if is_done {
            store.delete(&storage(), &current.key, current.revision).await.map(|_| ())
        } else {
            let mut value = value;
            value::remove_at(&mut value, &["metadata", "resourceVersion"]);
            let bytes =
                at_rest::encode(&crd::resource(), value).map_err(|error| Failure::internal(error.to_string()))?;
            store.update(&storage(), &current.key, current.revision, bytes).await.map(|_| ())
        };
        match written {
            Ok(()) | Err(WriteError::Conflict { .. }) => Ok(()),
            Err(error) => Err(Failure::internal(format!("a definition's status could not be written: {error}"))),
        }
    }

    /// Swaps in a catalog with the resources of the definitions.
    fn serve(&mut self, definitions: &[Definition]) {
        let mut made = HashMap::with_capacity(definitions.len());
        let mut is_changed = self.made.len() != definitions.len();
        for definition in definitions {
            let (name, substance) = (&definition.object.key.name, substance(&definition.value));
            let known = self.made.get(name).filter(|(known, _)| *known == substance);
            let entry = match known {
                Some(known) => known.clone(),
                None => {
                    is_changed = true;
                    (substance, resource(&definition.value))
                }
            };
            made.insert(name.clone(), entry);
        }
        self.made = made;
        if is_changed {
            let mut resources = built_in_resources();
            let mut custom: Vec<Arc<Resource>> =
                self.made.values().filter_map(|(_, resource)| resource.clone()).collect();
            custom.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
            resources.extend(custom);
            self.state.serve(Catalog::new(resources));
        }
    }

    /// Deletes the objects of definitions that are on their way out. True if some wait for their finalizers.
    async fn delete_instances(&self) -> bool {
        let definitions = match self.read() {
            Ok(definitions) => definitions,
            Err(_) => return true,
        };
        let mut is_waiting = false;
        for mut definition in definitions.into_iter().filter(|definition| definition.object.meta().is_deleting()) {
            let has_finalizer = definition.object.meta().has_finalizer(crd::FINALIZER);
            if !has_finalizer {
                continue;
            }
            let made = self.made.get(&definition.object.key.name).and_then(|(_, resource)| resource.clone());
            let deletion = match made {
                None => Deletion::NeverEstablished,
                Some(resource) => self.delete_all(&resource).await,
            };
            is_waiting |= !matches!(deletion, Deletion::Completed | Deletion::NeverEstablished);
            let before = definition.value.clone();
            crd::set_deletion(&mut definition.value, &deletion, self.state.now());
            if definition.value != before && self.write(&definition.object, definition.value).await.is_err() {
                is_waiting = true;
            }
        }
        is_waiting
    }

    /// Deletes every object of a resource, and says how many are still there.
    async fn delete_all(&self, resource: &Arc<Resource>) -> Deletion {
        // Whoever began to create before the definition was marked, and is done, must be seen; who is not, sees the mark.
        if let Err(failure) = self.state.sync().await {
            return Deletion::Failed(failure.status.message.clone());
        }
        let list = self.state.store.list(&resource.storage, &Scope::All, At::Latest, Page::ALL);
        let objects = match list {
            Ok(list) => list.objects,
            Err(error) => return Deletion::Failed(error.to_string()),
        };
        // Many at once share one commit of the store; not all in one go, so that other definitions have their turn.
        let (marked, objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| object.meta().is_deleting());
        let mut remaining = marked.len() + objects.len().saturating_sub(DELETIONS_MAX);
        let deletions = objects.into_iter().take(DELETIONS_MAX);
        let deletions = deletions.map(|object| async move { self.delete_one(resource, &object.key).await });
        let mut deletions = futures::stream::iter(deletions).buffer_unordered(DELETIONS_AT_A_TIME);
        while let Some(deleted) = deletions.next().await {
            match deleted {
                Ok(Outcome::Deleted(_)) => {}
                Ok(Outcome::Created(_) | Outcome::Updated(_)) => remaining += 1,
                Err(failure) if failure.code() == 404 => {}
                Err(failure) => return Deletion::Failed(failure.status.message.clone()),
            }
        }
        if remaining == 0 { Deletion::Completed } else { Deletion::Remaining(remaining) }
    }

    async fn delete_one(&self, resource: &Arc<Resource>, key: &ObjectKey) -> Result<Outcome, Failure> {
        // In the version they are stored in: it is there even where no version is served any more.
        let served = Served::in_storage(resource.clone());
        let system = Operation::of_system(&served, Verb::Delete, self.state.now());
        let mut operation = system.on(Verb::Delete, key);
        let options = Delete::parse(&Query::default(), None)?;
        registry::write(&self.state, &mut operation, &Change::Delete(&options)).await
    }
}

/// What of a definition its resource is made of: one that is written again with the same makes no other.
fn substance(definition: &Value) -> String {
    let parts: [&[&str]; 5] = [
        &["metadata", "uid"],
        &["metadata", "generation"],
        &["metadata", "deletionTimestamp"],
        &["spec"],
        &["status", "acceptedNames"],
    ];
    let mut text = crd::is_served(definition).to_string();
    for part in parts {
        text.push('|');
        text.push_str(&value::at(definition, part).unwrap_or(&Value::Null).to_string());
    }
    text
}

/// The resource that a definition makes, if it is in force.
fn resource(definition: &Value) -> Option<Arc<Resource>> {
    if !crd::is_served(definition) {
        return None;
    }
    match crd::custom_resources(definition) {
        Ok(resource) => Some(resource),
        Err(error) => {
            let name = value::str_at(definition, &["metadata", "name"]).unwrap_or("");
            tracing::error!(name, %error, "a definition cannot be served");
            None
        }
    }
}
