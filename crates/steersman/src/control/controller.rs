//! Runs a reconciler: sources of keys, a queue, workers, and the handling of each result.
//!
//! A reconciler gets a key, never an event or an object: only the current state matters. It reads through a lister,
//! writes idempotently, and returns the next action. The controller keeps one key out of two workers, catches panics,
//! limits time, counts, and retries. This file defines a controller and its options; `keys` turns events into keys,
//! `standby` holds them before the controller works, `life` starts and ends it, and `worker` has the loop.

mod keys;
mod life;
mod standby;
pub(crate) mod stats;
mod watch;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::factory::InformerFactory;
use crate::cache::handler::Change;
use crate::cache::informer::{HandlerOptions, Informer};
use crate::control::controller::keys::{KeyMapping, Map, to_owners};
use crate::control::controller::life::Attached;
use crate::control::controller::standby::Standby;
use crate::control::controller::watch::{KeyStream, Objects, Primary};
use crate::control::fence::Fence;
use crate::control::queue::{Priority, RateLimiter, WorkQueue};
use crate::control::reconcile::{Action, BoxError, ReconcileError, ReconcileFn};
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope};
use crate::writing::owners::{OwnedBy, OwnerType};

pub(crate) use crate::control::controller::life::{CUT_OFF_WAIT, Prepared};
pub use crate::control::controller::life::{ControllerError, GRACE};
pub use crate::control::controller::stats::ControllerStats;
pub use crate::control::controller::watch::Watch;

/// Brings objects of type `K` into the state of their specs, by calling a reconciler.
///
/// Each reconcile runs in a `tracing` span `reconcile` with the fields `controller`, `key`, `id` (a number that counts up),
/// `priority` (`Low`: the initial list or a resync; `Normal`: an event; `High`) and `n_failures`; at its end also
/// `result` (`success`, `requeue`, `requeue_after`, `error`, or `revoked` when the key went to another replica) and
/// `took_seconds`. Log lines of the reconciler are in that span.
///
/// ```no_run
/// # use steersman::{Action, BoxError, Controller, InformerFactory, Lister, ObjectKey, Scope};
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// struct Context {
///     deployments: Lister<Deployment>,
/// }
///
/// async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
///     // If the object is gone, the reconcile ends as a success. If the cache is not filled, the key comes back.
///     let deployment = cx.deployments.get(&key)?;
///     // Compare and repair.
/// #   let _ = deployment;
///     Ok(Action::AwaitChange)
/// }
///
/// # async fn run(client: kube::Client, stop: tokio_util::sync::CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = InformerFactory::new(client);
/// // The selection of objects is written once, for the lister and the controller.
/// let deployments = factory.informer::<Deployment>(Scope::All);
/// Controller::of(&deployments, reconcile, Context { deployments: deployments.lister() })
///     .owns::<ConfigMap>()
///     .workers(4)
///     .run(&factory, stop)
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K: Resource> {
    name: String,
    objects: Objects<K>,
    owner_type: OwnerType,
    resync: Option<Duration>,
    workers: usize,
    timeout: Option<Duration>,
    sync_timeout: Option<Duration>,
    grace: Duration,
    queue: WorkQueue<ObjectKey>,
    reconcile: Arc<Reconcile>,
    predicates: Vec<Box<Predicate<K>>>,
    priority: Priority,
    /// The other sources of keys.
    others: Vec<Source<K>>,
    give_up: Option<GiveUp>,
    stats: Arc<ControllerStats>,
}

/// The reconciler with its context and error type erased.
type Reconcile = dyn Fn(ObjectKey) -> BoxFuture<'static, Result<Action, Box<dyn ReconcileError>>> + Send + Sync;
type Report = dyn Fn(&ObjectKey, &dyn ReconcileError) + Send + Sync;
type Predicate<K> = dyn Fn(&Change<'_, K>) -> bool + Send + Sync;
/// Registers a handler, or starts a stream, that adds keys to the queue of the controller.
type Source<K> = Box<dyn FnOnce(&Primary<'_, K>) -> Box<dyn Attached> + Send>;

struct GiveUp {
    n_failures_max: u32,
    report: Box<Report>,
}

// === impl Controller ===

impl<K> Controller<K>
where
    K: CachedResource,
    K::DynamicType: Default,
{
    /// A controller of all objects of type `K` (the `For` of controller-runtime), with one worker. To select some of
    /// them, use [`Controller::of`].
    ///
    /// `reconcile` is an `async fn(ObjectKey, &C) -> Result<Action, E>`, and `E` a [`ReconcileError`], a [`BoxError`] or, with
    /// the feature `anyhow`, an `anyhow::Error`. With `PartialObjectMeta<K>` as the type, only
    /// metadata is watched and cached.
    pub fn new<C, E, F>(reconcile: F, context: C) -> Self
    where
        C: Send + Sync + 'static,
        E: Into<BoxError> + 'static,
        F: for<'a> ReconcileFn<'a, C, E> + 'static,
    {
        Self::new_with(K::DynamicType::default(), reconcile, context)
    }
}

impl<K: CachedResource> Controller<K> {
    /// As [`Controller::new`], for the objects of `watch`: those of an informer, whose lister the context has, so that
    /// the selection is written once; or those of a scope or a selection. See [`Watch`].
    ///
    /// ```no_run
    /// # use steersman::cache::Selection;
    /// # use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # struct Context { configs: Lister<ConfigMap>, secrets: Lister<Secret> }
    /// # async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> { Ok(Action::AwaitChange) }
    /// # fn add(manager: Manager) -> Manager {
    /// let informers = manager.informers();
    /// let configs = informers.informer::<ConfigMap>(Selection::new(Scope::All).labels("vault=yes"));
    /// let secrets = informers.informer::<Secret>(Selection::new(Scope::All).labels("vault=yes"));
    /// let context = Context { configs: configs.lister(), secrets: secrets.lister() };
    /// let controller = Controller::of(&configs, reconcile, context).watches(&secrets, |secret| vec![ObjectKey::of(secret)]);
    /// manager.controller(controller)
    /// # }
    /// ```
    pub fn of<C, E, F>(watch: impl Into<Watch<K>>, reconcile: F, context: C) -> Self
    where
        C: Send + Sync + 'static,
        E: Into<BoxError> + 'static,
        F: for<'a> ReconcileFn<'a, C, E> + 'static,
    {
        let Watch { objects, predicates, priority } = watch.into();
        let shared = Arc::new((reconcile, context));
        let erased: Arc<Reconcile> = Arc::new(move |key| {
            let shared = Arc::clone(&shared);
            Box::pin(async move {
                let (reconcile, context) = &*shared;
                let result = reconcile.call(key, context).await;
                result.map_err(|error| error.into().into_inner())
            })
        });
        let owner_type = objects.owner_type();
        let name = owner_type.kind().to_ascii_lowercase();
        Self {
            queue: WorkQueue::new(&name, RateLimiter::default()),
            name,
            objects,
            owner_type,
            resync: None,
            workers: 1,
            timeout: None,
            sync_timeout: None,
            grace: GRACE,
            reconcile: erased,
            predicates,
            priority,
            others: Vec::new(),
            give_up: None,
            stats: Arc::default(),
        }
    }

    /// As [`Controller::new`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
    pub fn new_with<C, E, F>(dynamic: K::DynamicType, reconcile: F, context: C) -> Self
    where
        C: Send + Sync + 'static,
        E: Into<BoxError> + 'static,
        F: for<'a> ReconcileFn<'a, C, E> + 'static,
    {
        Self::of(Watch::new_with(dynamic, Scope::All), reconcile, context)
    }

    /// Replaces the name, which is the kind in lower case.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self.queue.set_name(name);
        self
    }

    /// The number of keys that are processed at the same time. At least one.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// A reconcile that takes longer is dropped at an await point and counts as failed. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Runs every key again every `period`, from the cache, with low priority. Default: the resync period of the
    /// factory.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// The priority of the keys of objects that changed. Default: [`Priority::Normal`]. Objects of the initial state,
    /// and those that a resync repeats, have [`Priority::Low`] in any case, so that changes come first. Other sources
    /// have priorities of their own ([`Watch::priority`], [`Controller::keys_from_with`]), and a reconciler can give
    /// one to its next run ([`Action::with_priority`]); [`Priority`] has the rule by which none of them waits for ever.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Seeds the generator for [`Action::jittered`], so that a test draws the same values again.
    pub fn jitter_seed(self, seed: u64) -> Self {
        self.queue.seed_jitter(seed);
        self
    }

    /// How failed keys are spaced. Default: [`RateLimiter::default`].
    pub fn rate_limiter(self, limiter: RateLimiter) -> Self {
        self.queue.set_limiter(limiter);
        self
    }

    /// The controller fails to start if the caches of its factory are not filled within this time. Default: it waits,
    /// and logs every half minute what it waits for, for instance a CRD that does not exist yet.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = Some(timeout);
        self
    }

    /// How long reconciles may go on after the stop, before they are dropped at an await point. Default: [`GRACE`].
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Ignores changes of the controller's own objects that do not pass. The predicate gets the type of the change, and
    /// both states. If this is called again, a change must pass all predicates; see [`crate::control::predicates`].
    pub fn when<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
    {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// Objects of type `T` whose controller (by owner reference) is a `K` make the key of that `K` run, in the same
    /// scope. When a change moves an object from one owner to another, both run.
    pub fn owns<T>(self) -> Self
    where
        T: CachedResource,
        T::DynamicType: Default,
    {
        self.owned(Watch::<T>::alongside(T::DynamicType::default()), OwnedBy::Controller)
    }

    /// As [`Controller::owns`], for the objects and changes of `watch`, and, with [`OwnedBy::Any`], for every owner
    /// that is a `K`.
    pub fn owns_with<T: CachedResource>(self, watch: impl Into<Watch<T>>, owned_by: OwnedBy) -> Self {
        self.owned(watch.into(), owned_by)
    }

    /// Every change of an object of type `T` makes the keys run that `map` returns for its previous and its new state.
    ///
    /// An informer, a scope or a selection selects the objects; a [`Watch`] also selects the changes, and can name a
    /// dynamic type.
    pub fn watches<T: CachedResource>(
        self,
        watch: impl Into<Watch<T>>,
        map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.mapped(watch.into(), Map::States(Box::new(map)))
    }

    /// As [`Controller::watches`], by the metadata of the previous and the new state. For objects that are held as
    /// bytes, nothing else is decoded.
    pub fn watches_metadata<T: CachedResource>(
        self,
        watch: impl Into<Watch<T>>,
        map: impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.mapped(watch.into(), Map::Metadata(Box::new(map)))
    }

    /// Every change of an object of type `T` makes the keys run that `map` returns for the change as a whole: its type,
    /// and the previous and the new state. Mind that a change may move an object away from a key.
    pub fn watches_changes<T: CachedResource>(
        self,
        watch: impl Into<Watch<T>>,
        map: impl Fn(&Change<'_, T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.mapped(watch.into(), Map::Change(Box::new(map)))
    }

    /// Every key that `keys` yields runs: the receiver of a channel, a timer, a scan of something outside the cluster.
    ///
    /// The stream is read once the workers start, so only while this replica holds the lease if there is an election,
    /// and is dropped when the controller stops. It may end at any time.
    pub fn keys_from(self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.keys_from_with(keys, Priority::Normal)
    }

    /// As [`Controller::keys_from`], with a priority.
    pub fn keys_from_with(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static, priority: Priority) -> Self {
        let keys = keys.boxed();
        self.others.push(Box::new(move |primary| {
            let queue = primary.standby.queue().clone();
            Box::new(KeyStream { keys: Mutex::new(Some(keys)), priority, queue, task: None })
        }));
        self
    }

    fn owned<T: CachedResource>(mut self, watch: Watch<T>, owned_by: OwnedBy) -> Self {
        let owner = self.owner_type.clone();
        self.others.push(Box::new(move |primary| {
            let map = to_owners(owner, owned_by, primary.informer);
            watch.attach(primary, map)
        }));
        self
    }

    fn mapped<T: CachedResource>(mut self, watch: Watch<T>, map: Map<T>) -> Self {
        self.others.push(Box::new(move |primary| watch.attach(primary, map)));
        self
    }

    /// A key that fails once more after `n_failures_max` failures in a row is no longer retried, until something
    /// changes; `report` is called then. [`Action::Requeue`] counts as a failure here too. Default: never.
    pub fn give_up_after<F>(mut self, n_failures_max: u32, report: F) -> Self
    where
        F: Fn(&ObjectKey, &dyn ReconcileError) + Send + Sync + 'static,
    {
        self.give_up = Some(GiveUp { n_failures_max, report: Box::new(report) });
        self
    }

    /// The informer of the objects that this controller reconciles, for other readers of their cache. It is one of
    /// `factory` unless the controller was made from an informer.
    pub fn informer(&self, factory: &InformerFactory) -> Informer<K> {
        self.objects.informer(factory, &Scope::All)
    }

    /// The queue of this controller, to add keys from elsewhere: a scan for drift, a webhook, a timer.
    pub fn queue(&self) -> WorkQueue<ObjectKey> {
        self.queue.clone()
    }

    /// Counters that move while the controller runs.
    pub fn stats(&self) -> Arc<ControllerStats> {
        Arc::clone(&self.stats)
    }

    /// Runs until `stop`: waits until all caches of `factory` are filled, because the reconciler may read any of them,
    /// processes keys, and on `stop` lets running reconciles finish within the grace period. Keys that wait then are
    /// dropped; the next start lists all objects and finds them again, except those of deleted objects that had no
    /// finalizer.
    ///
    /// It ends a second after the grace period at the latest. Reconciles whose code blocks or never awaits go on beyond
    /// that, and are named in [`ControllerError::StillRunning`]; so do closures that a reconcile passed to
    /// `tokio::task::spawn_blocking`, which the controller cannot name. A runtime that is dropped waits for both
    /// without end: `std::process::exit` or `Runtime::shutdown_timeout` do not.
    ///
    /// Starts the factory, and keeps it running for as long as this controller, or anybody else who started it, runs.
    ///
    /// # Errors
    /// [`ControllerError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, reconciles are dropped at their await points, and the handlers are removed from the
    /// informers.
    pub async fn run(self, factory: &InformerFactory, stop: CancellationToken) -> Result<(), ControllerError> {
        let prepared = self.prepare(factory, Vec::new());
        let running = factory.start();
        let result = prepared.work(stop, &TaskTracker::new()).await;
        drop(running);
        result
    }

    /// The same controller, named after the cluster of its objects.
    pub(crate) fn in_cluster(self, cluster: &str) -> Self {
        let name = format!("{cluster}/{}", self.name);
        self.name(&name)
    }

    /// Registers the handlers, so that caches fill from the start of the factory on. The workers ask `fences` in
    /// this order.
    pub(crate) fn prepare(self, factory: &InformerFactory, fences: Vec<Arc<dyn Fence>>) -> Prepared {
        let informer = self.informer(factory);
        let standby = Arc::new(Standby::new(self.queue.clone()));
        let primary = Primary { factory, informer: &informer, standby: &standby, fences: &fences };
        let options = self.resync.map(|resync| HandlerOptions { resync: Some(resync), ..HandlerOptions::default() });
        let wanted = KeyMapping { predicates: self.predicates, map: Map::Key, priority: self.priority };
        let mut attached: Vec<Box<dyn Attached>> = vec![Box::new(primary.add_handler(&informer, wanted, options))];
        for source in self.others {
            attached.push(source(&primary));
        }
        let worker = worker::Worker {
            name: self.name.clone(),
            queue: self.queue,
            fences,
            reconcile: self.reconcile,
            timeout: self.timeout,
            give_up: self.give_up,
            resource: informer.resource().to_owned(),
            is_cached: Box::new({
                let indexer = informer.indexer();
                move |key| indexer.contains(key)
            }),
            stats: self.stats,
            next_id: AtomicU64::new(1),
        };
        Prepared {
            until_synced: None,
            factories: vec![factory.clone()],
            name: self.name,
            workers: self.workers,
            sync_timeout: self.sync_timeout,
            grace: self.grace,
            standby,
            attached,
            worker: Arc::new(worker),
        }
    }
}

impl<K: Resource> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("objects", &self.objects)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Whether a change passes all predicates.
fn passes<K>(predicates: &[Box<Predicate<K>>], change: &Change<'_, K>) -> bool {
    predicates.iter().all(|passes| passes(change))
}
