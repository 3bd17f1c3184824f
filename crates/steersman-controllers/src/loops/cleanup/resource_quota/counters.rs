//! Counts the objects of kinds that a quota limits by their number only, by watching their metadata.
//!
//! The watch of a kind starts when it is first counted. It ends when no quota limits the kind any more, or its
//! definition is deleted.

use crate::loops::cleanup::resource_quota::plan::Held;
use crate::shared::discovery;
use crate::shared::refusal::{self, Refused};
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use steersman::cache::{Change, Event, EventHandler, EventKind, Informer, Running};
use steersman::queue::WorkQueue;
use steersman::{InformerFactory, Lister, LookupError, ObjectKey, Scope};
use tokio_util::task::AbortOnDropHandle;

/// The kind that defines other kinds.
pub(crate) type Definition = CustomResourceDefinition;

/// The metadata of an object of any kind.
type Counted = PartialObjectMeta<DynamicObject>;

const VERBS: [&str; 4] = ["create", "delete", "list", "watch"];

pub(crate) struct Counters {
    client: Client,
    quotas: Lister<ResourceQuota>,
    kinds: Mutex<HashMap<Held, Arc<Counter>>>,
    queue: Arc<OnceLock<WorkQueue<ObjectKey>>>,
}

/// A watch of a kind. Dropping it ends the watch.
struct Counter {
    informer: Informer<Counted>,
    _running: Running,
    /// Wakes the quotas that limit the kind, once its objects are listed.
    _waking: AbortOnDropHandle<()>,
}

/// The number of objects of a kind.
pub(crate) enum Number {
    Known(usize),
    /// The objects are not listed yet. The quotas that limit the kind are woken when they are.
    NotListed,
    NotServed,
}

/// Wakes the quotas that limit a kind, in the namespace of a deleted object.
#[derive(Clone)]
struct Replenish {
    held: Held,
    quotas: Lister<ResourceQuota>,
    queue: Arc<OnceLock<WorkQueue<ObjectKey>>>,
}

/// The quotas in a namespace that limit a resource whose name passes.
pub(crate) fn concerned(
    quotas: &Lister<ResourceQuota>,
    namespace: Option<&str>,
    counts: impl Fn(&str) -> bool,
) -> Vec<ObjectKey> {
    let quotas = namespace.and_then(|namespace| quotas.list_in(namespace).ok()).unwrap_or_default();
    let holds = |quota: &Arc<ResourceQuota>| names(quota).any(&counts);
    quotas.iter().filter(|quota| holds(quota)).map(|quota| ObjectKey::of(&**quota)).collect()
}

fn names(quota: &ResourceQuota) -> impl Iterator<Item = &str> {
    let hard = quota.spec.iter().flat_map(|spec| &spec.hard);
    hard.flat_map(|hard| hard.keys()).map(String::as_str)
}

// === impl Counters ===

impl Counters {
    pub(crate) fn new(client: Client, quotas: Lister<ResourceQuota>) -> Counters {
        Counters { client, quotas, kinds: Mutex::default(), queue: Arc::default() }
    }

    /// Sets the queue for quotas that are to be recounted.
    pub(crate) fn wakes(&self, queue: WorkQueue<ObjectKey>) {
        // Called once, when the loop is built, so the cell is empty.
        let _ = self.queue.set(queue);
    }

    /// The number of objects of a kind in a namespace.
    ///
    /// # Errors
    /// When the server does not answer whether it serves the kind.
    pub(crate) async fn count(&self, group: &str, resource: &str, namespace: &str) -> Result<Number, Refused> {
        let held = Held::Object { group: group.to_owned(), resource: resource.to_owned() };
        let known = self.kinds.lock().get(&held).cloned();
        let counter = match known {
            Some(counter) => counter,
            None => {
                let Some(resource) = self.discover(group, resource).await? else { return Ok(Number::NotServed) };
                self.start(held, &resource)
            }
        };
        if !counter.informer.has_synced() {
            return Ok(Number::NotListed);
        }
        Ok(Number::Known(counter.informer.indexer().keys_in(namespace).len()))
    }

    fn start(&self, held: Held, resource: &ApiResource) -> Arc<Counter> {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get(&held) {
            return Arc::clone(known);
        }
        let factory = InformerFactory::new(self.client.clone()).compact();
        let informer = factory.informer_with::<Counted>(resource, Scope::All);
        let (quotas, queue) = (self.quotas.clone(), Arc::clone(&self.queue));
        let replenish = Replenish { held: held.clone(), quotas, queue };
        informer.add_handler(replenish.clone());
        let listed = informer.clone();
        let waking = AbortOnDropHandle::new(tokio::spawn(async move {
            listed.synced().await;
            replenish.wake_all();
        }));
        let counter = Arc::new(Counter { informer, _running: factory.start(), _waking: waking });
        kinds.insert(held, Arc::clone(&counter));
        counter
    }

    /// Ends the watches of kinds that no quota limits.
    pub(crate) fn drop_unused(&self) -> Result<(), LookupError> {
        if self.kinds.lock().is_empty() {
            return Ok(());
        }
        let quotas = self.quotas.list()?;
        let is_held = |held: &Held| quotas.iter().any(|quota| names(quota).any(|name| held.counts(name)));
        self.kinds.lock().retain(|held, _| is_held(held));
        Ok(())
    }

    /// Ends the watch of a kind whose definition is gone. Returns the quotas that limit the kind: they are to be
    /// recounted when it is served.
    pub(crate) fn definition_changed(&self, change: &Change<'_, PartialObjectMeta<Definition>>) -> Vec<ObjectKey> {
        let Some(key) = change.key() else { return Vec::new() };
        let Some((resource, group)) = key.name().split_once('.') else { return Vec::new() };
        let held = Held::Object { group: group.to_owned(), resource: resource.to_owned() };
        if matches!(change, Change::Deleted(_)) {
            self.kinds.lock().remove(&held);
            return Vec::new();
        }
        let quotas = self.quotas.list().unwrap_or_default();
        let holds = |quota: &Arc<ResourceQuota>| names(quota).any(|name| held.counts(name));
        quotas.iter().filter(|quota| holds(quota)).map(|quota| ObjectKey::of(&**quota)).collect()
    }

    /// The kind with this group and plural, if it is namespaced and its objects can be created, deleted, listed and
    /// watched.
    async fn discover(&self, group: &str, resource: &str) -> Result<Option<ApiResource>, Refused> {
        let said = Refused::to(format!("find out whether {resource:?} of {group:?} are served"));
        match self.try_discover(group, resource).await {
            Ok(found) => Ok(found),
            Err(error) if refusal::is_gone(&error) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }

    async fn try_discover(&self, group: &str, resource: &str) -> Result<Option<ApiResource>, kube::Error> {
        let is_countable = |verbs: &[String]| VERBS.iter().all(|verb| verbs.iter().any(|known| known == verb));
        let found = discovery::find(&self.client, group, |one| {
            one.name == resource && one.namespaced && is_countable(&one.verbs)
        });
        Ok(found.await?.map(|found| ApiResource {
            group: group.to_owned(),
            version: found.version,
            api_version: found.api_version,
            kind: found.resource.kind,
            plural: resource.to_owned(),
        }))
    }
}

impl Replenish {
    /// Wakes the quotas of all namespaces.
    fn wake_all(&self) {
        let Some(queue) = self.queue.get() else { return };
        let quotas = self.quotas.list().unwrap_or_default();
        let holds = |quota: &Arc<ResourceQuota>| names(quota).any(|name| self.held.counts(name));
        quotas.iter().filter(|quota| holds(quota)).for_each(|quota| queue.add(ObjectKey::of(&**quota)));
    }
}

impl EventHandler<Counted> for Replenish {
    fn on_event(&mut self, event: &Event<'_, Counted>) {
        if event.kind() != EventKind::Deleted {
            return;
        }
        let Some((queue, key)) = self.queue.get().zip(event.key()) else { return };
        for quota in concerned(&self.quotas, key.namespace(), |name| self.held.counts(name)) {
            queue.add(quota);
        }
    }
}
