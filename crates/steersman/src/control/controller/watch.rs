//! Other sources of keys, besides changes of the controller's own objects: other objects whose changes are mapped to
//! keys, and streams of keys.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::cache::factory::InformerFactory;
use crate::cache::handler::Change;
use crate::cache::informer::{HandlerOptions, Informer, Registration};
use crate::control::controller::Predicate;
use crate::control::controller::keys::{KeyMapping, Map, Mapped};
use crate::control::controller::life::Attached;
use crate::control::controller::standby::Standby;
use crate::control::fence::Fence;
use crate::control::queue::{Priority, WorkQueue};
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope, Selection};
use crate::writing::owners::OwnerType;

/// The objects of a type that a controller watches, and the changes of them that count.
///
/// A [`Scope`], a [`Selection`] or a reference to an [`Informer`] converts into one where no options are needed. With
/// an informer, the selection is written once, for the controller as well as for readers of the cache. For types known
/// at run time, see [`Watch::new_with`].
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use steersman::controller::Watch;
/// # use steersman::{Controller, ObjectKey, Scope, predicates};
/// # fn watch(controller: Controller<ConfigMap>) -> Controller<ConfigMap> {
/// let secrets = Watch::<Secret>::new(Scope::Namespace("shop".to_owned())).when(predicates::labels_changed());
/// controller.watches(secrets, |secret| vec![ObjectKey::of(secret)])
/// # }
/// ```
pub struct Watch<T: Resource> {
    pub(crate) objects: Objects<T>,
    pub(crate) predicates: Vec<Box<Predicate<T>>>,
    pub(crate) priority: Priority,
}

/// The objects that are watched.
pub(crate) enum Objects<T: Resource> {
    /// Everything in the scope of the controller's own objects.
    Alongside {
        dynamic: T::DynamicType,
    },
    /// The objects of an informer.
    Of(Informer<T>),
    Selected {
        dynamic: T::DynamicType,
        selection: Selection,
    },
}

/// The parts of a controller that a source of keys is attached to.
pub(crate) struct Primary<'a, K: Resource> {
    pub(crate) factory: &'a InformerFactory,
    pub(crate) informer: &'a Informer<K>,
    pub(crate) standby: &'a Arc<Standby>,
    pub(crate) fences: &'a [Arc<dyn Fence>],
}

/// A stream of keys, and the task that empties it into the queue once the controller works.
pub(crate) struct KeyStream {
    /// Taken at the start.
    pub(crate) keys: Mutex<Option<BoxStream<'static, ObjectKey>>>,
    pub(crate) priority: Priority,
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
        Self {
            objects: Objects::Selected { dynamic, selection: selection.into() },
            predicates: Vec::new(),
            priority: Priority::Normal,
        }
    }

    /// All changes of the objects of `informer`. It must run while the controller does, so it usually is one of the
    /// manager's.
    pub fn of(informer: &Informer<T>) -> Self {
        Self { objects: Objects::Of(informer.clone()), predicates: Vec::new(), priority: Priority::Normal }
    }

    /// Everything in the scope of the controller's own objects.
    pub(crate) fn alongside(dynamic: T::DynamicType) -> Self {
        Self { objects: Objects::Alongside { dynamic }, predicates: Vec::new(), priority: Priority::Normal }
    }

    /// Ignores changes that do not pass. If this is called again, a change must pass all predicates; see
    /// [`crate::control::predicates`].
    pub fn when<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Change<'_, T>) -> bool + Send + Sync + 'static,
    {
        self.predicates.push(Box::new(predicate));
        self
    }
}

impl<T: Resource> Watch<T> {
    /// The priority of the keys for changes of these objects. Default: [`Priority::Normal`]. Objects of the initial
    /// state, and those that a resync repeats, have [`Priority::Low`] in any case.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

impl<T: CachedResource> Watch<T> {
    /// Registers a handler that adds the keys that `map` returns for each change that passes.
    pub(crate) fn attach<K: CachedResource>(self, primary: &Primary<'_, K>, map: Map<T>) -> Box<dyn Attached> {
        let informer = self.objects.informer(primary.factory, &primary.informer.selection().scope);
        let wanted = KeyMapping { predicates: self.predicates, map, priority: self.priority };
        Box::new(primary.add_handler(&informer, wanted, None))
    }
}

impl<T: CachedResource> Objects<T> {
    /// The informer of these objects; `factory` makes it if none was given. `scope` is that of the controller's own
    /// objects.
    pub(crate) fn informer(&self, factory: &InformerFactory, scope: &Scope) -> Informer<T> {
        match self {
            Self::Alongside { dynamic } => factory.informer_with(dynamic, scope.clone()),
            Self::Of(informer) => informer.clone(),
            Self::Selected { dynamic, selection } => factory.informer_with(dynamic, selection.clone()),
        }
    }

    /// The type as owner references name it.
    pub(crate) fn owner_type(&self) -> OwnerType {
        match self {
            Self::Alongside { dynamic } | Self::Selected { dynamic, .. } => OwnerType::of::<T>(dynamic),
            Self::Of(informer) => informer.owner_type().clone(),
        }
    }
}

impl<T: Resource> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alongside { .. } => f.write_str("in the scope of the controller"),
            Self::Of(informer) => informer.fmt(f),
            Self::Selected { selection, .. } => selection.fmt(f),
        }
    }
}

impl<K: CachedResource> Primary<'_, K> {
    /// Registers a handler that adds the keys of changes that pass, and the source of these keys with the fences and
    /// the standby.
    pub(crate) fn add_handler<T: CachedResource>(
        &self,
        informer: &Informer<T>,
        wanted: KeyMapping<T>,
        options: Option<HandlerOptions>,
    ) -> Registration<T> {
        let wanted = Arc::new(wanted);
        for fence in self.fences {
            fence.feed(self.standby.queue(), wanted.source(informer.indexer()));
        }
        self.standby.add_source(wanted.source(informer.indexer()));
        let handler = Mapped { wanted, standby: Arc::clone(self.standby) };
        match options {
            None => informer.add_handler(handler),
            Some(options) => informer.add_handler_with(handler, options),
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

impl<T: Resource> From<&Informer<T>> for Watch<T> {
    fn from(informer: &Informer<T>) -> Self {
        Self::of(informer)
    }
}

impl<T: Resource> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("objects", &self.objects).finish_non_exhaustive()
    }
}

// === impl KeyStream ===

impl Attached for KeyStream {
    fn start(&mut self) {
        let (Some(mut keys), queue) = (self.keys.get_mut().take(), self.queue.clone()) else { return };
        let priority = self.priority;
        let drive = async move {
            while let Some(key) = keys.next().await {
                queue.add_with(key, priority);
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
                // Aborted or ended: either way the task is over.
                drop(task.await);
            }
        })
    }
}
