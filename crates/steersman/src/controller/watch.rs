//! What else makes keys run, besides changes of the controller's own objects: other objects whose changes are mapped to
//! keys, and streams of keys.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::controller::{Attached, Predicate, passes};
use crate::factory::InformerFactory;
use crate::fence::{Fence, Refill};
use crate::handler::{Change, Event, EventHandler, EventKind};
use crate::informer::Informer;
use crate::key::ObjectKey;
use crate::owners::{OwnedBy, OwnerType};
use crate::queue::{Priority, WorkQueue};
use crate::selection::{CachedResource, Scope, Selection};

/// Which objects of a type a controller watches besides its own, and which of their changes count.
///
/// A [`Scope`] or a [`Selection`] turns into one where nothing more is to be said. For types known at run time, see
/// [`Watch::new_with`].
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use steersman::{Controller, ObjectKey, Scope, Watch, predicates};
/// # fn watch(controller: Controller<ConfigMap>) -> Controller<ConfigMap> {
/// let secrets = Watch::<Secret>::new(Scope::Namespace("shop".to_owned())).when(predicates::labels_changed());
/// controller.watches(secrets, |secret| vec![ObjectKey::of(secret)])
/// # }
/// ```
pub struct Watch<T: Resource> {
    dynamic: T::DynamicType,
    /// `None`: everything in the scope of the controller's own objects.
    selection: Option<Selection>,
    predicates: Vec<Box<Predicate<T>>>,
}

/// What a source of keys is given when it is attached.
pub(crate) struct Primary<'a, K: Resource> {
    pub(crate) factory: &'a InformerFactory,
    pub(crate) informer: &'a Informer<K>,
    pub(crate) selection: &'a Selection,
    pub(crate) queue: &'a WorkQueue<ObjectKey>,
    pub(crate) fences: &'a [Arc<dyn Fence>],
}

/// How the changes of other objects become keys.
pub(crate) enum Map<T> {
    /// By the change as a whole, whose objects are decoded for it.
    Change(Box<MapChange<T>>),
    /// By the metadata of the state before and that after, for which nothing else is decoded.
    Metadata(Box<MapMetadata>),
    /// By the state before and that after, each alone.
    States(Box<MapState<T>>),
}

type MapState<T> = dyn Fn(&T) -> Vec<ObjectKey> + Send + Sync;
type MapChange<T> = dyn Fn(&Change<'_, T>) -> Vec<ObjectKey> + Send + Sync;
type MapMetadata = dyn Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync;

/// Which events count, and for which keys.
struct Wanted<T> {
    predicates: Vec<Box<Predicate<T>>>,
    map: Map<T>,
}

/// Adds the keys that events are wanted for.
struct Mapped<T> {
    wanted: Arc<Wanted<T>>,
    queue: WorkQueue<ObjectKey>,
}

/// A stream of keys, and the task that empties it into the queue once the controller works.
pub(crate) struct KeyStream {
    /// Taken by the start.
    pub(crate) keys: Mutex<Option<BoxStream<'static, ObjectKey>>>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) task: Option<AbortOnDropHandle<()>>,
}

// === impl Watch ===

impl<T> Watch<T>
where
    T: Resource,
    T::DynamicType: Default,
{
    /// All changes of the objects of `selection`.
    pub fn new(selection: impl Into<Selection>) -> Self {
        Self::new_with(T::DynamicType::default(), selection)
    }
}

impl<T: Resource> Watch<T> {
    /// As [`Watch::new`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
    pub fn new_with(dynamic: T::DynamicType, selection: impl Into<Selection>) -> Self {
        Self { dynamic, selection: Some(selection.into()), predicates: Vec::new() }
    }

    /// Everything in the scope of the controller's own objects.
    pub(crate) fn alongside(dynamic: T::DynamicType) -> Self {
        Self { dynamic, selection: None, predicates: Vec::new() }
    }

    /// Only changes that pass count. Called again, a change must pass all; see [`crate::predicates`].
    pub fn when<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Change<'_, T>) -> bool + Send + Sync + 'static,
    {
        self.predicates.push(Box::new(predicate));
        self
    }
}

impl<T: CachedResource> Watch<T> {
    /// Registers a handler that adds the keys which `map` gives for each change that passes.
    pub(crate) fn attach<K: Resource>(self, primary: &Primary<'_, K>, map: Map<T>) -> Box<dyn Attached> {
        let selection = self.selection.unwrap_or_else(|| Selection::new(primary.selection.scope.clone()));
        let informer = primary.factory.informer_with::<T>(&self.dynamic, selection);
        let wanted = Arc::new(Wanted { predicates: self.predicates, map });
        for fence in primary.fences {
            let (lister, wanted) = (informer.lister(), Arc::clone(&wanted));
            let source = move |refill: &Refill<'_>| {
                lister.introduce(|event| {
                    if !refill.is_over() {
                        wanted.keys(event).into_iter().for_each(|key| refill.offer(key));
                    }
                });
            };
            fence.feed(primary.queue, Box::new(source));
        }
        Box::new(informer.add_handler(Mapped { wanted, queue: primary.queue.clone() }))
    }
}

impl<T: CachedResource> Wanted<T> {
    fn keys(&self, event: &Event<'_, T>) -> Vec<ObjectKey> {
        match &self.map {
            // Decoded once for both.
            Map::Change(map) => event.with_change(|change| match passes(&self.predicates, change) {
                false => Vec::new(),
                true => map(change),
            }),
            Map::Metadata(map) => {
                if !self.predicates.is_empty() && !event.with_change(|change| passes(&self.predicates, change)) {
                    return Vec::new();
                }
                let mut keys = Vec::new();
                let is_same = event.kind() == EventKind::Resync;
                for object in [event.old().filter(|_| !is_same), event.object()].into_iter().flatten() {
                    // Metadata that cannot be read names no owner.
                    keys.extend(object.metadata().iter().flat_map(|metadata| map(metadata)));
                }
                keys
            }
            Map::States(map) => {
                let decoded = event.decode();
                let change = decoded.as_change();
                if !passes(&self.predicates, &change) {
                    return Vec::new();
                }
                let mut keys = match &change {
                    Change::Updated { old, .. } if !change.is_resync() => map(old),
                    // Readers no longer see the state before.
                    Change::Undecodable(_) => event.decode_old().map(|old| map(&old)).unwrap_or_default(),
                    _ => Vec::new(),
                };
                keys.extend(change.object().map(map).unwrap_or_default());
                keys
            }
        }
    }
}

impl<T: CachedResource> EventHandler<T> for Mapped<T> {
    fn on_event(&mut self, event: &Event<'_, T>) {
        let priority = Priority::of(event.kind());
        for key in self.wanted.keys(event) {
            self.queue.add_with(key, priority);
        }
    }
}

impl<T> From<Scope> for Watch<T>
where
    T: Resource,
    T::DynamicType: Default,
{
    fn from(scope: Scope) -> Self {
        Self::new(scope)
    }
}

impl<T> From<Selection> for Watch<T>
where
    T: Resource,
    T::DynamicType: Default,
{
    fn from(selection: Selection) -> Self {
        Self::new(selection)
    }
}

impl<T: Resource> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &T::kind(&self.dynamic))
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

/// Gives the keys of the `K`s that own an object.
pub(crate) fn to_owners<K: CachedResource, T>(owner: OwnerType, owned_by: OwnedBy, informer: &Informer<K>) -> Map<T> {
    let known = informer.indexer();
    // Where the type does not tell whether owners live in namespaces, those that are known do. An owner that is not known
    // yet runs when it comes.
    Map::Metadata(Box::new(move |metadata| owner.keys(metadata, owned_by, |key| known.contains(key))))
}

// === impl KeyStream ===

impl Attached for KeyStream {
    fn start(&mut self) {
        let (Some(mut keys), queue) = (self.keys.get_mut().take(), self.queue.clone()) else { return };
        let drive = async move {
            while let Some(key) = keys.next().await {
                queue.add(key);
            }
        };
        let guarded = async move {
            if AssertUnwindSafe(drive).catch_unwind().await.is_err() {
                tracing::error!("a stream of keys panicked; nothing more comes from it");
            }
        };
        self.task = Some(AbortOnDropHandle::new(tokio::spawn(guarded)));
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(futures::future::ready(()))
    }

    fn unsynced(&self) -> Option<String> {
        None
    }

    fn detach(&mut self) {
        self.keys.get_mut().take();
        self.task.take();
    }

    fn remove(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(task) = self.task {
                task.abort();
                // Aborted or ended: either way it is over.
                drop(task.await);
            }
        })
    }
}
